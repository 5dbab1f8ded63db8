"""Compiled loops: gradients, random numbers, elementwise formulas, predictions.

Kernels take arrays and numbers. They depend neither on processes and samplers nor, except for the cache of compiled
code, on files.
"""
