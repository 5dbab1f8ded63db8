"""How good predictions and their uncertainty are on held-out ratings.

Pure functions of float arrays with one element per held-out rating: the rating, the posterior mean of its
predictor, and the variance of its predictive distribution (posterior variance of the predictor plus noise).
The predictive distribution is taken to be normal. Weighted averages over draws are formed before: nothing
here knows of draws.

Every function raises ``ValueError`` when there is no rating or when a variance is not positive, for then
the question has no answer; a caller without held-out ratings reports none.

Sources: [Gneiting & Raftery 2007] Strictly proper scoring rules, prediction, and estimation, JASA 102.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dsgmcmc.model.likelihoods.base import Likelihood
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.types import Float64

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Nominal levels of the predictive intervals that a run reports."""

Law = type[Likelihood]


def rmse(values: ArrayLike, predictions: ArrayLike) -> float:
    """Root of the mean squared error, in units of the ratings.

    Parameters
    ----------
    values, predictions : (n,) float
        Held-out ratings and what was predicted for them.
    """
    return float(np.sqrt(np.mean(_errors(values, predictions) ** 2)))


def mae(values: ArrayLike, predictions: ArrayLike) -> float:
    """Mean absolute error, in units of the ratings; parameters as in `rmse`."""
    return float(np.mean(np.abs(_errors(values, predictions))))


def coverage(
    values: ArrayLike, mean: ArrayLike, variance: ArrayLike, law: Law = Gaussian, levels: Sequence[float] = LEVELS
) -> dict[float, float]:
    """Share of ratings inside their central predictive intervals.

    Parameters
    ----------
    values, mean, variance : (n,) float
        Held-out ratings, and mean and variance of their predictive distributions.
    law : type of Likelihood
        What the predictive distributions are.
    levels : sequence of float
        Nominal levels between 0 and 1.

    Returns
    -------
    dict
        From nominal level to observed share; calibrated intervals have the two equal.
    """
    x, m, v = _checked(values, mean, variance)
    ends = {level: [law.quantile((1 + sign * level) / 2, m, v) for sign in (-1, 1)] for level in levels}
    return {level: float(np.mean((low <= x) & (x <= high))) for level, (low, high) in ends.items()}


def log_predictive_density(values: ArrayLike, mean: ArrayLike, variance: ArrayLike, law: Law = Gaussian) -> float:
    """Mean log density of the ratings, in nats a rating; parameters as in `coverage`. Larger is better."""
    return float(np.mean(law.log_density(*_checked(values, mean, variance))))


def pit(values: ArrayLike, mean: ArrayLike, variance: ArrayLike, law: Law = Gaussian, bins: int = 20) -> list[int]:
    """Counts of the probability integral transform in `bins` equal bins: flat if calibrated; as in `coverage`."""
    counts: list[int] = np.histogram(law.cdf(*_checked(values, mean, variance)), bins, (0, 1))[0].tolist()
    return counts


def crps(values: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> float:
    """Mean continuous ranked probability score of the normal predictive distributions.

    With z = (x - mean) / sd it is sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) [Gneiting & Raftery 2007,
    sec. 4.2, sign reversed]: in units of the ratings, smaller is better, the absolute error as sd -> 0.
    Parameters as in `coverage`.
    """
    from scipy.special import ndtr

    x, m, v = _checked(values, mean, variance)
    sd = np.sqrt(v)
    z = (x - m) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return float(np.mean(sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))))


def _errors(values: ArrayLike, predictions: ArrayLike) -> Float64:
    """Prediction minus rating in float64, so that float32 inputs lose nothing in the sums."""
    x: Float64 = np.asarray(values, np.float64)
    p: Float64 = np.asarray(predictions, np.float64)
    if x.shape != p.shape or x.size == 0:
        raise ValueError(f"expected one prediction a rating, and a rating: {p.shape} for {x.shape}")
    return p - x


def _checked(values: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> tuple[Float64, Float64, Float64]:
    """Ratings, means and variances in float64, if the question has an answer."""
    _errors(values, mean)
    x, m, v = (np.asarray(array, np.float64) for array in (values, mean, variance))
    if not np.all(v > 0):
        raise ValueError("a predictive variance is not positive")
    return x, m, v
