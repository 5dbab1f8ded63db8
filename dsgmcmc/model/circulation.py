"""The blocks of both factors on a process, and how they are sent.

Row blocks stay on their process. Column blocks go round the ring: between iterations, a column
block rests on the process whose row block it is paired with in the next iteration's part of the
data. Its home is the process with the row block of the same number; in part 0, all column blocks
are at home.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.gradient import spread_kernel
from dsgmcmc.model.blocks import CellRatings, RatingBlocks
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.parallel.ring import Move, Ring, SharedTour
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.parallel.shared_buffers import SharedColumnBuffers
from dsgmcmc.targets.state import BlockLayout, ParameterBlock, Rows, StateField
from dsgmcmc.types import Array, Factor, Float32, Int64

OTHER = {Factor.W: Factor.H, Factor.H: Factor.W}

#: Makes a `ParameterBlock` from its factor, index, start, counts, arrays and buffer.
MakeBlock = Callable[..., ParameterBlock]


class RatingsCell(NamedTuple):
    """A row block, a column block, and their training ratings.

    On a tour, the column block has only the arrays sent.

    Attributes
    ----------
    row, column : ParameterBlock
    ratings : CellRatings
    """

    row: ParameterBlock
    column: ParameterBlock
    ratings: CellRatings

    def arguments(self, position: str, out: str) -> tuple[Array, ...]:
        """First arguments of gradient kernels: the ratings, then fields `position` and `out`.

        Each field is that of the row block, then that of the column block.
        """
        row = self.row.arrays
        column = self.column.arrays
        return (*self.ratings.arrays, row[position], column[position], row[out], column[out])


class _Copies(NamedTuple):
    """Copies of some arrays of the column blocks, sent round on tours.

    Copies in shared memory are created once.
    """

    layout: BlockLayout
    shared: SharedColumnBuffers | None = None
    tour: SharedTour | None = None
    blocks: Mapping[int, ParameterBlock] = {}


@dataclass(eq=False)
class Circulation:
    """The blocks of both factors on the ring.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows; bounds and counts of the blocks.
    schedule : Schedule or None
        The part of the data that each iteration visits; None if the column blocks stay at home.
    make : callable
        Makes a `ParameterBlock`; the arguments common to all blocks are already bound.
    layout : BlockLayout
        Fields that are sent with a block.
    scratch : tuple of str
        Names of (n, D) arrays that are not sent.
    dimension : int
        Number D of columns of a factor.

    Attributes
    ----------
    rows, columns : dict of int to ParameterBlock
        Blocks that rest on this process, by block number.
    part : int
        The part of the data whose pairs of row and column blocks rest on the same process.
    part_probability : float
        Probability p_t that an iteration visits this part; 1 without a schedule.
    """

    ring: Ring
    ratings: RatingBlocks
    schedule: Schedule | None
    make: MakeBlock
    layout: BlockLayout
    scratch: tuple[str, ...]
    dimension: int

    def __post_init__(self) -> None:
        self.grid = self.ring.grid
        self._shared: dict[int, SharedColumnBuffers | None] = {}  # by width of the layout
        self._copies: dict[tuple[str, ...], _Copies] = {}  # by names of arrays
        self._groups: tuple[Rows, Rows] | None = None
        self._order = [
            (b, column_of(b, step, self.grid))
            for step in range(self.grid)
            for b in self.ring.blocks
        ]
        self.ring.check_blocks(map(self._length, range(self.grid)))
        self.rows = {b: self._row(b) for b in self.ring.blocks}
        self.allocate_columns(0)

    def allocate_columns(self, iteration: int) -> None:
        """Allocate the column blocks that rest on this process when `iteration` begins.

        They are filled with zeros.
        """
        self._set_part(self._part_of(iteration))
        self.columns: dict[int, ParameterBlock] = {}
        self._scratch: dict[int, dict[str, Float32]] = {}  # by column block
        self._arrange({c: np.zeros(self._length(c), np.float32) for c in self._resting()})

    def _part_of(self, iteration: int) -> int:
        """The part of the data that an iteration visits; 0 without a schedule."""
        if self.schedule is None:
            return 0
        return self.schedule.part(iteration)

    def _set_part(self, part: int) -> None:
        self.part = part
        self.part_probability = 1.0
        if self.schedule is not None:
            self.part_probability = float(self.schedule.probability[part])

    # ------------------------------------------------------------------ blocks on this process

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks that rest on this process: row blocks, then column blocks.

        Both are in the order of `pairs`.
        """
        yield from self.rows.values()
        yield from self.columns.values()

    def pairs(self) -> Iterator[tuple[ParameterBlock, ParameterBlock]]:
        """Row blocks of this process, in order, each with the column block paired with it."""
        for b, row in self.rows.items():
            yield row, self.columns[column_of(b, self.part, self.grid)]

    def rows_by_factor(self) -> Iterator[Rows]:
        """The row blocks of this process as one group, then the column blocks.

        Both are in the order of `pairs`.
        """
        if self._groups is None:
            of_rows = Rows([*self.rows.values()])
            of_columns = Rows([*self.columns.values()])
            self._groups = (of_rows, of_columns)
        yield from self._groups

    # ------------------------------------------------------------------ memory of column blocks

    def _resting(self) -> list[int]:
        """Numbers of the column blocks that rest on this process."""
        return [column_of(b, self.part, self.grid) for b in self.ring.blocks]

    def _length(self, column_block: int, width: int = 0) -> int:
        """Number of float32 in a column block's buffer of this width; 0: of all fields."""
        if width == 0:
            width = self.layout.width
        start, stop = self.ratings.bounds(Factor.H, column_block)
        return (stop - start) * width

    def _arrange(self, buffers: dict[int, Float32]) -> None:
        """Make column blocks from the buffers that have arrived.

        They reuse the scratch of blocks that have left.
        """
        here = self._resting()
        spare = [self._scratch.pop(c) for c in self.columns.keys() - here]
        self.columns = {c: self._arrived(c, buffers[c], spare) for c in here}
        self._groups = None

    def _arrived(
        self, index: int, buffer: Float32, spare: list[dict[str, Float32]]
    ) -> ParameterBlock:
        """The column block with this buffer and its scratch; as it is, if it has stayed."""
        known = self.columns.get(index)
        if known is not None and known.buffer is buffer:
            return known
        block = self._block(Factor.H, index, self.layout, buffer)
        if index not in self._scratch:
            self._scratch[index] = spare.pop() if spare else self._new_scratch()
        for name, array in self._scratch[index].items():
            block.arrays[name] = array[: len(block.counts)]
        return block

    def _new_scratch(self) -> dict[str, Float32]:
        """Scratch arrays with as many rows as the largest column block."""
        shape = (int(np.diff(self.ratings.column_bounds).max()), self.dimension)
        return {name: np.zeros(shape, np.float32) for name in self.scratch}

    def _block(
        self, factor: Factor, index: int, layout: BlockLayout, buffer: Float32
    ) -> ParameterBlock:
        """Block `index` of a factor, with the fields of `layout` in this buffer."""
        start, stop = self.ratings.bounds(factor, index)
        if factor == Factor.W:
            counts = self.ratings.row_counts[index]
        else:
            counts = self.ratings.column_counts[start:stop]
        return self.make(
            factor=factor,
            index=index,
            start=start,
            counts=counts,
            arrays=layout.views(buffer, stop - start),
            buffer=buffer,
        )

    def _row(self, index: int) -> ParameterBlock:
        """Row block `index`, filled with zeros."""
        n = len(self.ratings.row_counts[index])
        buffer = np.zeros(n * self.layout.width, np.float32)
        block = self._block(Factor.W, index, self.layout, buffer)
        for name in self.scratch:
            block.arrays[name] = np.zeros((n, self.dimension), np.float32)
        return block

    # ------------------------------------------------------------------ sending blocks

    def visit(self, iteration: int, send: bool) -> Iterator[RatingsCell]:
        """Yield the cells of the part that `iteration` visits.

        With `send`, each column block is sent to where the next iteration needs it, as soon as its
        cell was visited. Cells whose column blocks leave this process come first.
        """
        if not send:
            for b in self.ring.blocks:
                yield self._cell(b, self.columns[column_of(b, self.part, self.grid)])
            return

        def new(c: int) -> Float32:
            return np.empty(self._length(c), np.float32)

        after = self._part_of(iteration + 1)
        buffers = {c: column.buffer for c, column in self.columns.items()}
        move = Move(self.ring, buffers, self.part, after, new)
        for b in move.order:
            c = column_of(b, self.part, self.grid)
            yield self._cell(b, self.columns[c])
            move.depart(c)
        arrived = move.finish()
        self._set_part(after)
        self._arrange(arrived)

    def tour(
        self, names: Sequence[str], returning: Sequence[str] = (), sums: Sequence[str] = ()
    ) -> Iterator[RatingsCell]:
        """Yield the cells of every row block with all column blocks, at a frozen state. Collective.

        A row block meets the column blocks in an order that does not depend on the number of
        processes, so that sums do not depend on it either, to the bit.

        Parameters
        ----------
        names : sequence of str
            Arrays of the column blocks that are needed.
        returning : sequence of str
            Arrays among `names` that change, and are sent back to where their blocks rest.
        sums : sequence of str
            Arrays among `returning` that are first set to zero, in row blocks and column blocks.
        """
        if self.ring.size == 1:
            _set_to_zero(self.blocks(), sums)
            yield from [self._cell(b, self.columns[c]) for b, c in self._order]
            return
        _set_to_zero(self.rows.values(), sums)
        copies = self._copies_of(names)
        if copies.shared:
            with self.ring.phases("exchange"):
                copies.shared.claim()
        buffers = self._copies_at_home(copies, sums)
        if copies.tour:
            for b, c in copies.tour(bool(returning)):
                yield self._cell(b, copies.blocks[c])
        else:
            length = partial(self._length, width=copies.layout.width)
            for b, c, buffer in self.ring.tour(buffers, length, bool(returning)):
                yield self._cell(b, self._copy(copies, c, buffer))
        if returning:
            self._take_back(copies, buffers, returning)

    def pair_counts(self, block: ParameterBlock) -> Int64:
        """Number of rows with which every row of a block has training ratings, (n,) int64."""
        if block.factor == Factor.W:
            return self.ratings.row_pairs[block.index]
        return self.ratings.column_pairs[block.start : block.start + len(block.counts)]

    def spread(
        self,
        sent: str,
        got: str,
        factors: Collection[Factor] = tuple(Factor),
        *,
        by_pair: bool = False,
    ) -> None:
        """Set `got` of every row to the sum of `sent` over the rows with which it has ratings.

        Collective. Only rows of these factors are set. A row with which it has several ratings
        counts as often or, `by_pair`, once.
        """
        letters = "".join(factor.name.lower() for factor in Factor if factor in factors)
        with self.ring.phases("gradient"):
            for row, column, ratings in self.tour((sent, got), returning=(got,), sums=(got,)):
                spread = spread_kernel(row[sent].shape[1], letters)
                if by_pair:
                    ratings = ratings.pairs
                spread(*ratings.pattern, row[sent], column[sent], row[got], column[got])

    def home(self, names: Sequence[str], returning: Sequence[str] = ()) -> Iterator[ParameterBlock]:
        """Yield this process's row blocks, and the column blocks at home here. Collective.

        Column blocks that are not at home are copied there with the fields `names`; fields in
        `returning` are copied back.
        """
        yield from self.rows.values()
        if self.part == 0 or self.ring.size == 1:
            yield from self.columns.values()
            return
        copies = _Copies(self._layout(names))
        buffers = self._copies_at_home(copies)
        yield from (self._copy(copies, c, buffer) for c, buffer in buffers.items())
        if returning:
            self._take_back(copies, buffers, returning)

    def _layout(self, names: Sequence[str]) -> BlockLayout:
        """Layout of copies of these arrays of a column block."""
        arrays = next(iter(self.columns.values())).arrays
        return BlockLayout([StateField(name, arrays[name].shape[1]) for name in names], 0)

    def _copies_of(self, names: Sequence[str]) -> _Copies:
        """Copies of these arrays of the column blocks, made once. Collective."""
        key = tuple(names)
        if key not in self._copies:
            self._copies[key] = self._new_copies(self._layout(names))
        return self._copies[key]

    def _new_copies(self, layout: BlockLayout) -> _Copies:
        """Layout and memory of copies of arrays of the column blocks. Collective."""
        length = partial(self._length, width=layout.width)
        if layout.width not in self._shared:
            lengths = [length(c) for c in range(self.grid)]
            self._shared[layout.width] = self.ring.shared_buffers(lengths)
        shared = self._shared[layout.width]
        if not shared:
            return _Copies(layout)
        blocks = {}
        for c in range(self.grid):
            blocks[c] = self._block(Factor.H, c, layout, shared.buffer(c, length(c)))
        return _Copies(layout, shared, SharedTour(self.ring, shared, length), blocks)

    def _copies_at_home(self, copies: _Copies, sums: Sequence[str] = ()) -> dict[int, Float32]:
        """Return copies of the column blocks whose home is this process, with `sums` set to zero.

        Collective.
        """
        buffers = {}
        for c, block in self.columns.items():
            copy = self._copy(copies, c, self._buffer(copies, c))
            for name in copies.layout.names:
                if name in sums:
                    copy[name].fill(0.0)
                else:
                    copy[name][:] = block[name]
            buffers[c] = copy.buffer
        return self._moved(buffers, copies, self.part, 0)

    def _take_back(
        self, copies: _Copies, buffers: dict[int, Float32], names: Sequence[str]
    ) -> None:
        """Copy these fields from the copies at home back to where the column blocks rest.

        Collective.
        """
        for c, buffer in self._moved(buffers, copies, 0, self.part).items():
            copy = self._copy(copies, c, buffer)
            for name in names:
                self.columns[c][name][:] = copy[name]
        if copies.shared:
            copies.shared.release()

    def _buffer(self, copies: _Copies, c: int) -> Float32:
        """Buffer for the copy of a column block."""
        length = self._length(c, copies.layout.width)
        if copies.shared:
            return copies.shared.buffer(c, length)
        return np.empty(length, np.float32)

    def _copy(self, copies: _Copies, c: int, buffer: Float32) -> ParameterBlock:
        """Copy of a column block, in this buffer; in shared memory it exists already."""
        if copies.blocks:
            return copies.blocks[c]
        return self._block(Factor.H, c, copies.layout, buffer)

    def _moved(
        self, buffers: dict[int, Float32], copies: _Copies, part: int, after: int
    ) -> dict[int, Float32]:
        """Move copies to where column blocks rest in part `after`, from part `part`. Collective."""
        if part == after:
            return buffers
        peers = copies.shared.peers if copies.shared else ()
        move = Move(self.ring, buffers, part, after, partial(self._buffer, copies), peers)
        for c in buffers:
            move.depart(c)
        return move.finish()

    def _cell(self, row_block: int, column: ParameterBlock) -> RatingsCell:
        """The cell of a row block and a column block, with its current training ratings."""
        ratings = self.ratings.train[row_block, column.index]
        return RatingsCell(self.rows[row_block], column, ratings)


def _set_to_zero(blocks: Iterable[ParameterBlock], names: Sequence[str]) -> None:
    """Set these arrays of blocks to zero."""
    for block in blocks:
        for name in names:
            block[name].fill(0.0)
