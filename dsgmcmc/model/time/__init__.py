"""Levels of time: ratings of one user or item that were given together share an effect.

`levels` has their names, and which ratings are together; `effects` samples them.
"""
