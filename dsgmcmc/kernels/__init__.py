"""Compiled loops: gradient, noise, fused elementwise formulas, prediction.

They see arrays and numbers alone. No process, no file but the cache of compiled code, and no sampler is known here.
"""
