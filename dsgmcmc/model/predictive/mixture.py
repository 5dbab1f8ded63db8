"""Mixtures of any law that is told by its mean and variance: what a likelihood has without writing one of its own."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.types import Array, Float64


class LawOfMoments(Protocol):
    """A law of ratings that their mean and variance tell, elementwise; see `dsgmcmc.model.likelihoods.base`."""

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array) -> Float64:
        """Probability of a rating of at most `x`."""

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array) -> Array:
        """Log density of ratings."""


class Mixture(Predictive):
    """Mixtures of laws of these means and variances.

    Parameters
    ----------
    law : LawOfMoments
    mean, variance : (q, n) float
        Of the components.
    weights : (n,) float64
        They sum to 1.
    centre : float
        What is added to their ratings.
    levels : (R,) float64, optional
        See `Predictive`.
    """

    def __init__(
        self,
        law: type[LawOfMoments],
        mean: Array,
        variance: Array,
        weights: Float64,
        centre: float = 0.0,
        levels: Float64 | None = None,
    ) -> None:
        self._law, self._weights, self._centre, self.levels = law, weights, centre, levels
        self._mean, self._variance = mean, variance

    @property
    def mean(self) -> Float64:
        """See `Predictive.mean`."""
        found: Float64 = self._mean @ self._weights + self._centre
        return found

    @property
    def sd(self) -> Float64:
        """See `Predictive.sd`."""
        apart = self._mean - (self._mean @ self._weights)[:, None]
        found: Float64 = np.sqrt((np.square(apart) + self._variance) @ self._weights)
        return found

    def _less_centre(self, x: Array | float) -> Float64:
        """Ratings, less the centre, for every component: (q, 1), or (1, 1)."""
        found: Float64 = np.reshape(np.asarray(x, np.float64) - self._centre, (-1, 1))
        return found

    def cdf(self, x: Array | float) -> Float64:
        """See `Predictive.cdf`."""
        found: Float64 = self._law.cdf(self._less_centre(x), self._mean, self._variance) @ self._weights
        return found

    def log_density(self, x: Array | float) -> Float64:
        """See `Predictive.log_density`."""
        logs = self._law.log_density(self._less_centre(x), self._mean, self._variance)
        largest = logs.max(axis=1)
        found: Float64 = largest + np.log(np.exp(logs - largest[:, None]) @ self._weights)
        return found
