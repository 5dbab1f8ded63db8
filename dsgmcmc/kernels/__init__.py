"""Compiled loops: gradients, random numbers, fused elementwise formulas, predictions.

Kernels take arrays and numbers. They know nothing of processes, samplers or files, except the cache of compiled code.
"""
