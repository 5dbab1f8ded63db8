"""Scores of predictions and their uncertainty on held-out ratings.

Pure functions of ratings and their predictions: numbers, or predictive distributions
(`dsgmcmc.model.predictive.base`), which are already averaged over draws.

Ordinal ratings and counts are discrete. Their PIT is not one number but uniform between F(x-) and F(x), the
distribution function below and at the rating. Its histogram and the coverage of central intervals are expectations over
that [Czado 2009]: the average of a randomised PIT, without its noise and its seed.

Every function raises ``ValueError`` if there is no rating, or a variance is not positive.

[Czado 2009] Predictive model assessment for count data, Biometrics 65.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.types import Float64

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Nominal levels of the predictive intervals that a run reports."""

BINS = 20
"""Bins of the probability integral transform."""

Pit = tuple[Float64, Float64]


def rmse(values: ArrayLike, predictions: ArrayLike) -> float:
    """Root of the mean squared error, in units of the ratings.

    Parameters
    ----------
    values, predictions : (n,) float
        Held-out ratings and their predictions.
    """
    return float(np.sqrt(np.mean(_errors(values, predictions) ** 2)))


def mae(values: ArrayLike, predictions: ArrayLike) -> float:
    """Mean absolute error, in units of the ratings; parameters as in `rmse`."""
    return float(np.mean(np.abs(_errors(values, predictions))))


def pit(predictive: Predictive, values: ArrayLike) -> Pit:
    """Probability integral transforms of held-out ratings: F(x-) and F(x), (n,) float64 each."""
    x: Float64 = np.asarray(values, np.float64)
    _errors(x, predictive.mean)
    if not np.all(predictive.sd > 0):
        raise ValueError("a predictive variance is not positive")
    return predictive.pit(x)


def inside(transforms: Pit, low: float, high: float) -> Float64:
    """Fraction of each rating's PIT interval between two numbers, (n,) float64; of a point 1 if it is there, or 0."""
    below, up_to = transforms
    width = up_to - below
    common = np.maximum(np.minimum(up_to, high) - np.maximum(below, low), 0.0)
    there = (low <= up_to) & ((up_to < high) | (high == 1))
    share: Float64 = np.where(width > 0, common / np.where(width > 0, width, 1.0), there)
    return share


def coverage(transforms: Pit, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Fraction of ratings inside their central predictive intervals, by nominal level between 0 and 1.

    For calibrated intervals the two are equal; `transforms` are those of `pit`.
    """
    return {level: float(inside(transforms, (1 - level) / 2, (1 + level) / 2).mean()) for level in levels}


def pit_counts(transforms: Pit) -> list[float]:
    """Counts of the probability integral transform in `BINS` equal bins: flat if calibrated."""
    edges = np.linspace(0, 1, BINS + 1)
    return [float(inside(transforms, low, high).sum()) for low, high in pairwise(edges.tolist())]


def _errors(values: ArrayLike, predictions: ArrayLike) -> Float64:
    """Prediction minus rating in float64, to keep the precision of sums."""
    x: Float64 = np.asarray(values, np.float64)
    p: Float64 = np.asarray(predictions, np.float64)
    if x.shape != p.shape or x.size == 0:
        raise ValueError(f"expected one prediction per rating, and at least one: {p.shape} for {x.shape}")
    return p - x
