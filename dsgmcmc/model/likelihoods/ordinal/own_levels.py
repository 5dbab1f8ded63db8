"""Levels of items that lack some of the scale, such as 0 and 1 beside 0 to 3.

A level of an item also stands for those right below it that the item lacks, and its highest one for
all above. So its thresholds are those above the levels that it has: the thresholds of levels 0, 1
and 3 of five are C_0 and C_1. Those below its lowest level are -`END`, those above its highest
`END`. The ends of an absent level are equal, and its probability is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.ordinal import END
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.targets.state import Rows
from dsgmcmc.types import Array, Factor, Float32, Float64, Int64, Mask


class LevelCounts(NamedTuple):
    """Numbers of training and of test ratings of rows at every level, (n, R) int64 each."""

    train: Int64
    test: Int64


def count_levels(blocks: RatingBlocks, ring: Ring, factor: Factor, values: Float64) -> LevelCounts:
    """Count the ratings of every row of a factor at the levels `values`, (R,). Collective.

    The training ratings must be numbers of levels, and the test ratings without centre.
    """
    shape = (blocks.shape[factor], len(values))
    train = np.zeros(shape, np.int64)
    test = np.zeros(shape, np.int64)
    for (b, c), cell in blocks.train.items():
        start, stop = blocks.bounds(factor, (b, c)[factor])
        rows = (cell.rows, cell.indices)[factor]
        train[start:stop] += _counted(rows, cell.values.astype(np.int64), (stop - start, shape[1]))
        tests = blocks.test[b].by_column[c]
        rows = (tests.rows, tests.columns)[factor]
        level = nearest_level(blocks.test[b].values[tests.selection], values)
        test[start:stop] += _counted(rows, level, (stop - start, shape[1]))
    return LevelCounts(_total(ring, train), _total(ring, test))


def _counted(rows: Array, level: Int64, shape: tuple[int, int]) -> Int64:
    """Numbers of ratings of rows at levels, given those of each rating."""
    cells = rows.astype(np.int64) * shape[1] + level
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


def _total(ring: Ring, counts: Int64) -> Int64:
    """Sum whole numbers over all processes, level by level. Collective."""
    total = np.empty_like(counts)
    for level in range(counts.shape[1]):
        addends = np.zeros((len(ring.blocks), len(counts)))
        addends[0] = counts[:, level]
        total[:, level] = ring.total(addends)
    return total


def levels_between(cuts: Float32) -> Mask:
    """Return which levels rows have, (n, R), given their thresholds (n, R - 1)."""
    bounds = np.pad(cuts, ((0, 0), (1, 1)), constant_values=np.float32(END))
    bounds[:, 0] = -END
    has: Mask = bounds[:, 1:] > bounds[:, :-1]
    return has


class OwnLevels:
    """Which levels the rows of a factor have, and the thresholds between them.

    Parameters
    ----------
    has : (n, R) bool
        Whether each row of the factor has each level; at least one.
    anchored : bool
        Whether a row's own threshold that is nearest the middle has the shared value. Otherwise
        that is the middle one, which a row may lack: its bias and several gaps then move the same
        thresholds, along a ridge on which chains can diverge.
    """

    def __init__(self, has: Mask, *, anchored: bool = False) -> None:
        n_levels = has.shape[1]
        number = np.arange(n_levels)
        latest = np.maximum.accumulate(np.where(has, number, -1), axis=1)
        highest = latest[:, -1:]
        # where each of the thresholds between -END and END comes from among these
        sources = np.where(latest[:, :-1] == highest, n_levels, latest[:, :-1] + 1)
        self._sources = sources.astype(np.int8)
        self._first = np.where(has, np.pad(latest, ((0, 0), (1, 0)), constant_values=-1)[:, :-1], 0)
        self._first[has] += 1
        self._last = np.where(number == highest, n_levels - 1, number)
        self._has = has
        middle = (n_levels - 1) // 2
        self._anchor = np.full(len(has), middle)
        if anchored:
            distance = np.where(self._owns(), np.abs(np.arange(n_levels - 1) - middle), n_levels)
            distance[:, middle] = np.minimum(distance[:, middle], n_levels - 1)
            self._anchor = np.argmin(distance, axis=1)

    def _owns(self) -> Mask:
        """Which thresholds stand in some place of each row, (n, R - 1)."""
        number = np.arange(1, self._has.shape[1])
        owns: Mask = (self._sources[:, :, np.newaxis] == number).any(axis=1)
        return owns

    def anchors(self, rows: Rows) -> Int64:
        """Indices of the thresholds of rows that have the shared values, (n,)."""
        return self._joined(rows, self._anchor)

    def spans(self, counts: Int64) -> Float64:
        """Numbers of ratings at levels k to l, (R, R), given those of rows at levels, (n, R)."""
        n_levels = self._has.shape[1]
        spans = np.zeros((n_levels, n_levels))
        np.add.at(spans, (self._first, self._last), counts)
        return spans

    def cuts(self, rows: Rows, thresholds: Float64) -> Float64:
        """Thresholds of rows (n, R - 1), given those between all levels."""
        ends = np.full((len(thresholds), 1), END)
        table = np.concatenate([-ends, thresholds, ends], axis=1)
        return np.take_along_axis(table, self._of(rows), axis=1)

    def slopes(self, rows: Rows, slopes: Float64) -> Float64:
        """Derivatives with respect to all thresholds, given those by the rows' own (n, R - 1)."""
        result = np.zeros((len(slopes), slopes.shape[1] + 2))
        own = self._of(rows)
        row = np.arange(len(slopes))
        for k in range(slopes.shape[1]):  # a threshold may stand in several places of a row
            result[row, own[:, k]] += slopes[:, k]
        return result[:, 1:-1]

    def _of(self, rows: Rows) -> Int64:
        return self._joined(rows, self._sources)

    @staticmethod
    def _joined(rows: Rows, of_all: Array) -> Int64:
        """Values of rows, given those of all rows of the factor."""
        parts = [of_all[block.start : block.start + len(block.counts)] for block in rows.blocks]
        return np.concatenate(parts).astype(np.int64)
