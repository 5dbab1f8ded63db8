"""How the ratings of a cell are stored in memory: in three to eight bytes each.

A column index takes two bytes in a block of at most 65,536 columns, and otherwise four. If at most `FEW` values differ,
a value takes one byte, which is its index in a table; otherwise it takes four bytes. Results do not depend on this
choice: kernels look values up, and one compiled kernel reads all kinds.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.types import Array, Float32, UInt8

FEW = 256
"""Number of different values that one byte can index."""

RATINGS = "int64[::1], uint16[::1], uint8[::1], float32[::1]"
"""Types of the arrays ``indptr, indices, codes, values`` that `kernel_arguments` returns."""

COLUMN = f'''\
{jit.helper()}
def column(indices, halves, r):
    """Column of rating r; if `halves`, the lower and the upper one of each column follow each other."""
    if halves:
        return uint64(indices[r + r]) | uint64(indices[r + r + uint64(1)]) << uint64(16)
    return uint64(indices[r])


'''
"""Source of the function that reads columns. They are in `halves` if `indices` is longer than the ratings."""


def index_type(n: int) -> type[np.uint16 | np.int32]:
    """Return the type for indices below n."""
    return np.uint16 if n <= 1 << 16 else np.int32


def kernel_arguments(indptr: Array, indices: Array, stored: Array, table: Float32 | None) -> tuple[Array, ...]:
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
        The table, or without one the ratings.
    """
    values = (np.zeros(0, np.uint8), stored) if table is None else (stored, table)
    return indptr, indices.view(np.uint16), *values


_NUMBER = '''\
{decorator}
def number(values, table, slots, known, codes):
    """Numbers of values; how many are known then, one more than the table has places if these are too few."""
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
    """Indices of different values, in the order in which they first occur, as long as there are at most `FEW`."""

    def __init__(self) -> None:
        self._table, self._slots, self._known = np.zeros(FEW, np.float32), np.full(4 * FEW, -1, np.int64), 0

    @property
    def values(self) -> Float32:
        """The different values, (n,) float32, n at most `FEW`."""
        return self._table[: self._known]

    def numbers(self, values: Float32) -> UInt8 | None:
        """Return the indices of values, (n,) uint8, or None once more than `FEW` have been seen; -0 is not 0."""
        codes = np.empty(len(values), np.uint8)
        if self._known <= FEW:
            bits = values.view(np.uint32), self._table.view(np.uint32)
            self._known = _module().number(*bits, self._slots, self._known, codes)
        return codes if self._known <= FEW else None


@functools.cache
def _module() -> Any:
    decorator = jit.decorator("int64(uint32[::1], uint32[::1], int64[::1], int64, uint8[::1])")
    return jit.compile_source("number", _NUMBER.format(decorator=decorator))
