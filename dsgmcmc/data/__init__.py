"""Ratings: the ratings file, its preparation from files, arrays or simulation, and tables of pairs and titles.

The package does not know samplers, runs or predictions.
"""
