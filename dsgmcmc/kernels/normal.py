"""The normal distribution function, from a table.

SciPy's function takes longer to import than a prediction takes, and twice as long to compute.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgmcmc.kernels import jit
from dsgmcmc.types import Array, Float64

EXTENT, PER_UNIT = 9, 256  # linear interpolation errs by less than 5e-7

_SOURCE = '''\
{decorator}
def ndtr(x, table, density, out):
    """Taylor series about the nearest point of the table; beyond the table `erfc`."""
    for q in range(x.shape[0]):
        t = x[q]
        if abs(t) < {extent}:
            k = int64((t + {extent}) * {per_unit} + 0.5)
            at = k * {step} - {extent}
            d = t - at
            u = at * d
            v = d * d
            third = (u * u - v) * {sixth}
            fourth = (3 * v - u * u) * u * {fourth}
            out[q] = table[k] + density[k] * d * (1 - 0.5 * u + third + fourth)
        else:
            out[q] = 0.5 * math.erfc(t * {root})
'''


def ndtr(x: Array) -> Float64:
    """Compute the standard normal distribution function elementwise, in float64, with a relative error below 2e-11."""
    points = np.ascontiguousarray(x, np.float64)
    probability = np.empty_like(points)
    _kernel()(points.reshape(-1), normal_table(), _density(), probability.reshape(-1))
    return probability


@functools.cache
def normal_table() -> NDArray[np.float64]:
    """The standard normal distribution function on [-9, 9], (4609,) float64."""
    return np.array([math.erfc(-point / math.sqrt(2)) / 2 for point in _points().tolist()])


@functools.cache
def _density() -> NDArray[np.float64]:
    density: NDArray[np.float64] = np.exp(-(_points() ** 2) / 2) / math.sqrt(2 * math.pi)
    return density


def _points() -> NDArray[np.float64]:
    return np.linspace(-EXTENT, EXTENT, 2 * EXTENT * PER_UNIT + 1)


@functools.cache
def _kernel() -> Any:
    source = _SOURCE.format(
        decorator=jit.decorator("void(float64[::1], float64[::1], float64[::1], float64[::1])"),
        extent=EXTENT,
        per_unit=PER_UNIT,
        step=1 / PER_UNIT,
        sixth=1 / 6,
        fourth=1 / 24,
        root=-1 / math.sqrt(2),
    )
    return jit.compile_source("normal", source).ndtr
