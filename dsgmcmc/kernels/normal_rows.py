r"""Normal conditional distributions of rows, for Gibbs sampling: statistics of ratings, and draws.

Row i has ratings x_r of columns j(r). With phi = (H_j, 1), or phi = H_j without biases, t = x_r -
b_j and the other factor's noise scales g', its *statistics* are

    A_i = sum_r g'_j (phi, t) (phi, t)^T

The lower triangle of A_i is stored, packed row by row: (D + 1)(D + 2) / 2 float32. Its first D rows
are the Gram matrix sum g' phi phi^T; its last row has the moment sum g' t phi and sum g' t^2. The
squared errors of the row at any theta are u^T A_i u with u = (theta, -1).

This symmetric update of rank n takes most of the time of a Gibbs sweep. The features of `CHUNK`
ratings, each times sqrt(g'), are gathered in a panel that stays in the first-level cache and is
padded to a multiple of `WIDE` columns. Tiles of `TALL` x `WIDE` sums, on and below the diagonal
only, then pass over the panel. A tile is `TALL` vectors of `WIDE` sums that stay in registers
(`dsgmcmc.kernels.vectors`). If a tile is written as scalar variables, the compiler makes these
vectors for some processors only; on AMD processors, and without AVX-512, the code takes 8 times as
long.

Products are added in float32: over a chunk, over the chunks of a cell, and over the cells. On
MovieLens 1M with K = 32, rows drawn from these sums differ from rows drawn from float64 sums by
1e-7 of their norm, and by 7e-7 at most.

A row has the precision P_i = Lambda + s_i G_i and the mean P_i^-1 v_i with v_i = Lambda m_i + s_i
q_i: its prior is N(m_i, Lambda^-1), and G_i and q_i are the Gram matrix and the moment of its
statistics. The Cholesky factor of

    | P    v |            | L      |
    | v^T  . |     is     | y^T  . |     with  y = L^-1 v,

so with z standard normal, theta = L^-T (y + z) has mean P^-1 v and covariance P^-1.

Draws are computed in float64. `LANES` rows are solved side by side: element e of their packed
triangles is at positions e `LANES` to e `LANES` + `LANES` - 1, so that one instruction processes
several rows. The generated lines have a scalar variable for each number that the compiler should
keep in a vector. `ROWS` rows of the triangles are updated together, so that the rows above them are
read once.
"""

from __future__ import annotations

import functools
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.kernels.stored import COLUMN, RATINGS
from dsgmcmc.types import Array, Float32, Float64

# ---------------------------------------------------------------------- statistics

TALL, WIDE = 4, 16  # rows and columns of a tile
CHUNK = 64  # ratings in a panel

