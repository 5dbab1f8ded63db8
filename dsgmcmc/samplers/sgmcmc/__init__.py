"""Stochastic-gradient and Langevin samplers: one algorithm a file, from the equations to the step."""
