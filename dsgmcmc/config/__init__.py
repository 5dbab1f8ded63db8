"""Settings of a run and its job, from files and options, checked once. Reads no ratings, starts nothing.

Importing this package loads nothing else: commands that do not sample use `units` alone.
"""
