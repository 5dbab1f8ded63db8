"""Mixtures of distributions of counts: whole numbers from 0 or from 1 on."""

from __future__ import annotations

import numpy as np

from dsgmcmc.model.predictive.mixture import Mixture
from dsgmcmc.types import Array, Float64


class CountMixture(Mixture):
    """Mixtures of distributions of counts, with the parameters of `Mixture`."""

    whole = True


class NegativeBinomialLaw:
    """Negative binomial distributions, given expected values m and dispersions r before any truncation.

    Its variance is then m + m^2 / r; r may be infinite, for the Poisson law. `least` is 0, or 1 where a count of 0
    cannot occur: then probabilities are those given a count above 0.
    """

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability of a count of at most `x`."""
        from scipy.special import betainc, betaincc, gammainc, gammaincc

        whole, m, r, least = np.broadcast_arrays(np.floor(x), *shape)
        k, poisson = np.clip(whole, 0, 1e15) + 1.0, np.isinf(r)
        size = np.where(poisson, 1.0, r)
        share = size / (size + m)
        probability = np.where(poisson, gammaincc(k, m), betainc(size, k, share))
        if np.any(least > 0):
            above = np.where(poisson, gammainc(k, m), betaincc(size, k, share))
            probability = np.where(least > 0, 1 - above / -np.expm1(log_zero(m, r)), probability)
        probability = np.where(np.isposinf(whole), 1.0, np.where(whole >= least, probability, 0.0))
        return np.clip(probability, 0.0, 1.0)

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log probability of counts."""
        from scipy.special import gammaln, xlogy

        k, m, r, least = np.broadcast_arrays(x, *shape)
        poisson = np.isinf(r)
        size = np.where(poisson, 1.0, r)
        log_p: Array = gammaln(k + size) - gammaln(size) + xlogy(k, m / (size + m)) - size * np.log1p(m / size)
        log_p = np.where(poisson, xlogy(k, m) - m, log_p) - gammaln(k + 1.0)
        if np.any(least > 0):
            log_p = np.where(least > 0, log_p - np.log(-np.expm1(log_zero(m, r))), log_p)
            log_p = np.where(k >= least, log_p, -np.inf)
        return log_p


def log_zero(mean: Array, dispersion: Array) -> Float64:
    """Log probability of a count of 0, given expected values and dispersions (which may be infinite)."""
    poisson = np.isinf(dispersion)
    size = np.where(poisson, 1.0, dispersion)
    log_zero: Float64 = np.where(poisson, -np.asarray(mean, np.float64), -size * np.log1p(mean / size))
    return log_zero


def moments_above_zero(rate: Array, dispersion: Array) -> tuple[Float64, Float64]:
    """Mean and variance of counts above 0, given expected values and dispersions before the truncation."""
    m = np.maximum(np.asarray(rate, np.float64), 1e-9)
    mean = m / -np.expm1(log_zero(m, dispersion))
    return mean, np.maximum(mean * (1 + m + m / dispersion - mean), 0.0)


def rate_above_zero(mean: Array, dispersion: Array) -> Float64:
    """Expected values before the truncation, given those of counts above 0 and the dispersions.

    By Newton's method in their logarithms, from above: the mean is a convex function of these, of the slope
    variance / (1 + m / r).
    """
    mean = np.maximum(np.asarray(mean, np.float64), 1 + 1e-6)
    rate = mean + 0.0 * dispersion
    for _ in range(60):
        mean_there, variance_there = moments_above_zero(rate, dispersion)
        step = (mean_there - mean) / np.maximum(variance_there / (1 + rate / dispersion), 1e-300)
        rate = rate * np.exp(-np.clip(step, -2, 2))
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    return rate


def matched_above_zero(mean: Float64, variance: Float64) -> tuple[Float64, Float64]:
    """Expected values and dispersions before the truncation that give counts above 0 this mean and variance.

    E[x (x - 1)] / E[x] = m (1 + 1 / r) =: a is not changed by the truncation. So r = m / (a - m), and m in (0, a) is
    where the mean is right; nearest to it if the distribution cannot have that variance.
    """
    mean = np.maximum(mean, 1 + 1e-6)
    a = np.maximum((variance + mean**2) / mean - 1, 1e-6)

    def too_small(rate: Float64) -> Array:
        return moments_above_zero(rate, rate / np.maximum(a - rate, 1e-12 * a))[0] < mean

    low, high = np.full_like(a, -14.0), np.zeros_like(a)  # of the logarithm of m / a
    for _ in range(45):
        middle = (low + high) / 2
        up = too_small(a * np.exp(middle))
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    rate = a * np.minimum(np.exp(high), 1 - 1e-6)
    return rate, rate / (a - rate)
