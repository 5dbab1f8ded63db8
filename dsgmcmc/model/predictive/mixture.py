"""Mixtures of any distribution that mean and variance determine: the default for a likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.types import Array, Float64


class LawOfMoments(Protocol):
    """A distribution of ratings, given by mean, variance and perhaps other parameters, its shape, elementwise."""

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability of a rating of at most `x`."""

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings."""


class Mixture(Predictive):
    """Mixtures of distributions with these means and variances.

    Parameters
    ----------
    law : LawOfMoments
    mean, variance : (q, n) float
        Means and variances of the components.
    weights : (n,) float64
        They sum to 1.
    centre : float
        Added to the mixtures' values.
    levels : (R,) float64, optional
        See `Predictive`.
    shape : sequence of (q or 1, n) float64
        What else the law of the components needs.
    """

    def __init__(
        self,
        law: type[LawOfMoments],
        mean: Array,
        variance: Array,
        weights: Float64,
        centre: float = 0.0,
        levels: Float64 | None = None,
        shape: Sequence[Array] = (),
    ) -> None:
        self._shape = shape
        self._law, self._weights, self._centre, self.levels = law, weights, centre, levels
        self._mean, self._variance = mean, variance

    @property
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64."""
        mean: Float64 = self._mean @ self._weights + self._centre
        return mean

    @property
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64."""
        apart = self._mean - (self._mean @ self._weights)[:, None]
        sd: Float64 = np.sqrt((np.square(apart) + self._variance) @ self._weights)
        return sd

    def _less_centre(self, x: Array | float) -> Float64:
        """Ratings, less the centre, for every component: (q, 1), or (1, 1)."""
        shifted: Float64 = np.reshape(np.asarray(x, np.float64) - self._centre, (-1, 1))
        return shifted

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability of a rating of at most `x`."""
        given = self._less_centre(x), self._mean, self._variance
        probability: Float64 = self._law.cdf(*given, *self._shape) @ self._weights
        return probability

    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability."""
        logs = self._law.log_density(self._less_centre(x), self._mean, self._variance, *self._shape)
        largest = logs.max(axis=1)
        log_density: Float64 = largest + np.log(np.exp(logs - largest[:, None]) @ self._weights)
        return log_density


class SymmetricMixture(Mixture):
    """Mixtures of distributions that are symmetric about their means; see `Mixture`."""

    def between(self, low: Array | float, high: Array | float) -> Float64:
        """Probability of a rating from `low` on and below `high`.

        Here: each component's difference is taken in the tail that it lies in.
        """
        low, high = self._less_centre(low), self._less_centre(high)
        above = low + high > 2 * self._mean
        ends = (np.where(above, 2 * self._mean - each, each) for each in (low, high))
        up_to = [self._law.cdf(end, self._mean, self._variance, *self._shape) for end in ends]
        probability: Float64 = np.abs(up_to[1] - up_to[0]) @ self._weights
        return probability
