"""The Bayesian matrix factorisation on the ring: its blocks, likelihood, priors, noise and held-out ratings."""
