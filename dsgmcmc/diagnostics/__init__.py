"""Diagnostics of a run: scores on held-out ratings, convergence of its chains, and the report.

They read runs and change nothing.
"""
