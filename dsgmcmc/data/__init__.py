"""Data: the ratings file, its preparation from files or arrays, and tables of features, pairs and titles.

The package does not know samplers, runs or predictions.
"""
