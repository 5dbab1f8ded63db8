"""Levels of time: groups of ratings that were given together, as a process holds them.

Groups of a level belong to the rows of one factor. A level is named after its side and the size of its groups:
``user:page`` has a group for each second in which a user rated, ``user:8`` one for every eight ratings of a user in the
order of time; items alike. Test ratings belong to groups as training ratings do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.ratings import SIDES, Ratings, Split, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import SLAB, RatingBlocks
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.settings import named
from dsgmcmc.types import Factor, Int32, Int64

PAGE = "page"
#: Levels that a side alone stands for: those that were measured to be worth it.
USUAL = {"user": "user:page,user:8,user:64", "item": "item:32"}


def counted_times(ratings: Ratings, factor: Factor) -> tuple[Int32, Int32]:
    """Number of ratings, and of different seconds, of every row of a factor, (n,) each.

    Raises
    ------
    InputError
        If the ratings file has no times.
    """
    if ratings.times is None:
        raise InputError(
            f"{ratings.path} has no timestamps, which {named('time_levels')} needs: prepare it again with --timestamps"
        )
    counts: tuple[Int32, Int32] = ratings.times[SIDES[factor]]
    return counts


def canonical_levels(text: str) -> str:
    """Names of levels, in the order in which they are drawn; ``no`` for none.

    Raises
    ------
    ValueError
        If a name is unknown, or there twice.
    """
    if text == "no":
        return text
    names = []
    for part in text.split(","):
        names += USUAL.get(part.strip(), part.strip()).split(",")
    for name in names:
        kind, _, size = name.partition(":")
        if kind not in USUAL or not (size == PAGE or (size.isdecimal() and 2 <= int(size) < 2**31)):
            raise ValueError(f"{name!r} is not known: expected no, user, item, or levels like {USUAL['user']}")
    if len(set(names)) < len(names):
        raise ValueError("names a level twice")
    return ",".join(names)


class TimeLevel(NamedTuple):
    """One level.

    Attributes
    ----------
    name : str
        Such as ``user:8``.
    factor : Factor
        The factor whose rows the groups belong to.
    run : int
        Number of ratings of a group; 0 where groups are pages.
    """

    name: str
    factor: Factor
    run: int

    @property
    def field(self) -> str:
        """Name of its effects on disk."""
        return f"time.{self.name.replace(':', '.')}"

    def counts(self, ratings: Ratings) -> Int32:
        """Number of groups of every row of its factor, (n,)."""
        places, pages = counted_times(ratings, self.factor)
        return -(-places // np.int32(self.run)) if self.run else pages

    def within(self, ratings: Ratings, part: Split, start: int, stop: int) -> Int32:
        """Groups of the ratings in rows `start` to `stop` of a part, (m,), counted from the first of their owner."""
        times = ratings.times_slab(part, SIDES[self.factor], start, stop)
        return times.place // np.int32(self.run) if self.run else times.page


def time_levels_of(names: str, transposed: bool) -> tuple[TimeLevel, ...]:
    """Levels of canonical names; `transposed` says that the rows of W are items."""
    if names == "no":
        return ()
    levels = []
    for name in names.split(","):
        kind, _, size = name.partition(":")
        factor = Factor.W if (kind == "item") == transposed else Factor.H
        levels.append(TimeLevel(name, factor, 0 if size == PAGE else int(size)))
    return tuple(levels)


def costs_of(levels: Sequence[TimeLevel], ratings: Ratings, normal: bool) -> tuple[int, int]:
    """Bytes of memory of groups for all ratings, `normal` or not, and of their effects in a checkpoint."""
    if not levels:
        return 0, 0
    counts = [level.counts(ratings).sum(dtype=np.int64).item() for level in levels]
    effects = 4 * sum(counts)
    # groups, and what they add up to; besides, while effects are drawn, a residual and a weight of every rating, or a
    # predictor and three terms of its law, and twelve sums of every group of one level
    kept = (ratings.nnz + ratings.nnz_test) * 4 * (len(levels) + 1)
    drawing = ratings.nnz * 8 if normal else ratings.nnz * 16 + 48 * max(counts)
    return kept + drawing + effects, effects


class RatingGroups(NamedTuple):
    """Groups of the ratings that a process holds.

    Attributes
    ----------
    levels : tuple of TimeLevel
    first : list of (B + 1,) int64
        By level, where the groups of each block of its factor begin among all.
    train : list of dict of (int, int) to (nnz,) int32
        By level, the group of every training rating of a cell, counted from the first of its factor's block.
    test : list of dict of int to (q,) int32
        By level, the group of every test rating of a row block, counted likewise.
    """

    levels: tuple[TimeLevel, ...]
    first: list[Int64]
    train: list[dict[tuple[int, int], Int32]]
    test: list[dict[int, Int32]]

    def size(self, level: int, block: int) -> int:
        """Number of groups in a block of the level's factor."""
        return int(self.first[level][block + 1] - self.first[level][block])


