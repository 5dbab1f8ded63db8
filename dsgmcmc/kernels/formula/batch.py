"""Blocks of arrays that a formula updates in one call, and the table of addresses for the compiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_not
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Array, Int64


class Wanted(NamedTuple):
    """Names of the arrays in each block that a formula uses.

    Attributes
    ----------
    fields : dict of str to str
        Names of (n, D) arrays, by their names in the formula; the first array determines D and the dtype.
    rows : tuple of str
        Names of (n, 1) arrays.
    names : tuple of str
        Names of all arrays in `fields` and `rows`.
    """

    fields: dict[str, str]
    rows: tuple[str, ...]
    names: tuple[str, ...]


class Table(NamedTuple):
    """Addresses and shapes of the arrays of a batch.

    Attributes
    ----------
    numbers : (blocks, 3 + arrays of a block) int64
        For every block: the number of its rows, the number of its first row, the rows of all earlier blocks, and the
        addresses of its arrays.
    rows, width : int
        Rows of all blocks, and columns D of their fields.
    dtype : dtype
    arrays : list of array
        The arrays at these addresses.
    wanted : Wanted
    """

    numbers: Int64
    rows: int
    width: int
    dtype: np.dtype[np.generic]
    arrays: list[Array]
    wanted: Wanted


class Batch:
    """Blocks of rows that a formula updates in one call, in their order.

    Parameters
    ----------
    blocks : sequence of mapping of str to array
        The arrays of each block, with equal names in all blocks. Arrays may be replaced between two calls.
    starts : sequence of int, optional
        Number of the first row of each block, which determines where its noise begins; by default one block at 0.
    """

    def __init__(self, blocks: Sequence[Mapping[str, Array]], starts: Sequence[int] = (0,)) -> None:
        self.blocks, self._starts = blocks, starts
        self._tables: dict[int, Table] = {}

    def table(self, wanted: Wanted, shifts: Sequence[Array]) -> Table:
        """Return the table of addresses, which is rebuilt only if an array has been replaced.

        Parameters
        ----------
        wanted : Wanted
            Names of the arrays.
        shifts : sequence of (n, D) array
            One more array for each block, or no array at all.

        Raises
        ------
        ValueError
            If an array has the wrong shape, dtype or memory order.
        """
        arrays = [block[name] for block in self.blocks for name in wanted.names]
        arrays += shifts
        table = self._tables.get(id(wanted))
        if table is None or len(arrays) != len(table.arrays) or any(map(is_not, arrays, table.arrays)):
            table = self._tables[id(wanted)] = self._located(wanted, shifts, arrays)
        return table

    def _located(self, wanted: Wanted, shifts: Sequence[Array], arrays: list[Array]) -> Table:
        fields, rows, _ = wanted
        first = self.blocks[0][next(iter(fields.values()))]
        numbers, before = [], 0
        for place, (block, start) in enumerate(zip(self.blocks, self._starts, strict=True)):
            theirs = {name: block[array] for name, array in fields.items()}
            shape = (next(iter(theirs.values())).shape[0], *first.shape[1:])
            for name, array in theirs.items():
                if array.shape != shape or len(shape) != 2:
                    raise ValueError(f"field {name!r} has shape {array.shape}, the first one {shape}")
            of_rows = [block[name] for name in rows]
            for name, array in zip(rows, of_rows, strict=True):
                if array.shape != (shape[0], 1):
                    raise ValueError(f"{name!r} has shape {array.shape} where {(shape[0], 1)} is needed")
            shift = shifts[place : place + 1]
            if shift and shift[0].shape != shape:
                raise ValueError(f"the prior's shift has shape {shift[0].shape} where {shape} is needed")
            addressed = [*theirs.values(), *of_rows, *shift]
            if not all(array.flags.carray and array.dtype == first.dtype for array in addressed):
                raise ValueError(f"arrays must be C-contiguous, writable and {first.dtype} like the first field")
            numbers.append([shape[0], start, before, *(array.ctypes.data for array in addressed)])
            before += shape[0]
        return Table(np.array(numbers, np.int64), before, first.shape[1], first.dtype, arrays, wanted)
