"""Data: the ratings file, its preparation, and tables of features, pairs and titles.

The package uses neither samplers nor runs nor predictions.
"""
