"""Completed matrices: all cells of some rows and columns, predicted or drawn."""
