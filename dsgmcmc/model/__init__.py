"""The Bayesian matrix factorisation on the ring: its ratings, likelihoods, parts and draws.

It depends neither on samplers nor on the code that predicts from saved draws.
"""
