"""Alias tables: draws from a fixed law of N outcomes, each in constant time."""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Float64, Int64


def alias_table(weights: Float64) -> tuple[Float64, Int64]:
    """Table to draw i with probability w_i / sum w in constant time [Vose 1991].

    Parameters
    ----------
    weights : (N,) float64
        Not negative, and not all zero.

    Returns
    -------
    chance, alias : (N,) float64 and int64
        Draw a place evenly; stay there with its chance, else go to its alias.
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
