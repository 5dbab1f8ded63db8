"""Tables of addresses: one call of a kernel works on the arrays of many cells, in their order.

A call of a kernel costs some microseconds, mostly to check and convert its arrays: in small models
more than its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_not

import numpy as np

from dsgmcmc.types import Array, Int64


class Layout:
    """Types of the arrays of a cell by their names in the kernel, which sees them flat."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self.dtypes = tuple(np.dtype(name) for name in types.values())

    def lines(self, table: str, row: str) -> list[str]:
        """Source that makes the arrays of a row of the table.

        It needs Numba's ``carray``, and ``pointer`` of `dsgmcmc.kernels.compiling.vectors`.
        """
        lines = []
        for k, (name, dtype) in enumerate(self._types.items()):
            address = f"pointer({table}[{row}, {2 * k}])"
            lines += [f"{name} = carray({address}, {table}[{row}, {2 * k + 1}], np.{dtype})"]
        return lines


class CallTable:
    """Addresses and sizes of the arrays of several cells.

    Parameters
    ----------
    layout : Layout
        Types of the arrays of a cell.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._arrays: list[Array] = []  # they stay alive as long as their addresses
        self._addresses = np.zeros((0, 2 * len(layout.dtypes)), np.int64)

    def addresses(self, cells: Iterable[tuple[Array, ...]]) -> Int64:
        """Return (cells, 2 arrays) int64: the address and the size of every array of each cell.

        They are looked up only if an array is another object than at the last call.

        Raises
        ------
        TypeError
            If an array has another type than the layout, or is not contiguous.
        """
        arrays = [array for cell in cells for array in cell]
        if len(arrays) != len(self._arrays) or any(map(is_not, arrays, self._arrays)):
            self._addresses = self._look_up(arrays)
            self._arrays = arrays
        return self._addresses

    def _look_up(self, arrays: list[Array]) -> Int64:
        dtypes = self._layout.dtypes
        numbers: list[int] = []
        for k, array in enumerate(arrays):
            dtype = dtypes[k % len(dtypes)]
            if array.dtype != dtype or not array.flags.c_contiguous:
                raise TypeError(
                    f"array {k % len(dtypes)} of a cell is {array.dtype}; contiguous {dtype} needed"
                )
            numbers += (array.ctypes.data, array.size)
        return np.array(numbers, np.int64).reshape(-1, 2 * len(dtypes))
