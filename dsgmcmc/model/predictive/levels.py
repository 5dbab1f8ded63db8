"""Distributions over ordered levels."""

from __future__ import annotations

import numpy as np

from dsgmcmc.model.predictive.base import SMALLEST, Predictive, nearest_level
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
        self._probability, self.levels = np.asarray(probability, np.float64), levels

    @property
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64."""
        return np.asarray(self._probability @ self.levels)

    @property
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64."""
        square = np.square(self.levels - self.mean[:, None])
        return np.asarray(np.sqrt(np.einsum("qr,qr->q", self._probability, square) + 1e-12))

    def _up_to(self, number: Int64) -> Float64:
        """Probability of the lowest `number` levels, (q,), for one number or for an array (q,) of
        them.
        """
        table = np.zeros((len(self._probability), len(self.levels) + 1))
        np.cumsum(self._probability, axis=1, out=table[:, 1:])
        np.minimum(table, 1.0, out=table)
        table[:, -1] = 1.0
        return np.asarray(table[np.arange(len(table)), number])

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability that a rating is at most `x`."""
        return self._up_to(np.searchsorted(self.levels, x, side="right"))

    def below(self, x: Array | float) -> Float64:
        """F(x-): probability of a rating below `x`."""
        return self._up_to(np.searchsorted(self.levels, x, side="left"))

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`; here a sum of the levels above, which loses
        no digits.
        """
        return np.asarray(self._probability[:, self.levels >= bound - 1e-9].sum(axis=1))

    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: for discrete ratings, the smallest x with F(x) >= p.

        Here: the smallest level at which F reaches p - 1e-6.
        """
        below = np.cumsum(self._probability, axis=1)[:, :-1]
        return np.asarray(self.levels[(below < np.reshape(p, (-1, 1)) - 1e-6).sum(axis=1)])

    def probabilities(self) -> Float64:
        """Probability of every level, (q, R) float64: of all values that are rounded to it."""
        return self._probability

    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability.

        Here: log probability of the level nearest to each rating.
        """
        level = nearest_level(np.broadcast_to(x, len(self._probability)), self.levels)
        return log_probability(self._probability, level)

    def log_probability(self, x: Array) -> Float64:
        """Log probability of the level nearest to each rating."""
        return self.log_density(x)

    def pit(self, x: Array) -> tuple[Float64, Float64]:
        """Bounds F(x-) and F(x) between which the randomised probability integral transform is
        uniform [Czado 2009].
        """
        return super().pit(self.levels[nearest_level(x, self.levels)])
