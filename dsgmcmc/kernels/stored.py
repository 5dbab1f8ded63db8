"""How the ratings of a cell are stored: three bytes each where columns and different values are few, else up to eight.

Columns take two bytes where a block has at most 65,536 of them, else four. Values take one byte, their number in a
table, where at most `FEW` differ, else four. Both are chosen anew for any data, and nothing that is computed depends on
it: kernels look the values up, and are compiled once for all kinds.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.types import Array, Float32, UInt8

FEW = 256
"""Different values that one byte numbers."""

RATINGS = "int64[::1], uint16[::1], uint8[::1], float32[::1]"
"""Types of what `kernel_arguments` returns: ``indptr, indices, codes, values`` of a kernel."""

COLUMN = f'''\
{jit.helper()}
def column(indices, halves, r):
    """Column of rating r; if `halves`, the lower and the upper one of each column follow each other."""
    if halves:
        return uint64(indices[r + r]) | uint64(indices[r + r + uint64(1)]) << uint64(16)
    return uint64(indices[r])


'''
"""Source of what kernels read columns with; there are `halves` where `indices` is longer than there are ratings."""


def index_type(n: int) -> type[np.uint16 | np.int32]:
    """Type of numbers below n."""
    return np.uint16 if n <= 1 << 16 else np.int32


def kernel_arguments(indptr: Array, indices: Array, stored: Array, table: Float32 | None) -> tuple[Array, ...]:
    """Ratings as kernels take them.

    Parameters
    ----------
    indptr : (n + 1,) int64
    indices : (nnz,) uint16 or int32
    stored : (nnz,) uint8 or float32
        Numbers in the table; without one, values.
    table : (at most 256,) float32, optional

    Returns
    -------
    indptr : (n + 1,) int64
    indices : (nnz,) or (2 nnz,) uint16
    codes : (nnz,) or (0,) uint8
    values : (at most 256,) or (nnz,) float32
        Of the codes, or, where there are none, of the ratings.
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
    """Numbers for different values, in the order in which they come, as long as they are few."""

    def __init__(self) -> None:
        self._table, self._slots, self._known = np.zeros(FEW, np.float32), np.full(4 * FEW, -1, np.int64), 0

    @property
    def values(self) -> Float32:
        """The values by number, (n,) float32, n at most `FEW`."""
        return self._table[: self._known]

    def numbers(self, values: Float32) -> UInt8 | None:
        """Numbers of values, (n,) uint8; None once they, and those before, are more than `FEW`; -0 is not 0."""
        codes = np.empty(len(values), np.uint8)
        if self._known <= FEW:
            bits = values.view(np.uint32), self._table.view(np.uint32)
            self._known = _module().number(*bits, self._slots, self._known, codes)
        return codes if self._known <= FEW else None


@functools.cache
def _module() -> Any:
    decorator = jit.decorator("int64(uint32[::1], uint32[::1], int64[::1], int64, uint8[::1])")
    return jit.compile_source("number", _NUMBER.format(decorator=decorator))
