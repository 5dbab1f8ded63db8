"""Storage of a cell's ratings in memory, with three to eight bytes per rating.

A column index takes two bytes in a block of at most 65,536 columns, and otherwise four. With at
most `FEW` distinct values, a value takes one byte, which is its index in a table; otherwise it
takes four bytes. Results do not depend on this choice: kernels look values up, and one compiled
kernel reads all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, UInt8

#: Number of distinct values that one byte can index.
FEW = 256

#: Types of the arrays ``indptr, indices, codes, values`` that `kernel_arguments` returns.
RATINGS = "int64[::1], uint16[::1], uint8[::1], float32[::1]"

#: Source of the function that reads columns; each column is in two halves if there are more
#: `indices` than ratings.
COLUMN = '''\
@helper
def column(indices, halves, r):
    """Column of rating r; if `halves`, every column is stored as its lower and its upper half."""
    if halves:
        return uint64(indices[r + r]) | uint64(indices[r + r + uint64(1)]) << uint64(16)
    return uint64(indices[r])


'''


def index_type(n: int) -> type[np.uint16 | np.int32]:
    """Return the type for indices below n."""
    return np.uint16 if n <= 1 << 16 else np.int32


def kernel_arguments(
    indptr: Array, indices: Array, stored: Array, table: Float32 | None
) -> tuple[Array, ...]:
    """Arrange ratings as arguments of kernels.

    Parameters
    ----------
    indptr : (n + 1,) int64
    indices : (nnz,) uint16 or int32
    stored : (nnz,) uint8 or float32
        Indices in the table, or values if there is no table.
    table : (at most 256,) float32, optional

    Returns
    -------
    indptr : (n + 1,) int64
    indices : (nnz,) or (2 nnz,) uint16
    codes : (nnz,) or (0,) uint8
    values : (at most 256,) or (nnz,) float32
        The table, or the ratings if there is no table.
    """
    if table is None:
        return indptr, indices.view(np.uint16), np.zeros(0, np.uint8), stored
    return indptr, indices.view(np.uint16), stored, table


_NUMBER = '''\
@kernel("int64(uint32[::1], uint32[::1], int64[::1], int64, uint8[::1])")
def number(values, table, slots, known, codes):
    """Number the values; return how many are known, or size + 1 if the table is too small."""
    for r in range(uint64(values.shape[0])):
        x = values[r]
        slot = uint64(x) * uint64(2654435769) >> uint64(22) & uint64(1023)
        while slots[slot] >= 0 and table[slots[slot]] != x:
            slot = (slot + uint64(1)) & uint64(1023)
        if slots[slot] < 0:
            if known == table.size:
                return known + 1
            table[known] = x
            slots[slot] = known
            known += 1
        codes[r] = slots[slot]
    return known
'''


class Numbering:
    """Indices of at most `FEW` distinct values, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._table = np.zeros(FEW, np.float32)
        self._known = 0
        self._slots = np.full(4 * FEW, -1, np.int64)

    @property
    def values(self) -> Float32:
        """The distinct values, (n,) float32, n at most `FEW`."""
        return self._table[: self._known]

    def numbers(self, values: Float32) -> UInt8 | None:
        """Return the indices of values, (n,) uint8, or None after more than `FEW` values.

        -0 is not 0.
        """
        codes = np.empty(len(values), np.uint8)
        if self._known <= FEW:
            self._known = jit.compile_source("number", _NUMBER).number(
                values.view(np.uint32),
                self._table.view(np.uint32),
                self._slots,
                self._known,
                codes,
            )
        if self._known > FEW:
            return None
        return codes


def count_values(pieces: Iterable[Float32]) -> tuple[Float64, Int64] | None:
    """Return the distinct values of pieces, (n,) float64 ascending, and the number of each, (n,).

    None if there are more than `FEW`.
    """
    numbering = Numbering()
    of_numbers = np.zeros(FEW, np.int64)
    for piece in pieces:
        numbers = numbering.numbers(piece)
        if numbers is None:
            return None
        of_numbers += np.bincount(numbers, minlength=FEW)
    # -0 and 0 have two numbers
    values, index = np.unique(numbering.values.astype(np.float64), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, index, of_numbers[: len(index)])
    return values, counts


