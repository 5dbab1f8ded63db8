"""Predictive distributions of ratings, for any likelihood: one kind per file.

`base` is the interface. Nothing here depends on runs, draws on disk, or likelihoods.
"""
