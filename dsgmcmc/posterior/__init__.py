"""Use of the draws of a run: names, predictions, recommendations, folding in and export.

The package needs no MPI, and does not change draws or settings of a run.
"""