_STATISTICS = '''\
from dsgmcmc.kernels.vectors import load, spread, store, times_plus


{column}@kernel("void({ratings}, float32[:, ::1], float32[::1], int64, float32[:, ::1])")
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
                    panel[p + uint64(k)] = root[{owner}] * flat[j * D + uint64(k)]
                panel[p + D] = root[{owner}] * x
                if uint64(rank) < D:
                    panel[p + D] -= panel[p + uint64(rank)]
                    panel[p + uint64(rank)] = root[{owner}]
            for c in range(uint64(0), size, uint64({wide})):
                for a in range(c, size, uint64({tall})):
{tile}
        at = 0
        for a in range(size):
            for c in range(a + 1):
                out[i, at + c] += square[uint64(a) * stride + uint64(c)]
            at += a + 1


@kernel("void(float32[:, ::1], float32[:, ::1], float64[::1])")
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
    """Lines that add rows r < n of the panel to a tile.

    square[a + i, c:] += panel[r, a + i] panel[r, c:].
    """
    rows = range(TALL)
    return [
        *(f"s{i} = load(square, (a + uint64({i})) * stride + c, 0, {WIDE})" for i in rows),
        "for r in range(uint64(n)):",
        "    p = r * stride",
        f"    wide = load(panel, p + c, 0, {WIDE})",
        *(
            f"    s{i} = times_plus(spread(panel[p + a + uint64({i})], {WIDE}), wide, s{i})"
            for i in rows
        ),
        *(f"store(square, (a + uint64({i})) * stride + c, 0, s{i})" for i in rows),
    ]


@functools.cache
def _statistics_module(by_rating: bool = False) -> Any:
    """Compile the module; `by_rating` says that ratings have precisions of their own."""
    source = _STATISTICS.format(
        column=COLUMN,
        ratings=RATINGS,
        tall=TALL,
        wide=WIDE,
        chunk=CHUNK,
        tile="\n".join(jit.indented(_tile(), 5)),
        owner="q" if by_rating else "j",
    )
    return jit.compile_source("statistics", source)


def statistics_width(dimension: int) -> int:
    """Return the length of the statistics of a row whose theta has D elements."""
    return (dimension + 1) * (dimension + 2) // 2


def add_outer_products(
    ratings: tuple[Array, ...],
    features: Float32,
    *,
    root: Float32,
    rank: int,
    out: Float32,
    by_rating: bool = False,
) -> None:
    """Add the outer products of a cell's ratings to the statistics of its rows.

    Parameters
    ----------
    ratings : tuple of arrays
        Ratings from `dsgmcmc.kernels.stored.kernel_arguments`, grouped by the rows that have the
        statistics.
    features : (m, D) float32
        Theta of the other factor.
    root : (m,) or (nnz,) float32
        Square roots of the noise scales of the other factor or, `by_rating`, of the ratings'
        precisions.
    rank : int
        K; with biases D = K + 1, otherwise D = K.
    out : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows, to which the products are added.
    by_rating : bool, optional
        Whether every rating has a precision of its own, in place of g'_j.
    """
    _statistics_module(by_rating).add(*ratings, features, root, rank, out)


def squared_errors(theta: Float32, statistics: Float32) -> Float64:
    """Sum squared errors of every row's ratings, times the other factor's noise scales.

    Parameters
    ----------
    theta : (n, D) float32
        Rows at which the errors are computed.
    statistics : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows.

    Returns
    -------
    (n,) float64
    """
    out = np.empty(len(theta))
    _statistics_module().errors(theta, statistics, out)
    return out


# ---------------------------------------------------------------------- draws

#: Rows of theta solved side by side, and rows of their triangles updated together.
LANES = 8
ROWS = 4

_SOLVE = """\
{below}

{corner}

{substitute}

@kernel("void(float32[:, ::1], float32[:, ::1], float64[::1], float64[::1], float64[:, ::1])")
def solve(theta, statistics, scale, precision, pull):
    n = theta.shape[0]
    flat = statistics.reshape(statistics.size)
    D = uint64(theta.shape[1])
    size = D + uint64(1)
    L = np.zeros((size + uint64({rows})) * (size + uint64({rows})) // uint64(2) * uint64({lanes}))
    inverse = np.zeros((size + uint64({rows})) * uint64({lanes}))
    x = np.zeros(size * uint64({lanes}))
    for first in range(0, n, {lanes}):
        count = min({lanes}, n - first)
        y = D * size // uint64(2)
        for lane in range(uint64(count)):
            i = first + int64(lane)
            s = scale[i]
            place = i if pull.shape[0] > 1 else 0
            q = uint64(i) * uint64(statistics.shape[1])
            for e in range(y):
                L[e * uint64({lanes}) + lane] = precision[e] + s * flat[q + e]
            for k in range(D):
                L[(y + k) * uint64({lanes}) + lane] = pull[place, k] + s * flat[q + y + k]
        for a in range(uint64(0), size, uint64({rows})):
            for c in range(a):
                below(L, inverse, a, c)
            corner(L, inverse, a)
        for k in range(D):
            for lane in range(uint64(count)):
                z = theta[first + int64(lane), k]
                x[k * uint64({lanes}) + lane] = L[(y + k) * uint64({lanes}) + lane] + z
        for k in range(D):
            substitute(L, inverse, x, D - uint64(1) - k)
        for lane in range(uint64(count)):
            for k in range(D):
                theta[first + int64(lane), k] = x[k * uint64({lanes}) + lane]
"""


def _function(header: str, *lines: str) -> str:
    return "\n    ".join([f"@helper\ndef {header}:", *lines]) + "\n"


def _lanes(line: str) -> list[str]:
    """Repeat a line for each lane ``{i}``."""
    return [line.format(i=i) for i in range(LANES)]


def _places(rows: str) -> list[str]:
    """Lines that compute where `ROWS` rows of the packed triangles begin.

    `rows` is the variable of the first row.
    """
    return [
        f"p{r} = ({rows} + uint64({r})) * ({rows} + uint64({r + 1})) // uint64(2) * uint64({LANES})"
        for r in range(ROWS)
    ]


def _below() -> str:
    """Source of the function that computes column c of rows a, a + 1, ..., all below row c."""
    lines = [
        f"q = c * (c + uint64(1)) // uint64(2) * uint64({LANES})",
        f"d = c * uint64({LANES})",
        *_places("a"),
    ]
    for r in range(ROWS):
        lines += _lanes(f"s{r}_{{i}} = L[p{r} + d + uint64({{i}})]")
    lines += [f"for k in range(uint64(0), d, uint64({LANES})):"]
    lines += _lanes("    v{i} = L[q + k + uint64({i})]")
    for r in range(ROWS):
        lines += _lanes(f"    s{r}_{{i}} -= L[p{r} + k + uint64({{i}})] * v{{i}}")
    lines += _lanes("v{i} = inverse[d + uint64({i})]")
    for r in range(ROWS):
        lines += _lanes(f"L[p{r} + d + uint64({{i}})] = s{r}_{{i}} * v{{i}}")
    return _function("below(L, inverse, a, c)", *lines)


def _corner() -> str:
    """Source of the function that computes the diagonal triangle of rows a, a + 1, ...

    The columns before a are complete.
    """
    lines = [f"d = a * uint64({LANES})", *_places("a")]
    triangle = [(r, c) for c, r in combinations_with_replacement(range(ROWS), 2)]
    for r, c in triangle:
        lines += _lanes(f"s{r}{c}_{{i}} = L[p{r} + d + uint64({c * LANES} + {{i}})]")
    lines += [f"for k in range(uint64(0), d, uint64({LANES})):"]
    for r in range(ROWS):
        lines += _lanes(f"    v{r}_{{i}} = L[p{r} + k + uint64({{i}})]")
    for r, c in triangle:
        lines += _lanes(f"    s{r}{c}_{{i}} -= v{r}_{{i}} * v{c}_{{i}}")
    for r, c in triangle:
        for k in range(c):
            lines += _lanes(f"s{r}{c}_{{i}} -= s{r}{k}_{{i}} * s{c}{k}_{{i}}")
        if r == c:
            lines += _lanes(f"w{c}_{{i}} = 1.0 / math.sqrt(s{c}{c}_{{i}})")
        else:
            lines += _lanes(f"s{r}{c}_{{i}} *= w{c}_{{i}}")
    for r, c in triangle:
        if r == c:
            lines += _lanes(f"inverse[d + uint64({c * LANES} + {{i}})] = w{c}_{{i}}")
        else:
            lines += _lanes(f"L[p{r} + d + uint64({c * LANES} + {{i}})] = s{r}{c}_{{i}}")
    return _function("corner(L, inverse, a)", *lines)


def _substitute() -> str:
    """Source of the function that computes element k of the solution.

    It subtracts its part in earlier elements.
    """
    lines = [f"p = k * (k + uint64(1)) // uint64(2) * uint64({LANES})", f"d = k * uint64({LANES})"]
    lines += _lanes("v{i} = x[d + uint64({i})] * inverse[d + uint64({i})]")
    lines += _lanes("x[d + uint64({i})] = v{i}")
    lines += [f"for c in range(uint64(0), d, uint64({LANES})):"]
    lines += _lanes("    s{i} = x[c + uint64({i})] - L[p + c + uint64({i})] * v{i}")
    lines += _lanes("    x[c + uint64({i})] = s{i}")
    return _function("substitute(L, inverse, x, k)", *lines)


@functools.cache
def _solve_module() -> Any:
    source = _SOLVE.format(
        below=_below(), corner=_corner(), substitute=_substitute(), lanes=LANES, rows=ROWS
    )
    return jit.compile_source("normal_rows", source)


def draw_normal_rows(
    theta: Float32, statistics: Float32, *, scale: Float64, prior: RowPrior
) -> None:
    """Draw rows from their normal conditional distributions.

    Parameters
    ----------
    theta : (n, D) float32
        Standard normals, which are replaced by the draws.
    statistics : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows.
    scale : (n,) float64
        s_i, by which the statistics are multiplied.
    prior : RowPrior
        Prior mean m_i of every row, and prior precision Lambda.
    """
    lambda_ = prior.precision.astype(np.float64)
    mean = prior.mean[None].astype(np.float64)
    if prior.shift is not None:
        mean = (prior.mean + prior.shift).astype(np.float64)
    if lambda_.ndim == 1:
        pull = mean * lambda_
        lambda_ = np.diag(lambda_)
    else:
        pull = np.einsum("nk,kc->nc", mean, lambda_)  # the last bits of BLAS depend on the machine
    _solve_module().solve(theta, statistics, scale, lambda_[np.tril_indices(len(lambda_))], pull)
