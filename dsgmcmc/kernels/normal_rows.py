r"""Normal conditional distributions of rows, for Gibbs sampling: the statistics of their ratings.

Row i has ratings x_r of columns j(r). With phi = (H_j, 1), or phi = H_j without biases, t = x_r -
b_j and the other factor's noise scales g', its *statistics* are

    A_i = sum_r g'_j (phi, t) (phi, t)^T

The lower triangle of A_i is stored, packed row by row: (D + 1)(D + 2) / 2 float32. Its first D rows
are the Gram matrix sum g' phi phi^T; its last row has the moment sum g' t phi and sum g' t^2. The
squared errors of the row at any theta are u^T A_i u with u = (theta, -1).

The vectors (phi, t) sqrt(g') of some ratings are gathered in a panel, which stays in the
first-level cache. *Tiles* of sums in registers (`dsgmcmc.kernels.compiling.tiles`) pass over the
panel. Sums are float32: of a panel, of the panels of a cell, and of the cells.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels.compact_ratings import COLUMN
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.calls import Layout
from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.row_layout import aligned
from dsgmcmc.types import Array, Float32, Float64, Int64

#: Rows of a tile; the rest of the rows is in tiles of 4, 2 and 1.
TALL = 8
#: Numbers in a panel, which fill half of any first-level cache, and least ratings in a panel.
PANEL = 4096
LEAST_RATINGS = 16
#: Arrays of a cell (`OuterProducts`), by their names in the kernel.
CELL = Layout(
    {
        "indptr": "int64",
        "indices": "uint16",
        "codes": "uint8",
        "values": "float32",
        "flat": "float32",
        "root": "float32",
        "sums": "float32",
    }
)

_STATISTICS = '''\
from numba import carray
from dsgmcmc.kernels.compiling.tiles import add_to_packed, empty_tile, plus_outer
from dsgmcmc.kernels.compiling.vectors import doubles, load, load_first, pointer, spread
from dsgmcmc.kernels.compiling.vectors import store, sum_of, times, times_plus


{column}{tiles}@kernel("void(int64[:, ::1], int64, int64)")
def add(table, dimension, rank):
    """Add the outer products of every row's ratings to its statistics, cell by cell."""
    wide_vectors()
    D = uint64(dimension)
    K = uint64(rank)
    size = D + uint64(1)
    width = size * (size + uint64(1)) // uint64(2)
    stride = (size + uint64({wide} - 1)) // uint64({wide}) * uint64({wide})
    most = max(uint64({panel}) // stride, uint64({least}))
    panel = np.zeros(most * stride + uint64({wide}), np.float32)
    begin = {begin}
    full = K // uint64({wide}) * uint64({wide})
    rest = int32(K - full)
    for cell in range(table.shape[0]):
{arrays}
        n_rows = uint64(indptr.size - 1)
        halves = uint64(indices.size) > uint64(indptr[n_rows])
        coded = codes.size > 0
        for i in range(n_rows):
            start = i * width
            end = uint64(indptr[i + uint64(1)])
            for first in range(uint64(indptr[i]), end, most):
                n = min(most, end - first)
                for r in range(n):
                    j = column(indices, halves, first + r)
                    x = values[uint64(codes[first + r])] if coded else values[first + r]
                    g = root[{owner}]
                    scale = spread(g, {wide})
                    p = begin + r * stride
                    f = j * D
                    for k in range(uint64(0), full, uint64({wide})):
                        store(panel, p + k, 0, times(scale, load(flat, f + k, 0, {wide})))
                    if rest > 0:
                        last = load_first(flat, f + full, rest, {wide})
                        store(panel, p + full, 0, times(scale, last))
                    if K < D:
                        panel[p + K] = g
                        panel[p + D] = g * (x - flat[f + K])
                    else:
                        panel[p + D] = g * x
                a = uint64(0)
{bands}
                if a + uint64(4) <= size:
                    rows_4(panel, begin, n, stride, a, sums, start)
                    a += uint64(4)
                if a + uint64(2) <= size:
                    rows_2(panel, begin, n, stride, a, sums, start)
                    a += uint64(2)
                if a < size:
                    rows_1(panel, begin, n, stride, a, sums, start)


@kernel("void(float32[:, ::1], float32[:, ::1], float64[::1])")
def errors(theta, statistics, out):
    """u^T A u of every row, u = (theta, -1)."""
    wide_vectors()
    D = uint64(theta.shape[1])
    width = uint64(statistics.shape[1])
    flat = statistics.reshape(statistics.size)
    twice = np.zeros(D + uint64(8))
    twice[D] = -2.0
    for i in range(uint64(0), uint64(theta.shape[0])):
        for k in range(D):
            twice[k] = 2.0 * theta[i, k]
        at = i * width
        diagonal = 0.0
        total = spread(0.0, 8)
        for a in range(uint64(0), D + uint64(1)):
            product = spread(0.0, 8)
            full = a // uint64(8) * uint64(8)
            for c in range(uint64(0), full, uint64(8)):
                row = doubles(load(flat, at + c, 0, 8))
                product = times_plus(row, load(twice, c, 0, 8), product)
            row = doubles(load_first(flat, at + full, int32(a + uint64(1) - full), 8))
            product = times_plus(row, load(twice, full, 0, 8), product)
            total = times_plus(product, spread(twice[a], 8), total)
            diagonal += flat[at + a] * twice[a] * twice[a]
            at += a + uint64(1)
        out[i] = max(0.5 * sum_of(total) - 0.25 * diagonal, 0.0)
'''


class _Rows(NamedTuple):
    """A function that adds the panel's products to some rows, from row a on, as source.

    Attributes
    ----------
    height : int
        Number of rows.
    wide : int
        Columns of a vector. The diagonal of all rows is in one vector, the *last*.
    last_width : int
        Columns of the last vector, if fewer are enough.
    end : str
        Expression for the number of these columns that belong to row a.
    """

    height: int
    wide: int
    last_width: int
    end: str

    def source(self, name: str) -> str:
        """Source of the function."""
        lines = [
            "c = uint64(0)",
            f"diagonal = a // uint64({self.wide}) * uint64({self.wide})",
            f"while c + uint64({self._most * self.wide}) <= diagonal:",
            *indented(self._tile([self.wide, self.wide], str(self.wide))),
            f"    c += uint64({2 * self.wide})",
        ]
        for before in range(self._most):
            if before == 0:
                lines += ["if c == diagonal:"]
            elif before < self._most - 1:
                lines += [f"elif c + uint64({before * self.wide}) == diagonal:"]
            else:
                lines += ["else:"]
            widths = [*[self.wide] * before, self.last_width]
            lines += indented(self._tile(widths, self.end))
        header = ["@helper", f"def {name}(panel, begin, n, stride, a, out, start):"]
        return "\n".join([*header, *indented(lines)]) + "\n\n\n"

    @property
    def _most(self) -> int:
        """Most vectors of a row in a tile: more if there are few rows, which wait for sums."""
        if self.height < 4:
            return 3
        return 2

    def _tile(self, widths: list[int], end: str) -> list[str]:
        """Lines that add products to rows from row a, and columns from c, on."""
        first, second, third = [*widths, 0, 0][:3]
        return [
            f"tile = empty_tile({self.height}, {first}, {second}, {third})",
            "for r in range(n):",
            "    p = begin + r * stride",
            f"    tile = plus_outer(tile, {self.height}, panel, p + a, p + c)",
            f"add_to_packed(tile, {self.height}, out, start, a, c, {end})",
        ]


@functools.cache
def _statistics_module(by_rating: bool = False) -> Any:
    """Compile the module; `by_rating` says that ratings have precisions of their own."""
    from dsgmcmc.kernels.compiling.compiler import vector_width  # imports Numba

    wide = vector_width()
    tiles = []
    bands = [f"while a + uint64({TALL}) <= size:"]
    for offset in range(0, wide, TALL):
        rows = _Rows(TALL, wide, last_width=offset + TALL, end=str(offset + 1))
        name = f"rows_{TALL}_{offset}"
        tiles.append(rows.source(name))
        bands += [
            f"    if a + uint64({TALL}) <= size:",
            f"        {name}(panel, begin, n, stride, a, sums, start)",
            f"        a += uint64({TALL})",
        ]
    for height in (4, 2, 1):
        rows = _Rows(height, wide, last_width=wide, end="a - diagonal + uint64(1)")
        tiles.append(rows.source(f"rows_{height}"))
    source = _STATISTICS.format(
        column=COLUMN,
        arrays="\n".join(indented(CELL.lines("table", "cell"), 2)),
        tiles="".join(tiles),
        bands="\n".join(indented(bands, 4)),
        begin=aligned("panel"),
        wide=wide,
        panel=PANEL,
        least=LEAST_RATINGS,
        owner="first + r" if by_rating else "j",
    )
    return jit.compile_source("statistics", source)


def statistics_width(dimension: int) -> int:
    """Return the length of the statistics of a row whose theta has D elements."""
    return (dimension + 1) * (dimension + 2) // 2


class OuterProducts(NamedTuple):
    """Arrays of the ratings of a cell, from which the statistics of its rows are added up.

    Attributes
    ----------
    ratings : tuple of arrays
        Ratings from `dsgmcmc.kernels.compact_ratings.kernel_arguments`, grouped by the rows that
        have the statistics.
    features : (m, D) float32
        Theta of the other factor.
    root : (m,) or (nnz,) float32
        Square roots of the noise scales of the other factor or, `by_rating`, of the ratings'
        precisions.
    out : (n, (D + 1)(D + 2) / 2) float32
        Statistics of the rows, to which the products are added.
    """

    ratings: tuple[Array, ...]
    features: Float32
    root: Float32
    out: Float32


def addresses(cells: Sequence[OuterProducts]) -> Int64:
    """Return the addresses of the arrays of cells, which must stay alive and in their place."""
    return CELL.addresses((*cell.ratings[:4], cell.features, cell.root, cell.out) for cell in cells)


def add_outer_products(cells: Int64, dimension: int, *, rank: int, by_rating: bool = False) -> None:
    """Add the outer products of the ratings of cells to the statistics of their rows, in order.

    Parameters
    ----------
    cells : int64 array
        `addresses` of the cells.
    dimension : int
        Number of columns D of all cells: K + 1 with biases, otherwise K.
    rank : int
        K.
    by_rating : bool, optional
        Whether every rating has a precision of its own, in place of g'_j.
    """
    _statistics_module(by_rating).add(cells, dimension, rank)


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
