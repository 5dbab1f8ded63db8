"""Ratings of ordered levels: thresholds, levels of items, and moves for two levels."""
