r"""Draws of rows from their normal conditional distributions, for Gibbs sampling.

A row has the precision P_i = Lambda + s_i G_i and the mean P_i^-1 v_i with v_i = Lambda m_i + s_i
q_i: its prior is N(m_i, Lambda^-1), and G_i and q_i are the Gram matrix and the moment of its
statistics (`dsgmcmc.kernels.normal_rows`). If the prior's precision has a scale c_i, s_i is divided
by it and the draw's deviation by its root. The Cholesky factor of

    | P    v |            | L      |
    | v^T  . |     is     | y^T  . |     with  y = L^-1 v,

so with z standard normal, theta = L^-T (y + z) has mean P^-1 v and covariance P^-1.

Draws are computed in float64. As many rows as a register has float64 are solved side by side, each
in a *lane* of all vectors, so a row's bits do not depend on the rows beside it. The factor is
computed in blocks of `block` x `block` numbers, which stay in registers. Block i of rows is stored
column by column, and follows block i - 1.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.formulas.formula import RowPrior
from dsgmcmc.types import Float32, Float64, Int64

_SOLVE = '''\
from dsgmcmc.kernels.compiling.vectors import doubles, inverse_root, load, load_first
from dsgmcmc.kernels.compiling.vectors import minus_times, plus, singles, spread, store
from dsgmcmc.kernels.compiling.vectors import store_first, times, times_plus, transposed


@helper
def block_start(i):
    return i * (i + uint64(1)) // uint64(2) * uint64({block} * {block} * {lanes})


{functions}@kernel("void(float32[:, ::1], float32[:, ::1], float64[::1], float64[::1], "
        "float64[:, ::1], int64[::1])")
def solve(theta, statistics, scale, prior, pull, positions):
    """Draw rows; `pull` has Lambda m_i of every row, or no rows if `prior` ends with it."""
    wide_vectors()
    n = uint64(theta.shape[0])
    D = uint64(theta.shape[1])
    width = uint64(statistics.shape[1])
    moment = width - D - uint64(1)
    flat = statistics.reshape(statistics.size)
    rows = theta.reshape(theta.size)
    blocks = (D + uint64({block})) // uint64({block})
    L = np.zeros(block_start(blocks) + uint64({lanes}))
    inverse = np.zeros(blocks * uint64({block} * {lanes}))
    x = np.zeros(blocks * uint64({block} * {lanes}) + uint64({lanes} * {lanes}))
    scales = np.zeros({lanes})
    last = blocks - uint64(1)
    corner_start = block_start(last) + last * uint64({block} * {block} * {lanes})
    for first in range(uint64(0), n, uint64({lanes})):
        count = min(uint64({lanes}), n - first)
{lane_starts}
        s = load(scales, uint64(0), 0, {lanes})
        for e in range(uint64(0), width, uint64({lanes})):
            if e + uint64({lanes}) <= width:
                t = transposed(({statistics}))
            else:
                left = int32(width - e)
                t = transposed(({last_statistics}))
{fill}
        # the last rows have no pivots
        for r in range(D - last * uint64({block}), uint64({block})):
            pivot = corner_start + r * uint64({block} * {lanes} + {lanes})
            store(L, pivot, 0, spread(1e300, {lanes}))
        if pull.shape[0] > 0:
            for k in range(D):
                p = uint64(positions[moment + k])
                for lane in range(uint64({lanes})):
                    L[p + lane] += pull[first + min(lane, count - uint64(1)), k]
        for i in range(blocks):
            for j in range(i):
                below(L, inverse, i, j)
            corner(L, inverse, i)
        for k in range(uint64(0), D, uint64({lanes})):
            left = int32(min(D - k, uint64({lanes})))
            t = transposed(({normals}))
{begin}
        for k in range(D, blocks * uint64({block})):
            store(x, k * uint64({lanes}), 0, spread(0.0, {lanes}))
        for i in range(blocks):
            substitute(L, inverse, x, last - i)
        for k in range(uint64(0), D, uint64({lanes})):
            left = int32(min(D - k, uint64({lanes})))
            t = transposed(({draws}))
{finish}
'''


@dataclass(frozen=True)
class Solver:
    """Source of the kernel that draws rows, and where it stores the statistics.

    Attributes
    ----------
    lanes : int
        Rows that are solved side by side.
    block : int
        Rows and columns of a block of the factor.
    """

    lanes: int
    block: int

    def positions(self, D: int) -> Int64:
        """Positions in the factor of the elements of the statistics, padded by `lanes`.

        The last element, the sum of squares, and the padding have a position of their own.
        """
        blocks = (D + self.block) // self.block
        unused = self._position(blocks * self.block, 0)
        positions = [self._position(a, c) for a in range(D + 1) for c in range(a + 1)]
        positions[-1] = unused
        return np.array([*positions, *[unused] * self.lanes], np.int64)

    def _position(self, a: int, c: int) -> int:
        """Position of row a, column c of the factor."""
        i, r = divmod(a, self.block)
        before = i * (i + 1) // 2 * self.block
        return ((before + c) * self.block + r) * self.lanes

    def source(self) -> str:
        """Source of the kernel."""
        lanes = range(self.lanes)
        starts = []
        for lane in lanes:
            starts += [
                f"row = first + min(uint64({lane}), count - uint64(1))",
                f"q{lane} = row * width",
                f"p{lane} = row * D",
                f"scales[{lane}] = scale[row]",
            ]
        fill = []
        begin = []
        finish = []
        for lane in lanes:
            at = f"uint64(positions[e + uint64({lane})])"
            prior = f"spread(prior[e + uint64({lane})], {self.lanes})"
            fill.append(f"store(L, {at}, 0, times_plus(s, doubles(t[{lane}]), {prior}))")
            at = f"uint64(positions[moment + k + uint64({lane})])"
            y = f"load(L, {at}, 0, {self.lanes})"
            begin.append(f"store(x, {self._element(lane)}, 0, plus(doubles(t[{lane}]), {y}))")
            finish += [
                f"if uint64({lane}) < count:",
                f"    store_first(rows, p{lane} + k, left, t[{lane}])",
            ]
        load = f"load(flat, q{{}} + e, 0, {self.lanes})"
        load_last = f"load_first(flat, q{{}} + e, left, {self.lanes})"
        load_normals = f"load_first(rows, p{{}} + k, left, {self.lanes})"
        draws = [f"singles(load(x, {self._element(lane)}, 0, {self.lanes}))" for lane in lanes]
        return _SOLVE.format(
            lanes=self.lanes,
            block=self.block,
            functions=self._below() + self._corner() + self._substitute(),
            lane_starts="\n".join(indented(starts, 2)),
            statistics=", ".join(load.format(lane) for lane in lanes),
            last_statistics=", ".join(load_last.format(lane) for lane in lanes),
            fill="\n".join(indented(fill, 3)),
            normals=", ".join(load_normals.format(lane) for lane in lanes),
            begin="\n".join(indented(begin, 3)),
            draws=", ".join(draws),
            finish="\n".join(indented(finish, 3)),
        )

    def _element(self, lane: int) -> str:
        """Position of element k + `lane` of all rows' solutions."""
        return f"(k + uint64({lane})) * uint64({self.lanes})"

    def _load(self, start: str, at: int) -> str:
        """Expression for vector `at` of the factor from `start` on."""
        return f"load(L, {start}, {at * self.lanes}, {self.lanes})"

    def _below(self) -> str:
        """Source of the function that computes block (i, j), j < i, after those to its left."""
        size = range(self.block)
        each = list(product(size, size))
        lines = [
            "own = block_start(i)",
            "other = block_start(j)",
            f"end = j * uint64({self.block * self.block * self.lanes})",
        ]
        for r, c in each:
            lines += [f"s{r}{c} = {self._load('own + end', c * self.block + r)}"]
        lines += [f"for k in range(uint64(0), end, uint64({self.block * self.lanes})):"]
        lines += [f"    a{r} = {self._load('own + k', r)}" for r in size]
        lines += [f"    b{c} = {self._load('other + k', c)}" for c in size]
        lines += [f"    s{r}{c} = minus_times(a{r}, b{c}, s{r}{c})" for r, c in each]
        for c in size:
            for k in range(c):
                lines += [f"b = {self._load('other + end', k * self.block + c)}"]
                lines += [f"s{r}{c} = minus_times(s{r}{k}, b, s{r}{c})" for r in size]
            lines += [f"w = {self._inverse('j', c)}"]
            lines += [f"s{r}{c} = times(s{r}{c}, w)" for r in size]
        for r, c in each:
            lines += [f"store(L, own + end, {(c * self.block + r) * self.lanes}, s{r}{c})"]
        return _function("below(L, inverse, i, j)", lines)

    def _corner(self) -> str:
        """Source of the function that computes block (i, i), and the inverses of its pivots."""
        size = range(self.block)
        each = [(r, c) for c in size for r in range(c, self.block)]
        lines = [
            "own = block_start(i)",
            f"end = i * uint64({self.block * self.block * self.lanes})",
        ]
        for r, c in each:
            lines += [f"s{r}{c} = {self._load('own + end', c * self.block + r)}"]
        lines += [f"for k in range(uint64(0), end, uint64({self.block * self.lanes})):"]
        lines += [f"    a{r} = {self._load('own + k', r)}" for r in size]
        lines += [f"    s{r}{c} = minus_times(a{r}, a{c}, s{r}{c})" for r, c in each]
        for c in size:
            for k in range(c):
                lines += [
                    f"s{r}{c} = minus_times(s{r}{k}, s{c}{k}, s{r}{c})"
                    for r in range(c, self.block)
                ]
            lines += [f"w = inverse_root(s{c}{c})"]
            at = f"i * uint64({self.block * self.lanes}), {c * self.lanes}"
            lines += [f"store(inverse, {at}, w)"]
            lines += [f"s{r}{c} = times(s{r}{c}, w)" for r in range(c + 1, self.block)]
        for r, c in each:
            if r > c:
                lines += [f"store(L, own + end, {(c * self.block + r) * self.lanes}, s{r}{c})"]
        return _function("corner(L, inverse, i)", lines)

    def _substitute(self) -> str:
        """Source of the function that solves for block i of x, and takes it from earlier ones."""
        size = range(self.block)
        lines = [
            "own = block_start(i)",
            f"end = i * uint64({self.block * self.block * self.lanes})",
            f"at = i * uint64({self.block * self.lanes})",
        ]
        lines += [f"x{r} = load(x, at, {r * self.lanes}, {self.lanes})" for r in size]
        for r in reversed(size):
            lines += [f"x{r} = times(x{r}, {self._inverse('i', r)})"]
            for k in range(r):
                entry = self._load("own + end", k * self.block + r)
                lines += [f"x{k} = minus_times({entry}, x{r}, x{k})"]
        lines += [f"store(x, at, {r * self.lanes}, x{r})" for r in size]
        lines += [
            f"for k in range(uint64(0), at, uint64({self.lanes})):",
            f"    y = load(x, k, 0, {self.lanes})",
        ]
        for r in size:
            entry = self._load(f"own + k * uint64({self.block})", r)
            lines += [f"    y = minus_times({entry}, x{r}, y)"]
        lines += ["    store(x, k, 0, y)"]
        return _function("substitute(L, inverse, x, i)", lines)

    def _inverse(self, block: str, c: int) -> str:
        """Expression for the inverse of pivot c of a block."""
        at = f"{block} * uint64({self.block * self.lanes})"
        return f"load(inverse, {at}, {c * self.lanes}, {self.lanes})"


