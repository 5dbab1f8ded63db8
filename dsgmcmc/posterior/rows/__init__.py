"""Rows that were not sampled: new ratings and features, and their distributions at every draw."""
