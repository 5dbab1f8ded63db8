"""The blocks of both factors that a process holds: row blocks for ever, column blocks while they rest here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dsgmcmc.parallel.partition import column_of
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.state import Layout, Side

if TYPE_CHECKING:
    from dsgmcmc.targets.base import World

Float32 = npt.NDArray[np.float32]


class Holdings:
    """Sides of the row blocks of a process and of the column blocks that meet them.

    Parameters
    ----------
    world : World
        What the sides belong to.
    ratings : RatingBlocks
        Bounds and counts of the blocks.
    row_blocks : range
        Row blocks of this process.
    layout : Layout
        What travels with a block.
    scratch : tuple of str
        (n, D) arrays that do not; a column block uses those of the row block that it meets.
    dimension : int
        Columns D of a factor.
    """

    def __init__(
        self,
        world: World,
        ratings: RatingBlocks,
        row_blocks: range,
        layout: Layout,
        scratch: tuple[str, ...],
        dimension: int,
    ) -> None:
        self._world, self._ratings, self._row_blocks = world, ratings, row_blocks
        self.layout, self._scratch_names, self._dimension = layout, scratch, dimension
        self._grid = len(ratings.row_bounds) - 1
        largest = int(np.diff(ratings.column_bounds).max())
        self._spare = {b: {name: np.zeros((largest, dimension), np.float32) for name in scratch} for b in row_blocks}
        self.rows = {b: self._row(b) for b in row_blocks}
        self.columns: dict[int, Side] = {}

    def bounds(self, factor: str, index: int) -> tuple[int, int]:
        """First and last + 1 global row of a block of `factor`."""
        bounds = self._ratings.row_bounds if factor == "W" else self._ratings.column_bounds
        return int(bounds[index]), int(bounds[index + 1])

    def length(self, column_block: int, width: int = 0) -> int:
        """Number of float32 with which a column block travels, with all its fields or with `width` columns."""
        start, stop = self.bounds("H", column_block)
        return (stop - start) * (width or self.layout.width)

    def place(self, part: int) -> None:
        """Allocate the column blocks that rest here during `part`, filled with zeros."""
        here = [column_of(b, part, self._grid) for b in self._row_blocks]
        self.columns = {}
        self.settle({c: np.zeros(self.length(c), np.float32) for c in here}, part)

    def settle(self, buffers: dict[int, Float32], part: int) -> None:
        """Make sides of the column blocks that are here for `part`."""
        columns = {}
        for b in self._row_blocks:
            c = column_of(b, part, self._grid)
            side = self.columns.get(c)
            if side is None or side.buffer is not buffers[c]:
                side = self._column(c, buffers[c])
            for name, spare in self._spare[b].items():
                side.arrays[name] = spare[: len(side.counts)]
            columns[c] = side
        self.columns = columns

    def __iter__(self) -> Iterator[Side]:
        """All sides: rows in block order, then the columns that they meet."""
        yield from self.rows.values()
        yield from self.columns.values()

    def _row(self, index: int) -> Side:
        start, stop = self.bounds("W", index)
        buffer = np.zeros((stop - start) * self.layout.width, np.float32)
        arrays = self.layout.views(buffer, stop - start)
        for name in self._scratch_names:
            arrays[name] = np.zeros((stop - start, self._dimension), np.float32)
        return Side(self._world, "W", index, start, self._ratings.row_counts[index], arrays, buffer)

    def _column(self, index: int, buffer: Float32) -> Side:
        start, stop = self.bounds("H", index)
        arrays = self.layout.views(buffer, stop - start)
        return Side(self._world, "H", index, start, self._ratings.column_counts[start:stop], arrays, buffer)
