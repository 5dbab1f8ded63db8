"""The blocks of both factors that a process holds: row blocks always, column blocks while they rest here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.targets.state import BlockLayout, Blocks, ParameterBlock
from dsgmcmc.types import Factor, Float32

#: Bytes of all column blocks up to which those that have left keep their memory: to use it again takes less time.
KEPT = 1 << 26

#: Makes a `ParameterBlock` from its factor, index, start, counts and arrays.
MakeBlock = Callable[..., ParameterBlock]


def keeps_what_left(columns: int, width: int) -> bool:
    """Whether column blocks that have left keep their memory: of so many columns, and so many float32 for each."""
    return 4 * columns * width <= KEPT


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
        (n, D) arrays that are not sent.
    dimension : int
        Columns D of a factor.

    Attributes
    ----------
    rows, columns : dict of int to ParameterBlock
        Those that are here, by their number.
    left : dict of int to ParameterBlock
        Column blocks that have left, whose memory is kept.
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
        self._keeps = keeps_what_left(int(ratings.column_bounds[-1]), layout.width + dimension * len(scratch))
        self.left: dict[int, ParameterBlock] = {}
        self._scratch: dict[int, dict[str, Float32]] = {}  # by column block
        self._spare: list[dict[str, Float32]] = []  # of blocks that have left
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
        self.columns, self.left, self._scratch, self._spare = {}, {}, {}, []
        self.arrange({c: np.zeros(self.length(c), np.float32) for c in here}, part)

    def buffer(self, column_block: int) -> Float32:
        """Memory for a column block that arrives: that which it had when it was here last, if it was kept."""
        left = self.left.get(column_block)
        return np.empty(self.length(column_block), np.float32) if left is None else left.buffer

    def arrange(self, buffers: dict[int, Float32], part: int) -> None:
        """Make blocks of the column buffers that are here for `part`."""
        here = [column_of(b, part, self._grid) for b in self._row_blocks]
        for c in self.columns.keys() - here:
            if self._keeps:
                self.left[c] = self.columns[c]
            else:
                self._spare.append(self._scratch.pop(c))
        self.columns = {c: self._resting(c, buffers[c]) for c in here}
        self._together = None

    def _resting(self, index: int, buffer: Float32) -> ParameterBlock:
        """Column block that rests here, with scratch; the one that was made before, if this is its buffer."""
        known = self.columns.get(index) or self.left.pop(index, None)
        if known is not None and known.buffer is buffer:
            return known
        block = self.column(index, self.layout, buffer)
        rows = len(block.counts)
        if index not in self._scratch:
            self._scratch[index] = self._spare.pop() if self._spare else self._new_scratch(rows)
        block.arrays |= {name: whole[:rows] for name, whole in self._scratch[index].items()}
        return block

    def _new_scratch(self, rows: int) -> dict[str, Float32]:
        """Scratch for a column block of so many rows, or, if others will use it, for the largest."""
        room = rows if self._keeps else int(np.diff(self._ratings.column_bounds).max())
        return {name: np.zeros((room, self._dimension), np.float32) for name in self._scratch_names}

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
