"""Data: the ratings file, its preparation from files or arrays, and tables of features, pairs and
titles.

The package uses neither samplers nor runs nor predictions.
"""
