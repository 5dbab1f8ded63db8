"""The normal distribution function, from a table, and summaries of mixtures of normals.

SciPy's function takes longer to import than a prediction, and twice as long to compute.

Quantiles of mixtures are found by Newton's method, to 2e-6 in probability, and stay between the smallest and the
largest quantile of the components.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgmcmc.kernels import jit
from dsgmcmc.types import Array, Float32, Float64

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


_SUMMARY = '''\
{helper}
def quantile(c, inverse, w, n, p, z, mean, sd, table):
    """Quantile p of sum_d w[d] N(c[d], 1 / inverse[d]^2), z being that of the standard normal."""
    low = c[0] + z / inverse[0]
    high = low
    for d in range(1, n):
        at = c[d] + z / inverse[d]
        low = min(low, at)
        high = max(high, at)
    x = min(max(mean + z * sd, low), high)
    for _ in range(60):
        total = 0.0
        slope = 0.0
        for d in range(n):
            t = min(max((x - c[d]) * inverse[d], -{extent}.0), {extent} - 1e-6)
            place = (t + {extent}.0) * {per_unit}.0
            k = int64(place)
            rise = table[k + 1] - table[k]
            total += w[d] * (table[k] + (place - k) * rise)
            slope += w[d] * rise * inverse[d]
        error = total - p
        if abs(error) < 2e-6:
            break
        if error > 0:
            high = x
        else:
            low = x
        step = error / max(slope * {per_unit}.0, 1e-300)
        x = x - step
        if not (low <= x <= high):
            x = 0.5 * (low + high)
    return x


{helper}
def empirical(c, w, n, p):
    """Quantile p of n weighted numbers, sorted here: each stands in the middle of its weight."""
    for a in range(1, n):
        x = c[a]
        v = w[a]
        b = a
        while b > 0 and c[b - 1] > x:
            c[b] = c[b - 1]
            w[b] = w[b - 1]
            b -= 1
        c[b] = x
        w[b] = v
    before = 0.5 * w[0]
    if p <= before:
        return c[0]
    for d in range(1, n):
        middle = before + 0.5 * (w[d - 1] + w[d])
        if p <= middle:
            return c[d - 1] + (c[d] - c[d - 1]) * (p - before) / (middle - before)
        before = middle
    return c[n - 1]


{decorator}
def summarise(centre, variance, weights, p_low, p_high, z_low, z_high, table, scratch, means, sds, lows, highs):
    """Mean, sd and the quantiles p_low and p_high of every cell's mixture; weights sum to 1."""
    n = weights.shape[0]
    c = scratch[0]
    w = scratch[1]
    inverse = scratch[2]
    for q in range(centre.shape[0]):
        mean = 0.0
        for d in range(n):
            c[d] = centre[q, d]
            w[d] = weights[d]
            mean += w[d] * c[d]
        total = 0.0
        narrow = False
        for d in range(n):
            v = float64(variance[q, d])
            total += w[d] * (v + (c[d] - mean) ** 2)
            narrow = narrow or not v > 0
            inverse[d] = 1 / math.sqrt(v)
        sd = math.sqrt(total)
        means[q] = mean
        sds[q] = sd
        if narrow:
            lows[q] = empirical(c, w, n, p_low)
            highs[q] = empirical(c, w, n, p_high)
        else:
            lows[q] = quantile(c, inverse, w, n, p_low, z_low, mean, sd, table)
            highs[q] = quantile(c, inverse, w, n, p_high, z_high, mean, sd, table)
'''


def summarise(
    centre: Float32,
    variance: Float32,
    weights: NDArray[np.float64],
    levels: tuple[float, float],
    z: tuple[float, float],
) -> tuple[Float32, Float32, Float32, Float32]:
    """Compute the mean, the sd and two quantiles of mixtures of normals.

    Parameters
    ----------
    centre, variance : (q, draws) float32
        Components of each mixture. If a variance is 0, quantiles are those of the weighted centres.
    weights : (draws,) float64
        Weights of the components, whose sum is 1.
    levels, z : pair of float
        Probabilities of the quantiles, and the quantiles of the standard normal distribution.

    Returns
    -------
    mean, sd, low, high : (q,) float32
    """
    mean, sd, low, high = (np.empty(len(centre), np.float32) for _ in range(4))
    scratch = np.empty((3, len(weights)))  # not made in the kernel, which would then load as slowly as Numba
    _summary_module().summarise(centre, variance, weights, *levels, *z, normal_table(), scratch, mean, sd, low, high)
    return mean, sd, low, high


@functools.cache
def _summary_module() -> Any:
    signature = (
        "void(float32[:, ::1], float32[:, ::1], float64[::1], float64, float64, float64, float64, float64[::1], "
        "float64[:, ::1], float32[::1], float32[::1], float32[::1], float32[::1])"
    )
    source = _SUMMARY.format(helper=jit.helper(), decorator=jit.decorator(signature), extent=EXTENT, per_unit=PER_UNIT)
    return jit.compile_source("quantiles", source)
