"""How good predictions and their uncertainty are on held-out ratings.

Pure functions of ratings and of what was predicted of them: numbers, or predictive distributions
(`dsgmcmc.model.predictive.base`). Weighted averages over draws are formed before: nothing here knows of draws.

Ratings of levels, and counts, have probabilities. Their PIT is not one number but uniform between F(x-) and F(x), the
distribution function below and at the rating; its histogram and the shares inside central intervals are taken in
expectation over that [Czado 2009], which is what a randomised PIT would give on the average, without its noise and its
seed.

Every function raises ``ValueError`` when there is no rating or when a variance is not positive, for then
the question has no answer; a caller without held-out ratings reports none.

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
"""Of the probability integral transform."""

Pit = tuple[Float64, Float64]


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


def pit(found: Predictive, values: ArrayLike) -> Pit:
    """Probability integral transforms of held-out ratings: F(x-) and F(x), (n,) float64 each."""
    x: Float64 = np.asarray(values, np.float64)
    _errors(x, found.mean)
    if not np.all(found.sd > 0):
        raise ValueError("a predictive variance is not positive")
    return found.pit(x)


def inside(transforms: Pit, low: float, high: float) -> Float64:
    """Part of each rating's PIT between two numbers, (n,) float64; of one that is no interval whether it is there."""
    below, up_to = transforms
    width = up_to - below
    common = np.maximum(np.minimum(up_to, high) - np.maximum(below, low), 0.0)
    there = (low <= up_to) & ((up_to < high) | (high == 1))
    found: Float64 = np.where(width > 0, common / np.where(width > 0, width, 1.0), there)
    return found


def coverage(transforms: Pit, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Share of ratings inside their central predictive intervals, by their nominal level between 0 and 1.

    Calibrated intervals have the two equal; `transforms` as of `pit`.
    """
    return {level: float(inside(transforms, (1 - level) / 2, (1 + level) / 2).mean()) for level in levels}


def pit_counts(transforms: Pit) -> list[float]:
    """Counts of the probability integral transform in `BINS` equal bins: flat if calibrated."""
    edges = np.linspace(0, 1, BINS + 1)
    return [float(inside(transforms, low, high).sum()) for low, high in pairwise(edges.tolist())]


def _errors(values: ArrayLike, predictions: ArrayLike) -> Float64:
    """Prediction minus rating in float64, so that float32 inputs lose nothing in the sums."""
    x: Float64 = np.asarray(values, np.float64)
    p: Float64 = np.asarray(predictions, np.float64)
    if x.shape != p.shape or x.size == 0:
        raise ValueError(f"expected one prediction a rating, and a rating: {p.shape} for {x.shape}")
    return p - x
