r"""Draws of rows from normal distributions that have different precision matrices.

Row i has the precision P_i = Lambda + s_i G_i and the mean P_i^-1 v_i with v_i = Lambda m_i + s_i q_i: its prior is
N(m_i, Lambda^-1), and G_i and q_i are the Gram matrix and the moment of its statistics (`dsgmcmc.kernels.outer`). The
Cholesky factor of

    | P    v |            | L      |
    | v^T  . |     is     | y^T  . |     with  y = L^-1 v,

so with z standard normal, theta = L^-T (y + z) has mean P^-1 v and covariance P^-1.

Everything is float64. `LANES` rows are solved side by side: element e of their packed triangles is at e `LANES` and
following, so one instruction processes several rows. The generated lines have a scalar variable for each number that
the compiler should keep in a vector. `ROWS` rows of the triangles are updated together, so that the rows above them are
read once.
"""

from __future__ import annotations

import functools
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.types import Float32, Float64

LANES, ROWS = 8, 4

_SOURCE = """\
{below}

{corner}

{substitute}

{solve}
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
            own = i if pull.shape[0] > 1 else 0
            q = uint64(i) * uint64(statistics.shape[1])
            for e in range(y):
                L[e * uint64({lanes}) + lane] = precision[e] + s * flat[q + e]
            for k in range(D):
                L[(y + k) * uint64({lanes}) + lane] = pull[own, k] + s * flat[q + y + k]
        for a in range(uint64(0), size, uint64({rows})):
            for c in range(a):
                below(L, inverse, a, c)
            corner(L, inverse, a)
        for k in range(D):
            for lane in range(uint64(count)):
                x[k * uint64({lanes}) + lane] = L[(y + k) * uint64({lanes}) + lane] + theta[first + int64(lane), k]
        for k in range(D):
            substitute(L, inverse, x, D - uint64(1) - k)
        for lane in range(uint64(count)):
            for k in range(D):
                theta[first + int64(lane), k] = x[k * uint64({lanes}) + lane]
"""


def _function(header: str, *lines: str) -> str:
    return "\n    ".join([f"{jit.helper()}\ndef {header}:", *lines]) + "\n"


def _lanes(line: str) -> list[str]:
    """Repeat a line for each lane ``{i}``."""
    return [line.format(i=i) for i in range(LANES)]


def _places(rows: str) -> list[str]:
    """Lines that compute where rows a, a + 1, ... begin."""
    return [
        f"p{r} = ({rows} + uint64({r})) * ({rows} + uint64({r + 1})) // uint64(2) * uint64({LANES})"
        for r in range(ROWS)
    ]


def _below() -> str:
    """Source of the function that computes column c of rows a, a + 1, ..., all below row c."""
    lines = [f"q = c * (c + uint64(1)) // uint64(2) * uint64({LANES})", f"d = c * uint64({LANES})", *_places("a")]
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
    """Source of the function that computes the diagonal triangle of rows a, a + 1, ..., after the columns before a."""
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
        lines += _lanes(f"w{c}_{{i}} = 1.0 / math.sqrt(s{c}{c}_{{i}})" if r == c else f"s{r}{c}_{{i}} *= w{c}_{{i}}")
    for r, c in triangle:
        if r == c:
            lines += _lanes(f"inverse[d + uint64({c * LANES} + {{i}})] = w{c}_{{i}}")
        else:
            lines += _lanes(f"L[p{r} + d + uint64({c * LANES} + {{i}})] = s{r}{c}_{{i}}")
    return _function("corner(L, inverse, a)", *lines)


def _substitute() -> str:
    """Source of the function that computes element k of the solution, and subtracts it from those before k."""
    lines = [f"p = k * (k + uint64(1)) // uint64(2) * uint64({LANES})", f"d = k * uint64({LANES})"]
    lines += _lanes("v{i} = x[d + uint64({i})] * inverse[d + uint64({i})]")
    lines += _lanes("x[d + uint64({i})] = v{i}")
    lines += [f"for c in range(uint64(0), d, uint64({LANES})):"]
    lines += _lanes("    s{i} = x[c + uint64({i})] - L[p + c + uint64({i})] * v{i}")
    lines += _lanes("    x[c + uint64({i})] = s{i}")
    return _function("substitute(L, inverse, x, k)", *lines)


@functools.cache
def _module() -> Any:
    solve = jit.decorator(f"void({'float32[:, ::1], ' * 2}{'float64[::1], ' * 2}float64[:, ::1])")
    functions = {"below": _below(), "corner": _corner(), "substitute": _substitute(), "solve": solve}
    return jit.compile_source("normal_rows", _SOURCE.format(**functions, lanes=LANES, rows=ROWS))


def draw_normal_rows(theta: Float32, statistics: Float32, scale: Float64, prior: RowPrior) -> None:
    """Draw rows from their normal distributions.

    Parameters
    ----------
    theta : (n, D) float32
        Standard normals, which are replaced by the draws.
    statistics : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows (`dsgmcmc.kernels.outer`).
    scale : (n,) float64
        s_i, by which the statistics are multiplied.
    prior : RowPrior
        Mean m_i of every row, and precision Lambda.
    """
    lambda_ = prior.precision.astype(np.float64)
    mean = (prior.mean[None] if prior.shift is None else prior.mean + prior.shift).astype(np.float64)
    if lambda_.ndim == 1:
        pull, lambda_ = mean * lambda_, np.diag(lambda_)
    else:
        pull = np.einsum("nk,kc->nc", mean, lambda_)  # the last bits of BLAS depend on the machine
    _module().solve(theta, statistics, scale, lambda_[np.tril_indices(len(lambda_))], pull)
