"""A run that has made draws, opened for use: names, draws, predictions, recommendations, fold-in, export.

No MPI is needed, and nothing of the run is changed.
"""