def read_groups(levels: tuple[TimeLevel, ...], ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> RatingGroups:
    """Read the groups of the ratings that a process holds. Collective.

    Parameters
    ----------
    levels : tuple of TimeLevel
    ratings : Ratings
        Open ratings file, with times.
    blocks : RatingBlocks
        Its ratings as they are held.
    ring : Ring
        The processes of the chain.

    Raises
    ------
    InputError
        If it cannot be read, or a block has more groups than a message can number.
    """
    groups = RatingGroups(levels, [], [], [])

    def read() -> None:
        for level in levels:
            reader = _Reader(level, ratings, blocks)
            groups.first.append(reader.first)
            groups.train.append({(b, c): group for b in ring.blocks for c, group in enumerate(reader.train(b))})
            groups.test.append({b: reader.groups("test", *blocks.bounds(Factor.W, b))[0] for b in ring.blocks})

    ring.agree(read, "reading groups of ratings")
    return groups


class _Reader:
    """Reads the groups of one level."""

    def __init__(self, level: TimeLevel, ratings: Ratings, blocks: RatingBlocks) -> None:
        self._level, self._ratings, self._blocks = level, ratings, blocks
        self._begins = np.concatenate([[0], np.cumsum(level.counts(ratings), dtype=np.int64)])
        self._bounds = (blocks.row_bounds, blocks.column_bounds)[level.factor]
        self.first: Int64 = self._begins[self._bounds]

    def train(self, block: int) -> list[Int32]:
        """Groups of the training ratings of a row block, by column block."""
        start, stop = self._blocks.bounds(Factor.W, block)
        parts: list[list[Int32]] = [[] for _ in self._blocks.column_bounds[1:]]
        for first, last in row_slabs(self._ratings.row_indptr[start : stop + 1], SLAB):
            groups, columns = self.groups("train", start + first, start + last)
            column_block = np.searchsorted(self._blocks.column_bounds, columns, side="right") - 1
            order = np.argsort(column_block, kind="stable")
            ends = np.searchsorted(column_block[order], np.arange(1, len(parts)))
            for part, chosen in zip(parts, np.split(order, ends), strict=True):
                part.append(groups[chosen])
        return [np.concatenate(part) for part in parts]

    def groups(self, part: Split, start: int, stop: int) -> tuple[Int32, Int32]:
        """Groups of the ratings in rows `start` to `stop`, counted from their block's first, and their columns."""
        ratings = self._ratings
        columns = ratings.columns(part, start, stop)
        within = self._level.within(ratings, part, start, stop)
        owners = columns
        if self._level.factor == Factor.W:
            indptr = ratings.row_indptr if part == "train" else ratings.test_indptr
            owners = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(indptr[start : stop + 1]))
        block = np.searchsorted(self._bounds, owners, side="right") - 1
        return (self._begins[owners] - self.first[block] + within).astype(np.int32), columns
