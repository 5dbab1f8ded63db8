"""Groups of ratings that were given together in time, and the effects of these groups.

A *level of time* divides the ratings of every row of a factor into groups. It is named after its
entity and the size of its groups: ``user:page`` has a group for each second in which a user rated,
``user:8`` a group for every eight ratings of a user in the order of time. Levels of items are named
likewise. Each sort of level helps beside the other (docs/time.md). Test ratings belong to groups as
training ratings do.

The groups of a row of W are on the row's process and need no messages; the effects of the groups of
a column are on the home of its block, and go round the ring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.philox import normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.orientation import Orientation
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES, SLAB, Split, Times, row_slabs
from dsgmcmc.settings import named
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Factor, Float32, Int32, Int64, Purpose

PAGE = "page"

#: Numbers of a row block and of a column block.
CellNumber = tuple[int, int]


def counted_times(ratings: Ratings, factor: Factor) -> Times:
    """Number of ratings, and of seconds with ratings, of every row of a factor, (n,) each.

    Raises
    ------
    InputError
        If the ratings file has no times.
    """
    if ratings.times is None:
        raise InputError(
            f"{ratings.path} has no times for {named('time_levels')}: prepare it again with"
            " `dsgmcmc prepare --timestamps`"
        )
    return ratings.times[SIDES[factor]]


class TimeLevel(NamedTuple):
    """One level of time.

    Attributes
    ----------
    name : str
        Such as ``user:8``.
    factor : Factor
        The factor to whose rows the groups belong.
    run : int
        Number of ratings in a group; 0 if groups are pages.
    """

    name: str
    factor: Factor
    run: int

    @property
    def field(self) -> str:
        """Name on disk of the level's effects."""
        return f"time.{self.name.replace(':', '.')}"

    def counts(self, ratings: Ratings) -> Int32:
        """Number of groups of every row of the level's factor, (n,)."""
        times = counted_times(ratings, self.factor)
        if self.run == 0:
            return times.page
        return -(-times.place // np.int32(self.run))  # rounded up

    def within(self, ratings: Ratings, split: Split, start: int, stop: int) -> Int32:
        """Groups of a split's ratings in rows `start` to `stop`, (m,), from 0 in every row."""
        times = ratings.times_slab(split, SIDES[self.factor], start, stop)
        if self.run == 0:
            return times.page
        return times.place // np.int32(self.run)


def time_levels_of(names: Iterable[str], orientation: Orientation) -> tuple[TimeLevel, ...]:
    """Levels of canonical names; `orientation` says which factor's rows stand for users."""
    levels = []
    for name in names:
        entity, _, size = name.partition(":")
        run = 0
        if size != PAGE:
            run = int(size)
        levels.append(TimeLevel(name, orientation.factor_of(entity), run))
    return tuple(levels)


class TimeCosts(NamedTuple):
    """Bytes for the groups of all ratings in memory, and for their effects in a checkpoint."""

    memory: int
    checkpoint: int


def costs_of(levels: Sequence[TimeLevel], ratings: Ratings, normal: bool) -> TimeCosts:
    """What levels of time cost.

    `normal` says whether ratings are normal given their predictors.
    """
    if not levels:
        return TimeCosts(0, 0)
    counts = [level.counts(ratings).sum(dtype=np.int64).item() for level in levels]
    effects = 4 * sum(counts)
    # every rating has its groups and the sum of their effects
    kept = (ratings.nnz + ratings.nnz_test) * 4 * (len(levels) + 1)
    if normal:  # while effects are drawn, a rating has a residual and a weight
        drawing = ratings.nnz * 8
    else:  # or a predictor and three terms of its score, and a group of one level has twelve sums
        drawing = ratings.nnz * 16 + 48 * max(counts)
    return TimeCosts(kept + drawing + effects, effects)


class RatingGroups(NamedTuple):
    """Groups of the ratings that a process holds.

    Attributes
    ----------
    levels : tuple of TimeLevel
    first : list of (B + 1,) int64
        By level, the number of the first group of each block of the level's factor.
    train : list of dict of (int, int) to (nnz,) int32
        By level, the group of every training rating of a cell, counted from 0 in the block of the
        level's factor.
    test : list of dict of int to (q,) int32
        By level, the group of every test rating of a row block, counted likewise.
    """

    levels: tuple[TimeLevel, ...]
    first: list[Int64]
    train: list[dict[CellNumber, Int32]]
    test: list[dict[int, Int32]]

    def size(self, level: int, block: int) -> int:
        """Number of groups in a block of the level's factor."""
        return int(self.first[level][block + 1] - self.first[level][block])


def read_groups(
    levels: tuple[TimeLevel, ...], ratings: Ratings, blocks: RatingBlocks, ring: Ring
) -> RatingGroups:
    """Read the groups of the ratings that a process holds. Collective.

    Parameters
    ----------
    levels : tuple of TimeLevel
    ratings : Ratings
        Open ratings file, with times.
    blocks : RatingBlocks
        The ratings in this process's rows.
    ring : Ring
        The processes of the chain.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    groups = RatingGroups(levels, [], [], [])

    def read() -> None:
        for level in levels:
            reader = _Reader(level, ratings, blocks)
            train = {}
            test = {}
            for b in ring.blocks:
                for c, of_cell in enumerate(reader.train(b)):
                    train[b, c] = of_cell
                test[b], _ = reader.groups("test", *blocks.bounds(Factor.W, b))
            groups.first.append(reader.first)
            groups.train.append(train)
            groups.test.append(test)

    ring.agree(read, "reading groups of ratings")
    return groups


class _Reader:
    """Reads the groups of one level."""

    def __init__(self, level: TimeLevel, ratings: Ratings, blocks: RatingBlocks) -> None:
        self._level = level
        self._ratings = ratings
        self._blocks = blocks
        self._begins = np.concatenate([[0], np.cumsum(level.counts(ratings), dtype=np.int64)])
        if level.factor == Factor.W:
            self._bounds = blocks.row_bounds
        else:
            self._bounds = blocks.column_bounds
        self.first: Int64 = self._begins[self._bounds]

    def train(self, block: int) -> list[Int32]:
        """Groups of the training ratings of a row block, by column block."""
        start, stop = self._blocks.bounds(Factor.W, block)
        column_bounds = self._blocks.column_bounds
        slabs: list[list[Int32]] = [[] for _ in column_bounds[1:]]
        for first, last in row_slabs(self._ratings.row_indptr[start : stop + 1], SLAB):
            groups, columns = self.groups("train", start + first, start + last)
            column_block = np.searchsorted(column_bounds, columns, side="right") - 1
            order = np.argsort(column_block, kind="stable")
            ends = np.searchsorted(column_block[order], np.arange(1, len(slabs)))
            for pieces, chosen in zip(slabs, np.split(order, ends), strict=True):
                pieces.append(groups[chosen])
        return [np.concatenate(pieces) for pieces in slabs]

    def groups(self, split: Split, start: int, stop: int) -> tuple[Int32, Int32]:
        """Groups and columns of a split's ratings in rows `start` to `stop`.

        Groups are counted from 0 in every block.
        """
        ratings = self._ratings
        columns = ratings.columns(split, start, stop)
        within = self._level.within(ratings, split, start, stop)
        owners = columns
        if self._level.factor == Factor.W:
            indptr = ratings.row_indptr if split == "train" else ratings.test_indptr
            lengths = np.diff(indptr[start : stop + 1])
            owners = np.repeat(np.arange(start, stop, dtype=np.int32), lengths)
        block = np.searchsorted(self._bounds, owners, side="right") - 1
        groups = self._begins[owners] - self.first[block] + within
        return groups.astype(np.int32), columns


class GroupEffects:
    """The effects of the groups of all levels.

    Parameters
    ----------
    groups : RatingGroups
        The group of every rating at every level.
    ring : Ring
        The processes of the chain.
    cells : collection of (int, int)
        The cells of this process.

    Attributes
    ----------
    values : list of dict of int to (G,) float32
        By level, the effects of each block of the level's factor whose home is this process.
    """

    def __init__(self, groups: RatingGroups, ring: Ring, cells: Collection[CellNumber]) -> None:
        self.groups = groups
        self.ring = ring
        self._cells = cells
        self.values = [
            {b: np.zeros(groups.size(number, b), np.float32) for b in ring.blocks}
            for number in range(len(groups.levels))
        ]

    def visit(
        self, number: int, arrays: dict[int, Float32], *, width: int = 1, returning: bool = False
    ) -> Iterator[tuple[CellNumber, Float32]]:
        """Yield every cell with the array of the cell's block of a level's factor. Collective.

        Parameters
        ----------
        number : int
            Number of the level.
        arrays : dict of int to (width G,) float32
            For the groups of each block.
        width : int
            Number of elements per group.
        returning : bool
            Whether the caller changes the arrays that are yielded, so that these must come back
            into `arrays`.

        Yields
        ------
        cell : (int, int)
        array : (width G,) float32
        """
        if self.groups.levels[number].factor == Factor.W:
            for b, c in self._cells:
                yield (b, c), arrays[b]
            return

        def length(c: int) -> int:
            return width * self.groups.size(number, c)

        home = dict(arrays)
        for b, c, buffer in self.ring.tour(home, length, returning):
            yield (b, c), buffer
        if returning:
            arrays |= home

    def normals(
        self, number: int, block: int, *, stream: RandomStream, purpose: Purpose, width: int = 1
    ) -> Float32:
        """Draw `width` standard normal numbers for each group in a block, (width G,) float32."""
        numbers = np.empty(width * self.groups.size(number, block), np.float32)
        first = (number << 44) + width * int(self.groups.first[number][block])
        normals(numbers, stream.key(purpose, self.groups.levels[number].factor, first))
        return numbers
