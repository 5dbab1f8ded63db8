"""Distributions over ordered levels."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from dsgmcmc.model.predictive.base import SMALLEST, Predictive, nearest_level, reaches
from dsgmcmc.types import Array, Float64, Int64


def log_probability(p: Array, level: Int64) -> Float64:
    """Log probability of each rating's level, (q,) float64."""
    chosen = np.take_along_axis(p, level[:, None], axis=1)[:, 0]
    return np.asarray(np.log(np.maximum(chosen, SMALLEST), dtype=np.float64))


class LevelDistribution(Predictive):
    """Distributions over levels.

    Parameters
    ----------
    probability : (q, R) float
        Probabilities of the levels.
    levels : (R,) float64
        The levels, in ascending order.
    """

    levels: Float64
    has_density = False

    def __init__(self, probability: Array, levels: Float64) -> None:
        self._probability = np.asarray(probability, np.float64)
        self.levels = levels

    @property
    @override
    def mean(self) -> Float64:
        return np.asarray(self._probability @ self.levels)

    @property
    @override
    def sd(self) -> Float64:
        square = np.square(self.levels - self.mean[:, None])
        return np.asarray(np.sqrt(np.einsum("qr,qr->q", self._probability, square) + 1e-12))

    def _up_to(self, number: Int64) -> Float64:
        """Probability of the lowest `number` levels, (q,); `number` is (q,), or one for all."""
        table = np.zeros((len(self._probability), len(self.levels) + 1))
        np.cumsum(self._probability, axis=1, out=table[:, 1:])
        np.minimum(table, 1.0, out=table)
        table[:, -1] = 1.0
        return np.asarray(table[np.arange(len(table)), number])

    @override
    def cdf(self, x: Array | float) -> Float64:
        return self._up_to(np.searchsorted(self.levels, x, side="right"))

    @override
    def below(self, x: Array | float) -> Float64:
        return self._up_to(np.searchsorted(self.levels, x, side="left"))

    @override
    def at_least(self, bound: float) -> Float64:
        # a sum of the levels above: the complement of `below` would lose digits
        return np.asarray(self._probability[:, reaches(self.levels, bound)].sum(axis=1))

    @override
    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: the smallest level at which F reaches p - 1e-6."""
        below = np.cumsum(self._probability, axis=1)[:, :-1]
        return np.asarray(self.levels[(below < np.reshape(p, (-1, 1)) - 1e-6).sum(axis=1)])

    @override
    def probabilities(self) -> Float64:
        return self._probability

    @override
    def log_density(self, x: Array | float) -> Float64:
        """Log probability of the level nearest to each rating."""
        level = nearest_level(np.broadcast_to(x, len(self._probability)), self.levels)
        return log_probability(self._probability, level)

    @override
    def log_probability(self, x: Array) -> Float64:
        return self.log_density(x)

    @override
    def pit(self, x: Array) -> tuple[Float64, Float64]:
        level = self.levels[nearest_level(x, self.levels)]
        return self.below(level), self.cdf(level)
