"""The Bayesian matrix factorisation on the ring: blocks and cells, likelihoods, priors, noise and
held-out ratings.

It depends neither on samplers nor on the code that predicts from saved draws.
"""
