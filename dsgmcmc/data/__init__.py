"""Ratings: their file, how it is made from any other file, array or simulation, and tables of pairs and titles.

Nothing here knows of samplers, runs or predictions.
"""