_SPLIT = '''\
@kernel("int64(int64[::1], int32[::1], {value}[::1], int64[::1], int64[:, ::1], int64[::1], "
        "{index}[::1], {value}[::1])")
def split(indptr, indices, values, bounds, starts, firsts, out_indices, out_values):
    """Copy ratings to their blocks; row i of block b begins at firsts[b] + starts[b, i].

    Return the first row whose columns do not ascend within the bounds, or -1.
    """
    blocks = starts.shape[0]
    rows = indptr.shape[0] - 1
    for i in range(rows):
        r = uint64(indptr[i])
        end = uint64(indptr[i + 1])
        for b in range(blocks):
            begin = r
            while r < end and bounds[b] <= indices[r] < bounds[b + 1]:
                r += uint64(1)
            starts[b, i + 1] = starts[b, i] + int64(r - begin)
        if r < end:
            return i
    for b in range(blocks):
        firsts[b + 1] = firsts[b] + starts[b, rows]
    for i in range(rows):
        r = uint64(indptr[i])
        for b in range(blocks):
            place = uint64(firsts[b] + starts[b, i])
            for k in range(uint64(starts[b, i + 1] - starts[b, i])):
                out_indices[place + k] = indices[r + k] - bounds[b]
                out_values[place + k] = values[r + k]
            r += uint64(starts[b, i + 1] - starts[b, i])
    return -1
'''

Ratings = tuple[Int64, Array, Array]


def split_columns(indptr: Int64, indices: Int32, values: Array, bounds: Int64) -> list[Ratings]:
    """Split rows of ratings into blocks of columns.

    Parameters
    ----------
    indptr : (n + 1,) int64
        CSR row boundaries, from 0.
    indices : (nnz,) int32
        Columns, ascending in each row, from bounds[0] to below bounds[B]; a column may recur.
    values : (nnz,) float32 or uint8
        Ratings.
    bounds : (B + 1,) int64
        Block b has the columns bounds[b] to below bounds[b + 1].

    Returns
    -------
    blocks : list of B tuples (indptr, indices, values)
        `indptr` is (n + 1,) int64, and `indices` have the `index_type` of the widest block. Columns
        are counted from the first column of the block. The order within a row is kept.

    Raises
    ------
    ValueError
        If lengths differ, or columns do not ascend within the bounds.
    """
    blocks = len(bounds) - 1
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(values):
        raise ValueError("indptr, indices and values do not describe one CSR matrix")
    starts = np.zeros((blocks, len(indptr)), np.int64)
    out_indices = np.empty(len(indices), index_type(int(np.diff(bounds).max())))
    out_values = np.empty_like(values)
    firsts = np.zeros(blocks + 1, np.int64)
    bad = split_kernel(out_indices.dtype.name, values.dtype.name)(
        indptr, indices, values, bounds, starts, firsts, out_indices, out_values
    )
    if bad >= 0:
        raise ValueError(
            f"the columns of row {bad} do not ascend within [{bounds[0]}, {bounds[-1]})"
        )
    return [
        (row_starts, out_indices[begin:end], out_values[begin:end])
        for row_starts, (begin, end) in zip(starts, pairwise(firsts), strict=True)
    ]


def transposed(indptr: Int64, indices: Array, values: Array, columns: int) -> Ratings:
    """Transpose ratings in CSR with `columns` columns; types are as in `split_columns`."""
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=index_type(len(indptr) - 1)), np.diff(indptr))
    begins = np.zeros(columns + 1, np.int64)
    np.cumsum(np.bincount(indices, minlength=columns), out=begins[1:])
    order = np.argsort(indices, kind="stable")
    return begins, rows[order], values[order]


def split_kernel(index: str, value: str) -> Callable[..., int]:
    """Compile the kernel of `split_columns` for types of the copied columns and of values."""
    kernel: Callable[..., int] = jit.compile_source(
        "split", _SPLIT.format(index=index, value=value)
    ).split
    return kernel
