"""Predictions for pairs, the normal distribution function, and summaries of normal mixtures.

SciPy's distribution function is not used: its import takes longer than a prediction, and it runs at
half the speed.

Quantiles of mixtures are found by Newton's method, to 2e-6 in probability, and stay between the
smallest and the largest quantile of the components.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Array, Float32, Float64, Int64


class PairedRows(NamedTuple):
    """Distributions of rows on one side of some pairs.

    Attributes
    ----------
    of_pair : (p,) int64
        Positions of the pairs' rows among the distinct rows.
    mean : (m, D) float64
        Means of the distinct rows; the last column is the bias, if there are biases.
    spread_of : (m,) int64
        Covariance of every distinct row; -1 for a row that is certain.
    covariance : (c, D, D) float64
    """

    of_pair: Int64
    mean: Float64
    spread_of: Int64
    covariance: Float64


_PAIRS = '''\
@kernel("void(int32[::1], int32[::1], float32[:, ::1], float32[:, ::1], float32[::1])")
def pairs(rows, cols, theta_w, theta_h, out):
    """Dot products of rank {K}, and biases."""
    for q in range(rows.shape[0]):
        i = rows[q]
        j = cols[q]
        dot = float32(0)
        for k in range({K}):
            dot += theta_w[i, k] * theta_h[j, k]
        out[q] = dot{biases}
'''

_CELLS = '''\
@kernel("void(int32[::1], int32[::1], float32[:, :, ::1], float32[:, :, ::1], "
        "float32[:, ::1], float32[:, ::1], float64[::1], int64, "
        "float32[:, ::1], float32[:, ::1])")
def cells(rows, cols, theta_w, theta_h, inverse_w, inverse_h, noise, first, centre, variance):
    """Predictors of rank {K} and noise variances at several draws."""
    for d in range(theta_w.shape[0]):
        for q in range(rows.shape[0]):
            i = rows[q]
            j = cols[q]
            dot = float32(0)
            for k in range({K}):
                dot += theta_w[d, i, k] * theta_h[d, j, k]
            centre[q, first + d] = dot{biases}
            variance[q, first + d] = float32(noise[d]) * inverse_w[d, i] * inverse_h[d, j]
'''


_JOIN = '''\
@kernel("void(int64[::1], int64[::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], "
        "float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1], int64[::1], int64[::1], int64, "
        "float64[::1], float64[::1])")
def join(rows, cols, m, n, m_across, n_across, S, T, s_of, t_of, K, mean, variance):
    """Means m . n and variances tr(S T) + n' S n + m' T m of dot products."""
    D = S.shape[1]
    for p in range(rows.shape[0]):
        i = rows[p]
        j = cols[p]
        s = s_of[i]
        t = t_of[j]
        dot = 0.0
        for k in range(K):
            dot += m[i, k] * n[j, k]
        mean[p] = dot
        total = 0.0
        if s >= 0 and t >= 0:
            for k in range(K):
                for l in range(K):
                    total += S[s, k, l] * T[t, k, l]
        if s >= 0:
            for k in range(D):
                part = 0.0
                for l in range(D):
                    part += S[s, k, l] * n_across[j, l]
                total += part * n_across[j, k]
        if t >= 0:
            for k in range(D):
                part = 0.0
                for l in range(D):
                    part += T[t, k, l] * m_across[i, l]
                total += part * m_across[i, k]
        variance[p] = total
'''


@functools.cache
def predict_kernel(K: int, biases: bool) -> Callable[..., None]:
    """Compile the prediction for pairs of a row and a column, for one rank.

    Parameters
    ----------
    K : int
        Rank, 0 to 512; 0 only with biases.
    biases : bool
        Whether the factors have biases in one more column.

    Returns
    -------
    f(rows, cols, theta_w, theta_h, out) -> None
        `rows`, `cols` (q,) int32, `theta_w` (n, D) and `theta_h` (m, D) float32. `out` (q,) float32
        is set to W_i . H_j + a_i + b_j, without the mean of the ratings.
    """
    added = ""
    if biases:
        added = f" + (theta_w[i, {K}] + theta_h[j, {K}])"
    source = _PAIRS.format(K=K, biases=added)
    kernel: Callable[..., None] = jit.compile_source(f"predict_{K}", source).pairs
    return kernel


@functools.cache
def cells_kernel(K: int, biases: bool) -> Callable[..., None]:
    """Compile the predictors of pairs, and their noise variances, at several draws.

    Parameters are as for `predict_kernel`.

    Returns
    -------
    f(rows, cols, theta_w, theta_h, inverse_w, inverse_h, noise, first, centre, variance) -> None
        `rows`, `cols` (q,) int32; `theta_w` (d, n, D), `theta_h` (d, m, D) float32; `inverse_w`
        (d, n), `inverse_h` (d, m) float32, 1 / g of every row; `noise` (d,) float64, 1 / tau. The d
        columns of `centre` and `variance`, (q, draws) float32, from column `first` on are set.
    """
    added = ""
    if biases:
        added = f" + (theta_w[d, i, {K}] + theta_h[d, j, {K}])"
    source = _CELLS.format(K=K, biases=added)
    kernel: Callable[..., None] = jit.native_kernels(f"cells_{K}", source)["cells"]
    return kernel


def join_rows(users: PairedRows, items: PairedRows, rank: int) -> tuple[Float64, Float64]:
    """Return means and variances of the predictors of independent rows, (p,) float64 each."""
    mean = np.empty(len(users.of_pair))
    variance = np.empty(len(users.of_pair))
    across = []  # what the other row of a pair is multiplied by: factors, and 1 for its bias
    for side in (users, items):
        multipliers = side.mean.copy()
        multipliers[:, rank:] = 1.0
        across.append(multipliers)
    jit.native_kernels("join", _JOIN)["join"](
        users.of_pair,
        items.of_pair,
        users.mean,
        items.mean,
        *across,
        users.covariance,
        items.covariance,
        users.spread_of,
        items.spread_of,
        rank,
        mean,
        variance,
    )
    for side in (users, items):
        mean += side.mean[side.of_pair, rank:].sum(axis=1)  # the bias, if there is one
    return mean, variance


# ---------------------------------------------------------------------- normal distributions

#: Extent of the table of the normal distribution on both sides of 0, and its points per unit.
#: Linear interpolation errs by less than 5e-7.
EXTENT = 9
PER_UNIT = 256

_NORMAL = f'''\
@kernel("void(float64[::1], float64[::1], float64[::1], float64[::1])")
def ndtr(x, table, density, out):
    """Taylor series about the nearest point of the table; beyond the table `erfc`."""
    for q in range(x.shape[0]):
        t = x[q]
        if abs(t) < {EXTENT}:
            k = int64((t + {EXTENT}) * {PER_UNIT} + 0.5)
            at = k * {1 / PER_UNIT} - {EXTENT}
            d = t - at
            u = at * d
            v = d * d
            third = (u * u - v) * {1 / 6}
            fourth = (3 * v - u * u) * u * {1 / 24}
            out[q] = table[k] + density[k] * d * (1 - 0.5 * u + third + fourth)
        else:
            out[q] = 0.5 * math.erfc(t * {-1 / math.sqrt(2)})
'''

_MIXTURE = f'''\
@helper
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
            t = min(max((x - c[d]) * inverse[d], -{EXTENT}.0), {EXTENT} - 1e-6)
            at = (t + {EXTENT}.0) * {PER_UNIT}.0
            k = int64(at)
            rise = table[k + 1] - table[k]
            total += w[d] * (table[k] + (at - k) * rise)
            slope += w[d] * rise * inverse[d]
        error = total - p
        if abs(error) < 2e-6:
            break
        if error > 0:
            high = x
        else:
            low = x
        step = error / max(slope * {PER_UNIT}.0, 1e-300)
        x = x - step
        if not (low <= x <= high):
            x = 0.5 * (low + high)
    return x


@helper
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


@kernel("void(float32[:, ::1], float32[:, ::1], float64[::1], float64, float64, float64, float64, "
        "float64[::1], float64[:, ::1], float32[::1], float32[::1], float32[::1], float32[::1])")
def summarise(centre, variance, weights, p_low, p_high, z_low, z_high, table, scratch,
              means, sds, lows, highs):
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


def ndtr(x: Array) -> Float64:
    """Compute the standard normal distribution function elementwise, in float64.

    The relative error is below 2e-11.
    """
    points = np.ascontiguousarray(x, np.float64)
    probability = np.empty_like(points)
    jit.native_kernels("normal", _NORMAL)["ndtr"](
        points.reshape(-1), *_tables(), probability.reshape(-1)
    )
    return probability


@functools.cache
def _tables() -> tuple[Float64, Float64]:
    """The standard normal distribution function and density on [-9, 9], (4609,) float64 each."""
    points = np.linspace(-EXTENT, EXTENT, 2 * EXTENT * PER_UNIT + 1)
    scaled = -points / math.sqrt(2)
    probability = np.array([*map(math.erfc, scaled.tolist())]) / 2
    return probability, np.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)


def summarise(
    centre: Float32,
    variance: Float32,
    weights: Float64,
    *,
    levels: tuple[float, float],
    z: tuple[float, float],
) -> tuple[Float32, Float32, Float32, Float32]:
    """Compute the mean, the sd and two quantiles of mixtures of normals.

    Parameters
    ----------
    centre, variance : (q, draws) float32
        Components of each mixture. If a variance is 0, the quantiles of the weighted centres are
        returned.
    weights : (draws,) float64
        Weights of the components, whose sum is 1.
    levels, z : pair of float
        Probabilities of the quantiles, and the quantiles of the standard normal distribution.

    Returns
    -------
    mean, sd, low, high : (q,) float32
    """
    mean, sd, low, high = (np.empty(len(centre), np.float32) for _ in range(4))
    # an allocation in the kernel would load as slowly as Numba
    scratch = np.empty((3, len(weights)))
    summarise = jit.native_kernels("mixture", _MIXTURE)["summarise"]
    summarise(centre, variance, weights, *levels, *z, _tables()[0], scratch, mean, sd, low, high)
    return mean, sd, low, high
