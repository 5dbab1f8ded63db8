"""Distributions over ordered levels: quantiles and scores of rows of probabilities (q, R)."""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Array, Float64, Int64

#: A level is not less probable than a kernel's float32 can say.
SMALLEST = 1e-30


def nearest_level(x: Array, values: Float64) -> Int64:
    """Number of the level next to each rating, (q,) int64; of two as near, the upper one."""
    found: Int64 = np.searchsorted((values[1:] + values[:-1]) / 2, np.asarray(x, np.float64), side="right")
    return found


def log_probability(p: Array, level: Int64) -> Float64:
    """Log probability of the level that each rating has, (q,) float64."""
    own = np.take_along_axis(p, level[:, None], axis=1)[:, 0]
    found: Float64 = np.log(np.maximum(own, SMALLEST), dtype=np.float64)
    return found


def level_quantile(p: Array, values: Float64, probability: float) -> Float64:
    """Smallest level up to which `probability` is reached, (q,) float64."""
    below = np.cumsum(p, axis=1, dtype=np.float64)[:, :-1]
    found: Float64 = values[(below < probability - 1e-6).sum(axis=1)]
    return found
