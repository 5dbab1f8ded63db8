"""Metropolis samplers for densities on a plain vector: exact, or with a set probability of wrong decisions."""
