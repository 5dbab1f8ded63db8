"""Alias tables: draws from a fixed distribution over N outcomes, in constant time each."""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Float64, Int64


def alias_table(weights: Float64) -> tuple[Float64, Int64]:
    """Make the table for drawing i with probability w_i / sum w [Vose 1991].

    Parameters
    ----------
    weights : (N,) float64
        Not negative, not all zero.

    Returns
    -------
    chance, alias : (N,) float64 and int64
        Draw i uniformly; keep it with probability chance[i], and otherwise take alias[i].
    """
    n = len(weights)
    chance, alias = weights * (n / weights.sum()), np.arange(n)
    small, large = list(np.flatnonzero(chance < 1)), list(np.flatnonzero(chance >= 1))
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        chance[high] -= 1 - chance[low]
        if chance[high] < 1:
            small.append(large.pop())
    chance[small + large] = 1  # but for rounding
    return chance, alias