def _function(header: str, lines: list[str]) -> str:
    return "\n".join(["@helper", f"def {header}:", *indented(lines)]) + "\n\n\n"


@functools.cache
def _solver() -> Solver:
    """Return the solver whose blocks, and the vectors that they meet, fill the registers."""
    from dsgmcmc.kernels.compiling.compiler import vector_width  # imports Numba

    if vector_width() == 16:  # AVX-512 has 32 registers, others 16
        return Solver(lanes=8, block=4)
    return Solver(lanes=4, block=3)


@functools.cache
def _positions(D: int) -> Int64:
    return _solver().positions(D)


@functools.cache
def _triangle(D: int) -> Int64:
    """Positions in a (D, D) matrix of the elements of its lower triangle, row by row."""
    rows, columns = np.tril_indices(D)
    return rows * D + columns


@functools.cache
def _diagonal(D: int) -> Int64:
    """Positions of the diagonal's elements among those of the lower triangle."""
    rows = np.arange(D)
    return rows * (rows + 3) // 2


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
        Prior mean m_i of every row, prior precision Lambda and, if any, its scales.
    """
    if prior.scale is not None:
        # P_i = c_i (Lambda + (s_i / c_i) G_i) with the scale c_i of the prior's precision
        scale = scale / prior.scale[:, 0]
        theta /= np.sqrt(prior.scale)
    D = theta.shape[1]
    positions = _positions(D)
    lambda_ = prior.precision.astype(np.float64)
    mean = prior.mean[None].astype(np.float64)
    if prior.shift is not None:
        mean = (prior.mean + prior.shift).astype(np.float64)
    added = np.zeros(len(positions))
    triangle = _triangle(D)
    if lambda_.ndim == 1:
        pull = mean * lambda_
        added[_diagonal(D)] = lambda_
    else:
        pull = np.einsum("nk,kc->nc", mean, lambda_)  # the last bits of BLAS depend on the machine
        added[: len(triangle)] = lambda_.ravel()[triangle]
    if prior.shift is None:
        added[len(triangle) : len(triangle) + D] = pull[0]
        pull = pull[:0]
    _solve_module().solve(theta, statistics, scale, added, pull, positions)


@functools.cache
def _solve_module() -> Any:
    return jit.compile_source("normal_draws", _solver().source())
