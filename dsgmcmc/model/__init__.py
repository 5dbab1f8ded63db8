"""The Bayesian matrix factorisation on the ring: its blocks and cells, likelihoods, priors, noise, held-out ratings.

It knows neither the sampler that moves it nor the predictions that are made from its draws.
"""
