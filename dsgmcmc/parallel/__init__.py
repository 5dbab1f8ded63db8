"""Processes and their communication: blocks, the ring, ordered sums, signals and a watchdog.

The package is independent of models and samplers. Importing the package loads none of its modules:
`signals` and `comm` are needed before NumPy is loaded.
"""
