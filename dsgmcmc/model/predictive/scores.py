"""Posteriors of expected ratings, and of the scores of clicks; these are not distributions of ratings."""

from __future__ import annotations

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.normal import ndtr
from dsgmcmc.model.predictive.normal_mixture import Normal, NormalMixture
from dsgmcmc.types import Array, Float64


class Scores(NormalMixture):
    """Mixtures over draws of expected ratings: of points, or of normal distributions if a row is uncertain.

    Parameters are those of `Mixture`, without levels. If all components are points, quantiles are those of the weighted
    sample, in which each draw is at the middle of its weight.
    """

    def __init__(self, mean: Array, variance: Array, weights: Float64, centre: float = 0.0) -> None:
        super().__init__(Normal, mean, variance, weights, centre)

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability of a rating of at most `x`."""
        error, sd = self._less_centre(x) - self._mean, np.sqrt(self._variance)
        probability: Float64 = np.where(sd > 0, ndtr(error / np.where(sd > 0, sd, 1.0)), error >= 0) @ self._weights
        return probability

    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: for discrete ratings, the smallest x with F(x) >= p."""
        return self.summary(float(p), float(p)).low.astype(np.float64)

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`; with levels, of values that are rounded to such a level.

        Here: not known.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError("scores and expected ratings have no probabilities of ratings")

    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability. Here: not known."""
        raise InputError("scores and expected ratings have no density of ratings")
