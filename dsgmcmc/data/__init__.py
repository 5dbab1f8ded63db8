"""Ratings: the ratings file, its preparation from files, arrays or simulation, and tables of pairs and titles.

Nothing here knows of samplers, runs or predictions.
"""
