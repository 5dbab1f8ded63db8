"""The Bayesian matrix factorisation on the ring: its blocks and cells, likelihoods, priors, noise, held-out ratings.

Which sampler moves it, and how predictions are made of its draws, is not known here.
"""
