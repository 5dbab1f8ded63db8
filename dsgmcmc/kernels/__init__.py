"""Compiled loops: gradient, noise, fused elementwise formulas, prediction."""
