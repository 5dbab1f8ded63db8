"""Stochastic gradient samplers for densities on a plain vector only."""
