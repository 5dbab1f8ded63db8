"""Processes and what they share: who owns which block, the ring, ordered sums, communicators, signals, clocks.

Nothing here knows what is computed. Importing the room loads nothing: `signals` and `machine` come before NumPy.
"""
