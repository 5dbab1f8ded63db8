"""Mixtures over draws: of any distributions, of normal distributions, and of expected ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist  # SciPy takes longer to import than a prediction
from typing import Protocol

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.prediction import ndtr, summarise
from dsgmcmc.model.predictive.base import TINY, Prediction, Predictive
from dsgmcmc.types import Array, Float64, Mask


class LawOfMoments(Protocol):
    """A distribution of ratings, by its mean, its variance and further parameters (`shape`).

    All arguments are arrays that are broadcast against each other.
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
    @override
    def mean(self) -> Float64:
        return np.asarray(self.means @ self.weights + self.centre)

    @property
    @override
    def sd(self) -> Float64:
        deviations = self.means - (self.means @ self.weights)[:, None]
        return np.asarray(np.sqrt((np.square(deviations) + self.variances) @ self.weights))

    def _less_centre(self, x: Array | float) -> Float64:
        """Ratings, less the centre, for every component: (q, 1), or (1, 1)."""
        return np.asarray(np.reshape(np.asarray(x, np.float64) - self.centre, (-1, 1)))

    @override
    def cdf(self, x: Array | float) -> Float64:
        up_to = self.law.cdf(self._less_centre(x), self.means, self.variances, *self.shape)
        return np.asarray(up_to @ self.weights)

    @override
    def log_density(self, x: Array | float) -> Float64:
        logs = self.law.log_density(self._less_centre(x), self.means, self.variances, *self.shape)
        largest = np.maximum(logs.max(axis=1), np.finfo(np.float64).min)
        with np.errstate(divide="ignore"):  # log 0, if a rating is impossible at all draws
            return np.asarray(largest + np.log(np.exp(logs - largest[:, None]) @ self.weights))

    @override
    def log_at_least(self, bound: float) -> Float64:
        """Logarithm of `at_least`, in nats.

        If the probability is too small for float64, the tail is taken to fall like an exponential
        function, at the rate at which the density falls at the bound.
        """
        logs = super().log_at_least(bound)
        far = logs <= np.log(TINY)
        if far.any():
            logs[far] = np.minimum(self._log_far_tail(bound, far), logs)[far]
        return logs

    def _log_far_tail(self, bound: float, far: Mask) -> Float64:
        """Log probability of at least `bound` in an exponential tail; meant only where `far`."""
        if self.has_counts:
            x = np.ceil(bound)
            log_density = self.log_density(x)
            fall = np.where(far, log_density - self.log_density(x + 1.0), 1.0)
            rate = -np.expm1(-fall)
        else:
            x = self._rounded_to(bound)
            step = 1e-3 * self.sd
            log_density = self.log_density(x)
            fall = np.where(far, log_density - self.log_density(x + step), 1.0)
            rate = fall / step
        return np.asarray(log_density - np.log(rate))


class CountMixture(Mixture):
    """Mixtures of distributions of counts, which are whole numbers from 0 on or from 1 on."""

    has_counts = True


class SymmetricMixture(Mixture):
    """Mixtures of distributions that are symmetric about their means."""

    @override
    def between(self, low: Array | float, high: Array | float) -> Float64:
        low = self._less_centre(low)
        high = self._less_centre(high)
        # the difference loses no digits in the nearer tail of each component
        above = low + high > 2 * self.means
        up_to_low = self._cdf_of_components(np.where(above, 2 * self.means - low, low))
        up_to_high = self._cdf_of_components(np.where(above, 2 * self.means - high, high))
        return np.asarray(np.abs(up_to_high - up_to_low) @ self.weights)

    @override
    def at_least(self, bound: float) -> Float64:
        # by symmetry a lower tail, which loses no digits
        mirrored = 2 * self.means - self._less_centre(self._rounded_to(bound))
        return np.asarray(self._cdf_of_components(mirrored) @ self.weights)

    def _cdf_of_components(self, x: Array) -> Float64:
        return self.law.cdf(x, self.means, self.variances, *self.shape)


class Normal:
    """The normal distribution, as a `LawOfMoments`."""

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability that a rating is at most `x`."""
        return np.asarray(ndtr((x - mean) / np.sqrt(variance)))

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings, in nats."""
        return np.asarray(-0.5 * (np.square(mean - x) / variance + np.log(2 * np.pi * variance)))


class NormalMixture(SymmetricMixture):
    """Mixtures of normal distributions with given means and variances.

    If `law` has another distribution function, quantiles are found from it.
    """

    @property
    def _is_normal(self) -> bool:
        """Whether components are normal: a law may have a distribution function of its own."""
        return self.law.cdf is Normal.cdf

    @override
    def quantile(self, p: Array | float) -> Float64:
        if self.means.shape[1] > 1 or not self._is_normal:
            return super().quantile(p)
        from scipy.special import ndtri  # slow to import

        sd = np.sqrt(self.variances[:, 0], dtype=np.float64)
        return np.asarray(self.means[:, 0] + self.centre + sd * ndtri(p))

    @override
    def summary(self, low: float, high: float) -> Prediction:
        """Mean, sd, and two quantiles; compiled, with quantiles accurate to 2e-6 in probability."""
        if not self._is_normal:
            return super().summary(low, high)
        z = NormalDist().inv_cdf(low), NormalDist().inv_cdf(high)
        means = np.ascontiguousarray(self.means, np.float32)
        variances = np.ascontiguousarray(self.variances, np.float32)
        centred = Prediction(*summarise(means, variances, self.weights, levels=(low, high), z=z))
        centre = np.float32(self.centre)
        return Prediction(
            mean=centred.mean + centre,
            sd=centred.sd,
            low=centred.low + centre,
            high=centred.high + centre,
        )


class ExpectationMixture(NormalMixture):
    """Mixtures over draws of expected ratings: points, or normal distributions with a `spread`.

    Parameters as for `Mixture`, without levels. If all components are points, quantiles are
    computed from the weighted sample, in which each draw is at the middle of its weight.
    """

    def __init__(self, mean: Array, variance: Array, weights: Float64, centre: float = 0.0) -> None:
        super().__init__(Normal, mean, variance, weights, centre)

    @override
    def cdf(self, x: Array | float) -> Float64:
        error = self._less_centre(x) - self.means
        sd = np.sqrt(self.variances)
        normal = ndtr(error / np.where(sd > 0, sd, 1.0))
        return np.asarray(np.where(sd > 0, normal, error >= 0) @ self.weights)

    @override
    def quantile(self, p: Array | float) -> Float64:
        return self.summary(float(p), float(p)).low.astype(np.float64)
