"""How good a run is: scores and calibration on held-out ratings, convergence of its chains, the report of all that.

It reads runs and changes nothing.
"""
