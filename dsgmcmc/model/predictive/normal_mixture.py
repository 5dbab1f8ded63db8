"""Mixtures of normal distributions: of Gaussian ratings, over draws of their predictors and of the noise."""

from __future__ import annotations

from statistics import NormalDist  # SciPy takes longer to import than a prediction

import numpy as np

from dsgmcmc.kernels.normal import ndtr
from dsgmcmc.kernels.quantiles import summarise
from dsgmcmc.model.predictive.base import Prediction
from dsgmcmc.model.predictive.mixture import SymmetricMixture
from dsgmcmc.types import Array, Float64


class Normal:
    """The normal law; see `LawOfMoments`."""

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability of a rating of at most `x`."""
        probability: Float64 = ndtr((x - mean) / np.sqrt(variance))
        return probability

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings."""
        log_density: Array = -0.5 * (np.square(mean - x) / variance + np.log(2 * np.pi * variance))
        return log_density


class NormalMixture(SymmetricMixture):
    """Mixtures of normal distributions with these means and variances; see `Mixture`."""

    def sample(self, rng: np.random.Generator) -> Float64:
        """Draw one rating from each distribution, (q,) float64."""
        n = len(self._mean)
        chosen = np.arange(n), rng.choice(len(self._weights), n, p=self._weights)
        ratings: Float64 = self._mean[chosen] + np.sqrt(self._variance[chosen]) * rng.standard_normal(n) + self._centre
        return ratings

    def summary(self, low: float, high: float) -> Prediction:
        """Mean, sd and the quantiles at these two probabilities.

        Here: compiled, with quantiles accurate to 2e-6 in probability.
        """
        z = NormalDist().inv_cdf(low), NormalDist().inv_cdf(high)
        mean, variance = (np.ascontiguousarray(each, np.float32) for each in (self._mean, self._variance))
        centred = Prediction(*summarise(mean, variance, self._weights, (low, high), z))
        centre = np.float32(self._centre)
        return Prediction(centred.mean + centre, centred.sd, centred.low + centre, centred.high + centre)

    def crps(self, x: Array) -> Float64:
        """Continuous ranked probability score, integral of (F(y) - 1{x <= y})^2, in units of the ratings.

        Here: E|X - x| - E|X - X'| / 2, and both are means of folded normals [Grimit 2006].
        """
        spread = np.zeros(len(self._mean))
        for mean, variance, weight in zip(self._mean.T, self._variance.T, self._weights.tolist(), strict=True):
            between = _folded(self._mean - mean[:, None], self._variance + variance[:, None])
            spread += weight * (between @ self._weights)
        score: Float64 = _folded(self._less_centre(x) - self._mean, self._variance) @ self._weights - spread / 2
        return score


def _folded(mean: Float64, variance: Float64) -> Float64:
    """E|X| of normal X."""
    sd = np.sqrt(variance)
    z = mean / sd
    expected: Float64 = mean * (2 * ndtr(z) - 1) + sd * np.exp(-(z**2) / 2) * np.sqrt(2 / np.pi)
    return expected
