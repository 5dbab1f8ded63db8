"""Mixtures over draws: of any distributions, of normal distributions, and of expected ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist  # SciPy takes longer to import than a prediction
from typing import Protocol

import numpy as np

from dsgmcmc.kernels.prediction import ndtr, summarise
from dsgmcmc.model.predictive.base import TINY, Prediction, Predictive
from dsgmcmc.types import Array, Float64


class LawOfMoments(Protocol):
    """A distribution of ratings with given mean, variance and further parameters (its shape),
    elementwise.
    """

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability that a rating is at most `x`."""

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings."""


@dataclass(eq=False, repr=False)
class Mixture(Predictive):
    """Mixtures of distributions with given means and variances.

    Parameters
    ----------
    law : LawOfMoments
        Family of the components.
    means, variances : (q, n) float
        Means and variances of the components.
    weights : (n,) float64
        Weights of the components; they sum to 1.
    centre : float
        Number that was subtracted from ratings, and is added to the means.
    levels : (R,) float64, optional
        Possible ratings, in ascending order, if known.
    shape : sequence of (q or 1, n or 1) float64
        Further parameters of the components: one array for each parameter of the family.
    """

    law: type[LawOfMoments]
    means: Array
    variances: Array
    weights: Float64
    centre: float = 0.0
    levels: Float64 | None = None
    shape: Sequence[Array] = ()

    @property
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64."""
        return np.asarray(self.means @ self.weights + self.centre)

    @property
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64."""
        apart = self.means - (self.means @ self.weights)[:, None]
        return np.asarray(np.sqrt((np.square(apart) + self.variances) @ self.weights))

    def _less_centre(self, x: Array | float) -> Float64:
        """Ratings, less the centre, for every component: (q, 1), or (1, 1)."""
        return np.asarray(np.reshape(np.asarray(x, np.float64) - self.centre, (-1, 1)))

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability that a rating is at most `x`."""
        given = self._less_centre(x), self.means, self.variances
        return np.asarray(self.law.cdf(*given, *self.shape) @ self.weights)

    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability."""
        logs = self.law.log_density(self._less_centre(x), self.means, self.variances, *self.shape)
        largest = np.maximum(logs.max(axis=1), np.finfo(np.float64).min)
        with np.errstate(
            divide="ignore"
        ):  # the logarithm of 0, for a rating that is impossible at all draws
            return np.asarray(largest + np.log(np.exp(logs - largest[:, None]) @ self.weights))

    def log_at_least(self, bound: float) -> Float64:
        """Logarithm of `at_least`, in nats.

        Here: if the probability is too small for float64, the tail is taken to fall like an
        exponential function, at the rate at which the density falls at the bound.
        """
        logs = super().log_at_least(bound)
        if (far := logs <= np.log(TINY)).any():
            x = np.ceil(bound) if self.whole else self._rounded_to(bound)
            step = np.ones_like(logs) if self.whole else 1e-3 * self.sd
            at = self.log_density(x)
            fall = np.where(far, at - self.log_density(x + step), 1.0)
            slope = -np.expm1(-fall) if self.whole else fall / step
            logs[far] = np.minimum(at - np.log(slope), logs)[far]
        return logs


class CountMixture(Mixture):
    """Mixtures of distributions of counts, which are whole numbers from 0 on or from 1 on."""

    whole = True


class SymmetricMixture(Mixture):
    """Mixtures of distributions that are symmetric about their means."""

    def between(self, low: Array | float, high: Array | float) -> Float64:
        """Probability of a rating of at least `low` and below `high`.

        Here: each component's difference is computed in the nearer tail, where it loses no digits.
        """
        low, high = self._less_centre(low), self._less_centre(high)
        above = low + high > 2 * self.means
        ends = (np.where(above, 2 * self.means - end, end) for end in (low, high))
        up_to = [self.law.cdf(end, self.means, self.variances, *self.shape) for end in ends]
        return np.asarray(np.abs(up_to[1] - up_to[0]) @ self.weights)

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`; here from the upper tail, where it loses no
        digits.
        """
        mirrored = 2 * self.means - self._less_centre(self._rounded_to(bound))
        return np.asarray(
            self.law.cdf(mirrored, self.means, self.variances, *self.shape) @ self.weights
        )


class Normal:
    """The normal distribution, as a `LawOfMoments`."""

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability that a rating is at most `x`."""
        return np.asarray(ndtr((x - mean) / np.sqrt(variance)))

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings."""
        return np.asarray(-0.5 * (np.square(mean - x) / variance + np.log(2 * np.pi * variance)))


class NormalMixture(SymmetricMixture):
    """Mixtures of normal distributions with given means and variances."""

    def summary(self, low: float, high: float) -> Prediction:
        """Mean, sd, and the quantiles at probabilities `low` and `high`.

        Here: compiled, with quantiles accurate to 2e-6 in probability.
        """
        z = NormalDist().inv_cdf(low), NormalDist().inv_cdf(high)
        mean, variance = (
            np.ascontiguousarray(values, np.float32) for values in (self.means, self.variances)
        )
        centred = Prediction(*summarise(mean, variance, self.weights, levels=(low, high), z=z))
        centre = np.float32(self.centre)
        return Prediction(
            centred.mean + centre, centred.sd, centred.low + centre, centred.high + centre
        )


class Scores(NormalMixture):
    """Mixtures over draws, of expected ratings: of points, or of normal distributions if predictors
    have a `spread`.

    Parameters as for `Mixture`, without levels. If all components are points, quantiles are
    computed from the weighted sample, in which each draw is at the middle of its weight.
    """

    def __init__(self, mean: Array, variance: Array, weights: Float64, centre: float = 0.0) -> None:
        super().__init__(Normal, mean, variance, weights, centre)

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability that a rating is at most `x`."""
        error, sd = self._less_centre(x) - self.means, np.sqrt(self.variances)
        return np.asarray(
            np.where(sd > 0, ndtr(error / np.where(sd > 0, sd, 1.0)), error >= 0) @ self.weights
        )

    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: for discrete ratings, the smallest x with F(x) >= p."""
        return self.summary(float(p), float(p)).low.astype(np.float64)
