"""Compiled loops: gradients, random numbers, elementwise formulas, predictions.

Kernels take arrays and numbers. They know neither processes nor samplers, and use no files except
the cache of compiled code.
"""
