"""The resolution of ratings: the step to which their values were recorded.

A step is 1, 0.5, 0.25, 0.1, 0.05, 0.025, 0.01, ...: the largest of which nearly all values are
multiples, if many values recur. Zeros are multiples of every step, so they do not count. Whole
numbers have step 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsgmcmc.types import Float32, Mask

#: Number of training ratings, the first in the file, whose rows are in random order, that show it.
SAMPLE = 250_000
#: Least share of the values that are multiples of the step, and of those that occur twice.
LEAST_MULTIPLES = 0.8
LEAST_RECURRING = 0.2
#: Smallest step, in distances between neighbouring float32 at the median of the values: smaller
#: ones would have too many values as multiples by rounding alone.
LEAST_SPACINGS = 8


def find_resolution(values: Float32) -> float | None:
    """Return the step to which values, (n,) float32, were recorded; None without one."""
    values = values[values != 0]
    if not len(values):
        return None
    if not np.any(values % 1):
        return 1.0
    _, counts = np.unique(values, return_counts=True)
    if counts[counts > 1].sum() < LEAST_RECURRING * len(values):
        return None
    for step in _steps(values):
        if np.count_nonzero(_are_multiples(values, step)) >= LEAST_MULTIPLES * len(values):
            return step
    return None


def _steps(values: Float32) -> Iterator[float]:
    """Yield 1, 0.5, 0.25, 0.1, ..., down to the smallest step that float32 can tell from none."""
    smallest = LEAST_SPACINGS * float(np.spacing(np.median(np.abs(values))))
    decimals = 0
    while 10.0**-decimals >= smallest:
        yield 10.0**-decimals
        yield 5 * 10.0 ** -(decimals + 1)
        quarter = 10.0**-decimals / 4
        if quarter >= smallest:
            yield quarter
        decimals += 1


def _are_multiples(values: Float32, step: float) -> Mask:
    """Whether values are the float32 numbers nearest to multiples of a step, (n,)."""
    nearest = np.rint(values.astype(np.float64) / step) * step
    return np.asarray(nearest.astype(np.float32) == values)
