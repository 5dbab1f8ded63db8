"""Densities of data: sums over the data, and regressions."""
