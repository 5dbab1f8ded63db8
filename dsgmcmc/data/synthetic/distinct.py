"""Distinct items for many users, drawn by weight without replacement."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.types import Float64, Int32, Int64

_SOURCE = '''\
{decorator}
def draw(seed, first_user, counts, order, stride, cdf, guide, out):
    """Items of consecutive users; a repeated item is drawn again."""
    n_items = cdf.shape[0]
    seen = np.zeros(n_items, int32)
    state = seed
    place = 0
    for i in range(counts.shape[0]):
        stop = place + counts[i]
        for k in range(first_user + i, n_items, stride):
            out[place] = order[k]
            seen[order[k]] = i + 1
            place += 1
        while place < stop:
            state += uint64(0x9E3779B97F4A7C15)
            x = state
            x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
            x ^= x >> uint64(31)
            u = float64(x >> uint64(11)) * 2.0**-53
            j = guide[int64(u * n_items)]
            while cdf[j] <= u:
                j += 1
            if seen[j] != i + 1:
                seen[j] = i + 1
                out[place] = j
                place += 1
'''

DrawCounts = Callable[
    [
        np.uint64,
        int,
        Int64,
        Int32,
        int,
        Float64,
        Int32,
        Int32,
    ],
    None,
]


@functools.cache
def distinct_kernel() -> DrawCounts:
    """Compile the drawing of distinct items.

    Returns
    -------
    draw : callable
        ``draw(seed, first_user, counts, order, stride, cdf, guide, out)``. User ``first_user + i`` gets
        ``counts[i]`` distinct items, written one user after the other into `out` (int32): first the items
        ``order[first_user + i :: stride]`` (no more than its count), then items drawn with the probabilities
        of `cdf` (J,) float64, whose last element is 1, until enough are new. `guide` (J,) int32 holds the
        first index at which the cdf exceeds k / J [Chen & Asau 1974], so that a draw takes two steps on
        average. Uniforms are SplitMix64 [Steele 2014] from `seed` (uint64).
    """
    signature = "void(uint64, int64, int64[::1], int32[::1], int64, float64[::1], int32[::1], int32[::1])"
    module = jit.compile_source("distinct", _SOURCE.format(decorator=jit.decorator(signature, "False")))
    draw: DrawCounts = module.draw
    return draw
