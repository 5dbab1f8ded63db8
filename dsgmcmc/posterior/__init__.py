"""Use of a run that has made draws: names, draws, predictions, recommendations, fold-in, export.

MPI is not needed, and no draws or settings of the run are changed.
"""
