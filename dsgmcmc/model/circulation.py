"""Which process holds each column block, and how blocks are sent: row blocks stay, column blocks go round the ring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsgmcmc.kernels.pattern import spread_kernel
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.factors import LocalFactors
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.targets.state import BlockLayout, Blocks, ParameterBlock, StateField
from dsgmcmc.types import Float32

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring, SharedTour  # which load MPI
    from dsgmcmc.parallel.shared_buffers import SharedColumnBuffers


class _Copies(NamedTuple):
    """Copies of some arrays of all column blocks, which go on tours; in shared memory they are made once."""

    layout: BlockLayout
    shared: SharedColumnBuffers | None = None
    tour: SharedTour | None = None
    blocks: Mapping[int, ParameterBlock] = {}


class Circulation:
    """The blocks of both factors on the ring.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    schedule : Schedule or None
        Which part each iteration visits; None if the column blocks stay at home.
    factors : LocalFactors
        The blocks that this process holds.

    Attributes
    ----------
    part : int
        The part at which the column blocks rest.
    part_probability : float
        Probability p_t of visiting that part; 1 if there are no parts.
    """

    def __init__(self, ring: Ring, ratings: RatingBlocks, schedule: Schedule | None, factors: LocalFactors) -> None:
        self.ring, self.ratings, self.schedule, self.factors = ring, ratings, schedule, factors
        self.grid = ring.grid
        self._shared: dict[int, SharedColumnBuffers | None] = {}  # by width of the layout
        self._copies: dict[tuple[str, ...], _Copies] = {}  # by names of arrays
        self.place(0)

    def place(self, iteration: int) -> None:
        """Allocate the column blocks that rest here before `iteration`; the caller sets their contents."""
        self._at(self._part_of(iteration))
        self.factors.place(self.part)

    def _part_of(self, iteration: int) -> int:
        return self.schedule.part(iteration) if self.schedule else 0

    def _at(self, part: int) -> None:
        self.part = part
        self.part_probability = float(self.schedule.probability[part]) if self.schedule else 1.0

    # ------------------------------------------------------------------ what rests here

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks that rest here: rows in block order, then the columns paired with them."""
        yield from self.factors

    def pairs(self) -> Iterator[tuple[ParameterBlock, ParameterBlock]]:
        """Row blocks of this process, in order, with the column blocks that rest with them."""
        for b, row in self.factors.rows.items():
            yield row, self.factors.columns[column_of(b, self.part, self.grid)]

    def together(self) -> Iterator[Blocks]:
        """The row blocks of this process, then the column blocks that rest with them, in the order of `pairs`."""
        yield from self.factors.together()

    # ------------------------------------------------------------------ travelling

    def visit(self, iteration: int, send: bool) -> Iterator[RatingsCell]:
        """Cells of an iteration's part; with `send` the departing ones come first, and are sent during the others."""
        going = None
        columns = self.factors.columns
        if send:
            after = self._part_of(iteration + 1)
            buffers = {c: column.buffer for c, column in columns.items()}
            going = self.ring.move(buffers, self.part, after, self.factors.buffer)
        for b in going.order if going else self.ring.blocks:
            c = column_of(b, self.part, self.grid)
            yield self._cell(b, columns[c])
            if going:
                going.depart(c)
        if going:
            arrived = going.finish()
            self._at(after)
            self.factors.arrange(arrived, after)

    def tour(
        self, names: Sequence[str], returning: Sequence[str] = (), sums: Sequence[str] = ()
    ) -> Iterator[RatingsCell]:
        """Pair every row block with all column blocks, at a frozen state. Collective.

        Every row block meets them in the same order on any number of processes, so that sums have the same bits.

        Parameters
        ----------
        names : sequence of str
            Arrays of the column blocks that are needed.
        returning : sequence of str
            Those of them that change, and are sent back to where their blocks rest.
        sums : sequence of str
            Those of the latter that begin at zero, of all blocks.
        """
        factors, alone = self.factors, self.ring.size == 1
        for block in self.blocks() if alone else factors.rows.values():
            for name in sums:
                block[name].fill(0.0)
        if alone:
            for step in range(self.grid):
                for b in self.ring.blocks:
                    yield self._cell(b, factors.columns[column_of(b, step, self.grid)])
            return
        copies = self._copies_of(tuple(names))
        layout, shared = copies.layout, copies.shared
        if shared:
            with self.ring.phases("exchange"):
                shared.claim()
        buffers = self._brought_home(copies, sums)
        if copies.tour:
            for b, c in copies.tour(bool(returning)):
                yield self._cell(b, copies.blocks[c])
        else:
            for b, c, buffer in self.ring.tour(buffers, partial(factors.length, width=layout.width), bool(returning)):
                yield self._cell(b, factors.column(c, layout, buffer))
        if returning:
            self._take_back(copies, buffers, returning)

    def spread(self, sent: str, got: str) -> None:
        """Set `got` of all rows to the sum of `sent` over the rows that they have ratings with. Collective."""
        for cell in self.tour((sent, got), returning=(got,), sums=(got,)):
            begin = self.ring.phases.enter()
            arrays = (cell.row[sent], cell.column[sent], cell.row[got], cell.column[got])
            spread_kernel(cell.row[sent].shape[1])(*cell.ratings.pattern, *arrays)
            self.ring.phases.leave("gradient", begin)

    def home(self, names: Sequence[str], returning: Sequence[str] = ()) -> Iterator[ParameterBlock]:
        """Row blocks, and the column blocks of the same index with these fields, wherever they rest. Collective.

        Fields in `returning` are taken back to where the column blocks rest.
        """
        yield from self.factors.rows.values()
        if self.part == 0 or self.ring.size == 1:
            yield from self.factors.columns.values()
            return
        copies = _Copies(self._layout(names))
        buffers = self._brought_home(copies)
        yield from (self.factors.column(c, copies.layout, buffer) for c, buffer in buffers.items())
        if returning:
            self._take_back(copies, buffers, returning)

    def _layout(self, names: Sequence[str]) -> BlockLayout:
        """Layout of copies of these arrays of a column block."""
        arrays = next(iter(self.factors.columns.values())).arrays
        return BlockLayout([StateField(name, arrays[name].shape[1]) for name in names], 0)

    def _copies_of(self, names: tuple[str, ...]) -> _Copies:
        """How copies of these arrays travel; the same in every tour. Collective."""
        copies = self._copies.get(names)
        if copies is None:
            copies = self._copies[names] = self._new_copies(self._layout(names))
        return copies

    def _new_copies(self, layout: BlockLayout) -> _Copies:
        length = partial(self.factors.length, width=layout.width)
        if layout.width not in self._shared:
            self._shared[layout.width] = self.ring.shared_buffers([length(c) for c in range(self.grid)])
        shared = self._shared[layout.width]
        if not shared:
            return _Copies(layout)
        blocks = {c: self.factors.column(c, layout, shared.buffer(c, length(c))) for c in range(self.grid)}
        return _Copies(layout, shared, self.ring.shared_tour(shared, length), blocks)

    def _brought_home(self, copies: _Copies, sums: Sequence[str] = ()) -> dict[int, Float32]:
        """Copies of arrays of the column blocks whose home this is, wherever they rest; `sums` are zero. Collective."""
        buffers = {}
        for c, block in self.factors.columns.items():
            copy = self._copy(copies, c)
            for name in copies.layout.names:
                if name in sums:
                    copy[name].fill(0.0)
                else:
                    copy[name][:] = block[name]
            buffers[c] = copy.buffer
        return self._moved(buffers, copies, self.part, 0)

    def _take_back(self, copies: _Copies, buffers: dict[int, Float32], names: Sequence[str]) -> None:
        """Copy fields from the copies at home back to the column blocks, wherever they rest. Collective."""
        for c, buffer in self._moved(buffers, copies, 0, self.part).items():
            block, copy = self.factors.columns[c], self._copy(copies, c, buffer)
            for name in names:
                block[name][:] = copy[name]
        if copies.shared:
            copies.shared.release()

    def _copy(self, copies: _Copies, c: int, buffer: Float32 | None = None) -> ParameterBlock:
        """Copy of a column block, which in shared memory is there."""
        if copies.blocks:
            return copies.blocks[c]
        if buffer is None:
            buffer = np.empty(self.factors.length(c, copies.layout.width), np.float32)
        return self.factors.column(c, copies.layout, buffer)

    def _moved(
        self,
        buffers: dict[int, Float32],
        copies: _Copies,
        part: int,
        after: int,
    ) -> dict[int, Float32]:
        """Move copies from where `part` has the column blocks to where `after` has them. Collective."""
        if part == after:
            return buffers
        shared, length = copies.shared, partial(self.factors.length, width=copies.layout.width)

        def buffer(c: int) -> Float32:
            return shared.buffer(c, length(c)) if shared else np.empty(length(c), np.float32)

        going = self.ring.move(buffers, part, after, buffer, shared.peers if shared else ())
        for c in buffers:
            going.depart(c)
        return going.finish()

    def _cell(self, row_block: int, column: ParameterBlock) -> RatingsCell:
        return RatingsCell(self.factors.rows[row_block], column, self.ratings.train[row_block, column.index])
