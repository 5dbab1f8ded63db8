"""The blocks of both factors that a process holds: row blocks always, column blocks while they rest here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.targets.state import BlockLayout, Blocks, ParameterBlock
from dsgmcmc.types import Factor, Float32

if TYPE_CHECKING:
    pass  # which loads MPI

#: Makes a `ParameterBlock` from its factor, index, start, counts and arrays.
MakeBlock = Callable[..., ParameterBlock]


class LocalFactors:
    """The row blocks of a process, and the column blocks paired with them.

    Parameters
    ----------
    make : callable
        Makes a `ParameterBlock`; what all blocks have in common is already bound.
    ratings : RatingBlocks
        Bounds and counts of the blocks.
    row_blocks : range
        Row blocks of this process.
    layout : BlockLayout
        Fields that are sent with a block.
    scratch : tuple of str
        (n, D) arrays that are not sent; a column block uses those of the row block that it is paired with.
    dimension : int
        Columns D of a factor.
    """

    def __init__(
        self,
        make: MakeBlock,
        ratings: RatingBlocks,
        row_blocks: range,
        layout: BlockLayout,
        scratch: tuple[str, ...],
        dimension: int,
    ) -> None:
        self._make, self._ratings, self._row_blocks = make, ratings, row_blocks
        self.layout, self._scratch_names, self._dimension = layout, scratch, dimension
        self._grid = len(ratings.row_bounds) - 1
        largest = int(np.diff(ratings.column_bounds).max())
        self._spare = {b: {name: np.zeros((largest, dimension), np.float32) for name in scratch} for b in row_blocks}
        self.rows = {b: self._row(b) for b in row_blocks}
        self.columns: dict[int, ParameterBlock] = {}
        self._together: tuple[Blocks, Blocks] | None = None

    def length(self, column_block: int, width: int = 0) -> int:
        """Number of float32 that are sent of a column block: all its fields, or `width` columns."""
        start, stop = self._ratings.bounds(Factor.H, column_block)
        return (stop - start) * (width or self.layout.width)

    def place(self, part: int) -> None:
        """Allocate the column blocks that rest here during `part`, filled with zeros."""
        here = [column_of(b, part, self._grid) for b in self._row_blocks]
        self.columns = {}
        self.arrange({c: np.zeros(self.length(c), np.float32) for c in here}, part)

    def arrange(self, buffers: dict[int, Float32], part: int) -> None:
        """Make blocks of the column buffers that are here for `part`."""
        columns = {}
        for b in self._row_blocks:
            c = column_of(b, part, self._grid)
            block = self.columns.get(c)
            if block is None or block.buffer is not buffers[c]:
                block = self.column(c, self.layout, buffers[c])
            for name, spare in self._spare[b].items():
                block.arrays[name] = spare[: len(block.counts)]
            columns[c] = block
        self.columns, self._together = columns, None

    def column(self, index: int, layout: BlockLayout, buffer: Float32) -> ParameterBlock:
        """Column block `index`, with the fields of `layout` in this buffer."""
        start, stop = self._ratings.bounds(Factor.H, index)
        arrays = layout.views(buffer, stop - start)
        counts = self._ratings.column_counts[start:stop]
        return self._make(factor=Factor.H, index=index, start=start, counts=counts, arrays=arrays, buffer=buffer)

    def together(self) -> tuple[Blocks, Blocks]:
        """The row blocks, and the columns paired with them, in the same order."""
        if self._together is None:
            self._together = Blocks([*self.rows.values()]), Blocks([*self.columns.values()])
        return self._together

    def __iter__(self) -> Iterator[ParameterBlock]:
        """All blocks: rows in block order, then the columns paired with them."""
        yield from self.rows.values()
        yield from self.columns.values()

    def _row(self, index: int) -> ParameterBlock:
        start, stop = self._ratings.bounds(Factor.W, index)
        buffer = np.zeros((stop - start) * self.layout.width, np.float32)
        arrays = self.layout.views(buffer, stop - start)
        for name in self._scratch_names:
            arrays[name] = np.zeros((stop - start, self._dimension), np.float32)
        counts = self._ratings.row_counts[index]
        return self._make(factor=Factor.W, index=index, start=start, counts=counts, arrays=arrays, buffer=buffer)
