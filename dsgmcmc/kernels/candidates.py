"""Items that may be among the best of a user, given bounds of their scores."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Array, Mask

_SOURCE = '''\
@kernel("void({bound}[:, ::1], {bound}[:, ::1], {added}[:, ::1], float64[::1], boolean[:, ::1])")
def choose(low, high, added, best, chosen):
    """Mark the items of every user; `best` is a heap whose first number is the smallest one."""
    n = best.shape[0]
    for user in range(low.shape[0]):
        for k in range(n):
            best[k] = -np.inf
        for item in range(low.shape[1]):
            bound = low[user, item] + added[user, item]
            if bound > best[0]:
                parent = 0
                child = 1
                while child < n:
                    if child + 1 < n and best[child + 1] < best[child]:
                        child += 1
                    if bound <= best[child]:
                        break
                    best[parent] = best[child]
                    parent = child
                    child = 2 * child + 1
                best[parent] = bound
        least = best[0]
        for item in range(low.shape[1]):
            allowed = added[user, item] > -np.inf
            chosen[user, item] = allowed and high[user, item] + added[user, item] >= least
'''


def find_candidates(low: Array, high: Array, added: Array, top: int) -> Mask:
    """Return which items may be among the best `top` of every user, (users, items) bool.

    Parameters
    ----------
    low, high : (users, items) float32 or float64
        Bounds of the scores.
    added : (users, items) float32 or float64
        Numbers that are added to the scores; items of minus infinity are left out.
    top : int
        At least 1.
    """
    chosen = np.empty(low.shape, bool)
    _kernel(low.dtype.name, added.dtype.name)(low, high, added, np.empty(top), chosen)
    return chosen


@functools.cache
def _kernel(bound: str, added: str) -> Callable[..., None]:
    source = _SOURCE.format(bound=bound, added=added)
    kernel: Callable[..., None] = jit.native_kernels("candidates", source)["choose"]
    return kernel
