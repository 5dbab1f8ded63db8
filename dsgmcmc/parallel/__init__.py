"""Processes and their communication: owners of blocks, the ring, ordered sums, communicators, signals and clocks.

The package is independent of models and samplers. Importing it loads nothing else: `signals` and `machine` are needed
before NumPy is loaded.
"""
