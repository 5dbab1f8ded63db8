"""Compiled loops: gradients, random numbers, elementwise formulas, predictions.

Kernels take arrays and numbers. They do not depend on processes, samplers or files, except the cache of compiled code.
"""
