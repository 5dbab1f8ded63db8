"""Diagnostics of a run: scores and calibration on held-out ratings, convergence of its chains, and
the report.

They read runs and change nothing.
"""
