"""Elementwise formulas, as in a paper: their syntax, their source, and their compiled loops."""
