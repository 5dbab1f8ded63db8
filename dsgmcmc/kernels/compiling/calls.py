"""Tables of addresses: one call of a kernel works on the arrays of many cells, in their order.

A call of a kernel costs some microseconds, mostly to check and convert its arrays: in small models
more than its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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

    def addresses(self, cells: Iterable[tuple[Array, ...]]) -> Int64:
        """Return (cells, 2 arrays) int64: the address and the size of every array of each cell.

        The arrays must stay alive, and in their place, as long as the addresses are used.

        Raises
        ------
        TypeError
            If an array has another type than the layout, or is not contiguous.
        """
        numbers: list[int] = []
        for cell in cells:
            for k, (array, dtype) in enumerate(zip(cell, self.dtypes, strict=True)):
                if array.dtype != dtype or not array.flags.c_contiguous:
                    raise TypeError(
                        f"array {k} of a cell is {array.dtype}; contiguous {dtype} needed"
                    )
                numbers += (array.ctypes.data, array.size)
        return np.array(numbers, np.int64).reshape(-1, 2 * len(self.dtypes))
