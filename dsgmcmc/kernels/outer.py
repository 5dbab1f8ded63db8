r"""Sums of outer products: the sufficient statistics of a row's ratings, given the other factor.

Row i has ratings x_r of columns j(r). With phi = (H_j, 1), or phi = H_j without biases, t = x_r - b_j and the other
factor's noise scales g', its *statistics* are

    A_i = sum_r g'_j (phi, t) (phi, t)^T

The lower triangle of A_i is stored, packed row by row: (D + 1)(D + 2) / 2 float32. Its first D rows are the Gram matrix
sum g' phi phi^T; its last row has the moment sum g' t phi and sum g' t^2. The squared errors of the row at any theta
are u^T A_i u with u = (theta, -1).

This symmetric update of rank n takes most of the time of a Gibbs sweep. The features of `CHUNK` ratings, each times
sqrt(g'), are gathered in a panel that stays in the first-level cache and is padded to a multiple of `WIDE` columns.
Tiles of `TALL` x `WIDE` sums, on and below the diagonal only, then pass over the panel. A tile is `TALL` vectors of
`WIDE` sums that stay in registers (`dsgmcmc.kernels.vectors`). If a tile is written as scalar variables, the compiler
finds these vectors for some processors only; on others (AMD, and those without AVX-512) the code takes 8 times as long.

Products are added in float32: over a chunk, over the chunks of a cell, and over the cells. On MovieLens 1M with K = 32,
rows drawn from these sums differ from rows drawn from float64 sums by 1e-7 of their norm, and by 7e-7 at most.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.stored import COLUMN, RATINGS
from dsgmcmc.types import Array, Float32, Float64

TALL, WIDE = 4, 16
CHUNK = 64

_SOURCE = '''\
from dsgmcmc.kernels.vectors import load, spread, store, times_plus


{column}{add}
def add(indptr, indices, codes, values, features, root, rank, out):
    """Add the outer products of every row's ratings to its statistics."""
    D = uint64(features.shape[1])
    size = D + uint64(1)
    stride = (size + uint64({wide} - 1)) // uint64({wide}) * uint64({wide})
    flat = features.reshape(features.size)
    panel = np.zeros({chunk} * stride, np.float32)
    square = np.empty(stride * stride, np.float32)
    halves = indices.size > indptr[out.shape[0]]
    coded = codes.size > 0
    for i in range(out.shape[0]):
        if indptr[i] == indptr[i + 1]:
            continue
        square[:] = float32(0)
        for first in range(indptr[i], indptr[i + 1], {chunk}):
            n = min({chunk}, indptr[i + 1] - first)
            for r in range(n):
                q = uint64(first + r)
                j = column(indices, halves, q)
                x = values[uint64(codes[q])] if coded else values[q]
                p = uint64(r) * stride
                for k in range(D):
                    panel[p + uint64(k)] = root[j] * flat[j * D + uint64(k)]
                panel[p + D] = root[j] * x
                if uint64(rank) < D:
                    panel[p + D] -= panel[p + uint64(rank)]
                    panel[p + uint64(rank)] = root[j]
            for c in range(uint64(0), size, uint64({wide})):
                for a in range(c, size, uint64({tall})):
{tile}
        at = 0
        for a in range(size):
            for c in range(a + 1):
                out[i, at + c] += square[uint64(a) * stride + uint64(c)]
            at += a + 1


{errors}
def errors(theta, statistics, out):
    """u^T A u of every row, u = (theta, -1)."""
    D = theta.shape[1]
    u = np.empty(D + 1)
    for i in range(theta.shape[0]):
        for k in range(D):
            u[k] = theta[i, k]
        u[D] = -1.0
        total = 0.0
        at = 0
        for a in range(D + 1):
            dot = 0.0
            for c in range(a):
                dot += statistics[i, at + c] * u[c]
            total += u[a] * (2.0 * dot + statistics[i, at + a] * u[a])
            at += a + 1
        out[i] = max(total, 0.0)
'''


def _tile() -> list[str]:
    """Lines that add rows r < n of the panel to a tile: square[a + i, c:] += panel[r, a + i] panel[r, c:]."""
    each = range(TALL)
    return [
        *(f"s{i} = load(square, (a + uint64({i})) * stride + c, {WIDE})" for i in each),
        "for r in range(uint64(n)):",
        "    p = r * stride",
        f"    wide = load(panel, p + c, {WIDE})",
        *(f"    s{i} = times_plus(spread(panel[p + a + uint64({i})], {WIDE}), wide, s{i})" for i in each),
        *(f"store(square, (a + uint64({i})) * stride + c, s{i})" for i in each),
    ]


@functools.cache
def _module() -> Any:
    source = _SOURCE.format(
        column=COLUMN,
        tall=TALL,
        wide=WIDE,
        tile="\n".join(jit.indented(_tile(), 5)),
        chunk=CHUNK,
        add=jit.decorator(f"void({RATINGS}, float32[:, ::1], float32[::1], int64, float32[:, ::1])"),
        errors=jit.decorator("void(float32[:, ::1], float32[:, ::1], float64[::1])"),
    )
    return jit.compile_source("outer", source)


def statistics_width(dimension: int) -> int:
    """Return the length of the statistics of a row whose theta has D elements."""
    return (dimension + 1) * (dimension + 2) // 2


def add_outer_products(ratings: tuple[Array, ...], features: Float32, root: Float32, rank: int, out: Float32) -> None:
    """Add the outer products of a cell's ratings to the statistics of its rows.

    Parameters
    ----------
    ratings : tuple of arrays
        Ratings from `dsgmcmc.kernels.stored.kernel_arguments`, grouped by the rows that have the statistics.
    features : (m, D) float32
        Theta of the other factor.
    root : (m,) float32
        Square roots of the noise scales of the other factor.
    rank : int
        K; with biases D = K + 1, otherwise D = K.
    out : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows, to which the products are added.
    """
    _module().add(*ratings, features, root, rank, out)


def squared_errors(theta: Float32, statistics: Float32) -> Float64:
    """Sum the squared errors of every row's ratings, times the other factor's noise scales; (n,) float64.

    Parameters
    ----------
    theta : (n, D) float32
        Rows at which the errors are computed.
    statistics : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows.
    """
    out = np.empty(len(theta))
    _module().errors(theta, statistics, out)
    return out
