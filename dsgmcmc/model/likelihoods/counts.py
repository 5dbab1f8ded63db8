r"""Distributions of counts: negative binomial, of all counts or of counts above 0.

Before any truncation, a count has the mean m and the variance m + m^2 / r, with the dispersion r;
r is infinite for a Poisson distribution. With p_0 = (1 + m / r)^-r, the probability of 0,

    log p = lgamma(x + r) - lgamma(r) - lgamma(x + 1) + x log(m / r) - (x + r) log(1 + m / r)

A distribution that is truncated at 0 is conditional on x > 0: log(1 - p_0) is subtracted. In this
file, *rate* is m, and *mean* and *variance* are those after any truncation. The Fisher information
of a count on log m is Var(x) / (1 + m / r)^2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from typing_extensions import override

from dsgmcmc.model.predictive.mixture import CountMixture
from dsgmcmc.types import Array, Float64


def log_zero(rate: Array, dispersion: Array) -> Float64:
    """Log probability of a count of 0 before any truncation; the dispersion may be infinite."""
    poisson = np.isinf(dispersion)
    size = np.where(poisson, 1.0, dispersion)
    log_probability = -size * np.log1p(rate / size)
    return np.asarray(np.where(poisson, -np.asarray(rate, np.float64), log_probability))


def moments_above_zero(rate: Array, dispersion: Array) -> tuple[Float64, Float64]:
    """Mean and variance of counts above 0, elementwise."""
    m = np.maximum(np.asarray(rate, np.float64), 1e-9)
    mean = m / -np.expm1(log_zero(m, dispersion))
    variance = np.maximum(mean * (1 + m + m / dispersion - mean), 0.0)
    return mean, variance


def rate_above_zero(mean: Array, dispersion: Array) -> Float64:
    """Rates that give counts above 0 these means, elementwise.

    Newton's method approaches log m from above: the mean of counts above 0 is a convex function of
    log m, with slope variance / (1 + m / r).
    """
    mean = np.maximum(np.asarray(mean, np.float64), 1 + 1e-6)
    rate = mean + 0.0 * dispersion
    for _ in range(60):
        mean_at_rate, variance = moments_above_zero(rate, dispersion)
        slope = np.maximum(variance / (1 + rate / dispersion), 1e-300)
        step = (mean_at_rate - mean) / slope
        rate = rate * np.exp(-np.clip(step, -2, 2))
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    return rate


def matched_above_zero(mean: Float64, variance: Float64) -> tuple[Float64, Float64]:
    """Rates and dispersions that give counts above 0 these means and variances, elementwise.

    The truncation does not change a := E[x (x - 1)] / E[x] = m (1 + 1 / r). So r = m / (a - m), and
    m in (0, a) is chosen so that the mean is right, or as close as possible if no such distribution
    has this mean and variance.
    """
    mean = np.maximum(mean, 1 + 1e-6)
    a = np.maximum((variance + mean**2) / mean - 1, 1e-6)
    low = np.full_like(a, -14.0)  # bounds on log(m / a)
    high = np.zeros_like(a)
    for _ in range(45):
        middle = (low + high) / 2
        rate = a * np.exp(middle)
        dispersion = rate / np.maximum(a - rate, 1e-12 * a)
        mean_at_rate, _ = moments_above_zero(rate, dispersion)
        too_small = mean_at_rate < mean
        low = np.where(too_small, middle, low)
        high = np.where(too_small, high, middle)
    rate = a * np.minimum(np.exp(high), 1 - 1e-6)
    return rate, rate / (a - rate)


def count_information(mean: Array, dispersion: float, truncated: bool) -> Float64:
    """Fisher information of a count on log m, elementwise."""
    if not truncated:
        return np.asarray(mean / (1 + mean / dispersion), np.float64)
    rate = rate_above_zero(mean, np.array(dispersion))
    _, variance = moments_above_zero(rate, np.array(dispersion))
    return np.asarray(variance / np.square(1 + rate / dispersion), np.float64)


def _untruncated_tail(
    count: Float64,
    rate: Array,
    dispersion: Array,
    *,
    poisson_tail: Callable[..., Array],
    beta_tail: Callable[..., Array],
) -> Float64:
    """Probability, before any truncation, of one side of `count`: up to it, or above it.

    The incomplete gamma and beta functions, `poisson_tail` and `beta_tail`, choose the side.
    """
    k = np.clip(count, 0, 1e15) + 1.0
    poisson = np.isinf(dispersion)
    size = np.where(poisson, 1.0, dispersion)
    negative_binomial = beta_tail(size, k, size / (size + rate))
    return np.asarray(np.where(poisson, poisson_tail(k, rate), negative_binomial))


class NegativeBinomialLaw:
    """Negative binomial distributions; their `shape` is the rate, the dispersion, and `least`.

    `least` is 0, or 1 if a count of 0 cannot occur.
    """

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability of a count of at most `x`."""
        from scipy.special import betainc, gammaincc

        count, rate, dispersion, least = np.broadcast_arrays(np.floor(x), *shape)
        probability = _untruncated_tail(
            count, rate, dispersion, poisson_tail=gammaincc, beta_tail=betainc
        )
        if np.any(least > 0):
            above_zero = 1 - NegativeBinomialLaw.above(x, *shape)
            probability = np.where(least > 0, above_zero, probability)
        probability = np.where(count >= least, probability, 0.0)
        probability = np.where(np.isposinf(count), 1.0, probability)
        return np.clip(probability, 0.0, 1.0)

    @staticmethod
    def above(x: Array, *shape: Array | float) -> Float64:
        """Probability of a count of more than `x`, accurate also where it is tiny."""
        from scipy.special import betaincc, gammainc

        count, rate, dispersion, least = np.broadcast_arrays(np.floor(x), *shape)
        probability = _untruncated_tail(
            count, rate, dispersion, poisson_tail=gammainc, beta_tail=betaincc
        )
        if np.any(least > 0):
            above_zero = probability / -np.expm1(log_zero(rate, dispersion))
            probability = np.where(least > 0, above_zero, probability)
        return np.where(count >= least, np.clip(probability, 0.0, 1.0), 1.0)

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log probability of counts."""
        from scipy.special import gammaln, xlogy

        k, m, r, least = np.broadcast_arrays(x, *shape)
        poisson = np.isinf(r)
        size = np.where(poisson, 1.0, r)
        log_p: Array = (
            gammaln(k + size) - gammaln(size) + xlogy(k, m / (size + m)) - size * np.log1p(m / size)
        )
        log_p = np.where(poisson, xlogy(k, m) - m, log_p) - gammaln(k + 1.0)
        if np.any(least > 0):
            log_p = np.where(least > 0, log_p - np.log(-np.expm1(log_zero(m, r))), log_p)
            log_p = np.where(k >= least, log_p, -np.inf)
        return log_p


class NegativeBinomialMixture(CountMixture):
    """Mixtures of negative binomial distributions."""

    @override
    def at_least(self, bound: float) -> Float64:
        # from the upper tail, where it loses no digits
        above = NegativeBinomialLaw.above(np.full((1, 1), np.ceil(bound) - 1), *self.shape)
        return np.asarray(above @ self.weights)

    @override
    def log_probability(self, x: Array) -> Float64:
        """Log probability of the nearest level; minus infinity for a 0 that cannot occur."""
        least = self.shape[2].max(axis=1)
        return np.where(np.asarray(x) < least, -np.inf, super().log_probability(x))
