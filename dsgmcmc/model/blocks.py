"""The ratings of a process: training ratings by cell, and test ratings by row block.

Rows and columns are cut into B blocks each. A cell is where a row block and a column block meet,
and a part of the data is a set of B cells that have no row or column in common
(`dsgmcmc.parallel.partition`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.compact_ratings import (
    Numbering,
    kernel_arguments,
    split_columns,
    transposed,
)
from dsgmcmc.model.limits import UNLIMITED, Limits
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SLAB, Bounds, RowRatings, row_slabs
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64, Mask

#: Variance of rounding errors, in squared steps to which ratings were recorded.
ROUNDING_VARIANCE = 1 / 12


class CellBounds(NamedTuple):
    """The ratings of a cell that are known to lie within bounds.

    Attributes
    ----------
    positions : (m,) int64
        Their indices in the cell.
    rows, columns : (m,) int32
        Local rows and columns.
    repeats : (m,) int64
        Their numbers among the ratings of the pair, from 0.
    lower, upper : (m,) float32
        Bounds, in the unit of the values.
    """

    positions: Int64
    rows: Int32
    columns: Int32
    repeats: Int64
    lower: Float32
    upper: Float32

    @classmethod
    def of_cell(cls, indptr: Int64, indices: Array, bounds: Bounds) -> CellBounds | None:
        """Return the bounds in a cell with these ratings; None if all are exact."""
        positions = np.flatnonzero(bounds.bounded)
        if not len(positions):
            return None
        rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        pairs = rows.astype(np.int64) << 32 | indices.astype(np.int64)
        starts = np.flatnonzero(np.diff(pairs, prepend=-1))
        repeats = np.arange(len(pairs)) - np.repeat(starts, np.diff(starts, append=len(pairs)))
        return cls(
            positions=positions,
            rows=rows[positions],
            columns=indices[positions].astype(np.int32),
            repeats=repeats[positions],
            lower=bounds.lower[positions],
            upper=bounds.upper[positions],
        )


@dataclass(frozen=True)
class CellRatings:
    """Training ratings of one cell in CSR format, each as (rating - centre) / scale or as a code.

    Attributes
    ----------
    indptr : (n + 1,) int64
        Index of the first rating of every local row, then the total number of ratings.
    indices : (nnz,) uint16 or int32
        Local columns.
    stored : (nnz,) uint8 or float32
        Values; if there is a table, their indices in it.
    table : (at most 256,) float32, optional
        Distinct values.
    columns : int
        Number of columns of the cell.
    offsets : (nnz,) float32, optional
        Offsets of the ratings' predictors.
    weights : (nnz,) float32, optional
        Relative precisions of the ratings.
    bounds : CellBounds, optional
        The ratings that are not exact, whose values are drawn.
    """

    indptr: Int64
    indices: Array
    stored: Array
    table: Float32 | None
    columns: int
    offsets: Float32 | None = None
    weights: Float32 | None = None
    bounds: CellBounds | None = None

    @property
    def values(self) -> Float32:
        """The values of the ratings, (nnz,) float32; looked up in the table at every access."""
        if self.table is None:
            return self.stored
        return self.table.take(self.stored)

    @property
    def rows(self) -> Int64:
        """Local row of every rating, (nnz,) int64; computed at every access."""
        return np.arange(len(self.indptr) - 1).repeat(self.indptr[1:] - self.indptr[:-1])

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """Arguments for kernels (`kernel_arguments`), then `offsets` and `weights`, if any."""
        arguments = kernel_arguments(self.indptr, self.indices, self.stored, self.table)
        more = [array for array in (self.offsets, self.weights) if array is not None]
        return (*arguments, *more)

    @property
    def pattern(self) -> tuple[Array, ...]:
        """Row pointers and column indices: the first two of `arrays`."""
        return self.arrays[:2]

    @cached_property
    def pairs(self) -> CellRatings:
        """The first rating of every rated pair, without `offsets`: columns do not recur in a row.

        The cell itself if no pair has replicates.
        """
        is_first = np.ones(len(self.indices), bool)
        is_first[1:] = self.indices[1:] != self.indices[:-1]
        starts = self.indptr[:-1]
        is_first[starts[starts < self.indptr[1:]]] = True
        if is_first.all():
            return self
        return CellRatings(
            indptr=np.concatenate([[0], np.cumsum(is_first)])[self.indptr],
            indices=self.indices[is_first],
            stored=self.stored[is_first],
            table=self.table,
            columns=self.columns,
        )

    def with_values(self, values: Float32) -> CellRatings:
        """The same cell with other ratings, (nnz,) float32."""
        return replace(self, stored=values, table=None)

    def bounded_values(self) -> Float32:
        """Values of the ratings with `bounds`, (m,)."""
        assert self.bounds is not None
        return self.values[self.bounds.positions]

    def set_bounded(self, values: Float32) -> None:
        """Change the values of the ratings with `bounds`, (m,), in place; there is no `table`."""
        assert self.bounds is not None
        self.stored[self.bounds.positions] = values
        if "by_column" in vars(self):
            self.by_column.stored[self._bounded_in_columns] = values

    @cached_property
    def _bounded_in_columns(self) -> Int64:
        """Indices in `by_column` of the ratings with `bounds`, (m,)."""
        assert self.bounds is not None
        position_of = np.empty(len(self.indices), np.int64)
        position_of[self.column_order] = np.arange(len(self.indices))
        return position_of[self.bounds.positions]

    @cached_property
    def column_order(self) -> Int64:
        """Indices, in this cell, of the ratings of `by_column`, (nnz,) int64."""
        return np.argsort(self.indices, kind="stable")

    @cached_property
    def by_column(self) -> CellRatings:
        """The same ratings as a cell whose rows are the columns, without `offsets`, `weights`."""
        indptr, indices, stored = transposed(self.indptr, self.indices, self.stored, self.columns)
        return CellRatings(indptr, indices, stored, self.table, columns=len(self.indptr) - 1)


class TestCell(NamedTuple):
    """The test ratings of a row block in one column block, int32 each.

    Attributes
    ----------
    selection : (m,) int32
        Positions of the ratings in `TestRows.values`.
    rows, columns : (m,) int32
        Local rows and local columns.
    """

    selection: Int32
    rows: Int32
    columns: Int32


class TestRows(NamedTuple):
    """Test ratings of one row block, in the order of the file.

    Attributes
    ----------
    values : (q,) float32
        (rating - centre) / scale.
    by_column : list of TestCell
        For every column block.
    recorded : (q,) float32 or None
        The ratings as they were recorded; None if they are `centre` + `scale` times `values`.
    weights : (q,) float32 or None
        Relative precisions of the ratings.
    bounds : Bounds or None
        Bounds of the ratings in the unit of the values, if some are known only by bounds.
    recorded_bounds : Bounds or None
        The bounds as they were recorded, as `recorded`.
    """

    values: Float32
    by_column: list[TestCell]
    recorded: Float32 | None = None
    weights: Float32 | None = None
    bounds: Bounds | None = None
    recorded_bounds: Bounds | None = None

    @property
    def exact(self) -> Mask | slice:
        """Which ratings are not known only by bounds, as an index."""
        if self.bounds is None:
            return slice(None)
        return ~self.bounds.bounded


class RatingBlocks:
    """The ratings in this process's rows, by block. Construction is collective.

    Parameters
    ----------
    ratings : Ratings
        Open ratings file.
    ring : Ring
        The processes of the chain; it assigns row blocks to this process.
    centre : float
        Subtracted from every rating (the training mean, or 0).
    standardise : bool
        Whether ratings, less the centre, are divided by `scale`.
    scale : float, optional
        Divisor; by default the root mean square of the training ratings, less the centre.
    codes : callable, optional
        Converts ratings, less the centre, to the stored values of `train`, such as the indices of
        levels.
    limits : Limits
        Range to which predictions are clipped, in the recorded ratings' own unit.
    resolution : float, optional
        Step to which the ratings were recorded, in their own unit, if it bounds their noise.

    Attributes
    ----------
    train : dict of (int, int) to CellRatings
        Training ratings, by the numbers of the row block and the column block.
    test : dict of int to TestRows
        Test ratings, by row block.
    scale : float
        Divisor of the ratings; 1 without standardisation, or if all training ratings equal the
        centre.
    weighted : bool
        Whether ratings have weights, their relative precisions.
    bounded : bool
        Whether ratings may be known only to lie within bounds.
    extreme : float
        Largest distance of a training rating from the centre, divided by `scale`.
    largest_precision : float
        Inverse of the variance of rounding, of ratings divided by `scale`, over the largest weight
        of a rating; infinite without a resolution.
    row_bounds, column_bounds : (B + 1,) int64
        First row (or column) of every block, and the number of rows (or columns).
    row_counts : dict of int to (rows,) int64
        Training ratings of every row, by row block of this process.
    column_counts : (J,) int64
        Training ratings of every column of the whole matrix.
    row_pairs, column_pairs
        The same of rated pairs, of which each may have several ratings.
    part_sizes : (B,) int64
        Training ratings in every part.
    part_peaks : (B,) int64
        Largest number of training ratings that any row or column has in each part.
    """

    def __init__(
        self,
        ratings: Ratings,
        ring: Ring,
        centre: float,
        *,
        standardise: bool = False,
        scale: float | None = None,
        codes: Callable[[Float32], Array] = lambda values: values,
        limits: Limits = UNLIMITED,
        resolution: float | None = None,
    ) -> None:
        grid = ring.grid
        self.shape = (ratings.n_rows, ratings.n_cols)
        if grid > min(self.shape):
            raise InputError(
                f"{named('grid')} {grid} is more than {ratings.path} allows: at most"
                f" {min(self.shape)}"
            )
        self.n_data = ratings.nnz
        self.n_test = ratings.nnz_test
        self.centre = centre
        self.weighted = ratings.mean_weight is not None
        self.bounded = ratings.has_bounds
        self._codes = codes
        self.limits = limits
        self.column_counts: Int64 = ratings.column_counts
        self.column_bounds = block_bounds(
            np.concatenate([[0], np.cumsum(self.column_counts)]), grid
        )
        self.row_bounds = block_bounds(ratings.row_indptr, grid)
        self.row_counts = {
            b: np.diff(ratings.row_indptr[self.row_bounds[b] : self.row_bounds[b + 1] + 1])
            for b in ring.blocks
        }
        self.train: dict[tuple[int, int], CellRatings] = {}
        self.test: dict[int, TestRows] = {}
        ring.agree(partial(self._read, ratings, ring), "reading ratings")
        self.part_sizes, self.part_peaks = self._count(ring)
        self.row_pairs = self.row_counts
        self.column_pairs = self.column_counts
        if ratings.replicates:
            self._count_pairs(ring)
        self.scale = 1.0
        if standardise:
            if scale is None:
                scale = self._root_mean_square(ring)
            self._divide(scale)
            self.scale = scale
        distance = max(abs(ratings.minimum - centre), abs(ratings.maximum - centre))
        self.extreme = distance / self.scale
        self.largest_precision = inf
        if resolution is not None:
            of_rounding = (self.scale / resolution) ** 2 / ROUNDING_VARIANCE
            self.largest_precision = of_rounding / self._largest_weight(ring)
        self._peak = int(max(np.diff(ratings.row_indptr).max(), self.column_counts.max()))
        _give_memory_back()

    def for_chain(self) -> RatingBlocks:
        """The same ratings for one chain, which draws the values of those within bounds."""
        if not self.bounded:
            return self
        of_chain = copy(self)
        of_chain.train = {}
        for cell, ratings in self.train.items():
            if ratings.bounds is not None:
                ratings = ratings.with_values(np.array(ratings.values))
            of_chain.train[cell] = ratings
        return of_chain

    def bounds(self, factor: Factor, index: int) -> tuple[int, int]:
        """First global row of a block of a factor, and the row after its last."""
        bounds = self.row_bounds if factor == Factor.W else self.column_bounds
        return int(bounds[index]), int(bounds[index + 1])

    def curvature_bound(self, probability: Float64 | None) -> float:
        """Largest number of training ratings of a row or column, at least 1.

        With the probabilities of the parts, (B,), ratings are counted within each part, and the
        count is divided by the part's probability. Without them, ratings are counted in all data.
        """
        if probability is None:
            return float(max(self._peak, 1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.nan_to_num(self.part_peaks / probability)
        return float(max(scaled.max(), 1.0))

    def _largest_weight(self, ring: Ring) -> float:
        """Largest weight of a training rating; 1 without weights. Collective."""
        if not self.weighted:
            return 1.0
        largest = np.zeros((len(ring.blocks), 1))
        for (b, _), cell in self.train.items():
            assert cell.weights is not None
            row = largest[b - ring.blocks.start]
            row[0] = max(row[0], float(cell.weights.max(initial=0.0)))
        return float(ring.reduce(largest, lambda found: found, 1, np.maximum)[0])

    def level_counts(self, ring: Ring, size: int) -> Int64:
        """Number of training ratings at each of `size` levels, (size,) int64. Collective.

        The ratings must be numbers of levels.
        """
        counts = np.zeros((len(ring.blocks), size))
        for (b, _), block in self.train.items():
            levels = block.values.astype(np.int64)
            counts[b - ring.blocks.start] += np.bincount(levels, minlength=size)
        return ring.total(counts).astype(np.int64)

    def _read(self, ratings: Ratings, ring: Ring) -> None:
        """Read the training and test ratings of this process's row blocks."""
        for b in ring.blocks:
            start, stop = self.bounds(Factor.W, b)
            for c, block in enumerate(self._read_train(ratings, start, stop)):
                self.train[b, c] = block
            self.test[b] = self._cut_test(ratings.slab("test", start, stop))
            if ratings.recorded is not None:
                recorded = ratings.recorded.slab("test", start, stop)
                self.test[b] = self.test[b]._replace(
                    recorded=recorded.values, recorded_bounds=recorded.bounds
                )

    def _read_train(self, ratings: Ratings, start: int, stop: int) -> list[CellRatings]:
        """Read the cells of a range of rows.

        They are read in slabs, whose pieces are joined cell by cell.
        """
        cells = _GrowingCells(self.column_bounds)
        for first, last in row_slabs(ratings.row_indptr[start : stop + 1], SLAB):
            slab = ratings.slab("train", start + first, start + last)
            coded = self._codes(slab.values - np.float32(self.centre))
            cells.add(slab._replace(values=coded, bounds=self._centred(slab.bounds)))
        return cells.finished()

    def _cut_test(self, ratings: RowRatings) -> TestRows:
        """The test ratings of a row block, by column block."""
        rows = ratings.rows.astype(np.int32)
        indices = ratings.indices
        block = np.searchsorted(self.column_bounds, indices, side="right") - 1
        by_column = []
        for c in range(len(self.column_bounds) - 1):
            chosen = np.flatnonzero(block == c).astype(np.int32)
            columns = (indices[chosen] - self.column_bounds[c]).astype(np.int32)
            by_column.append(TestCell(chosen, rows[chosen], columns))
        return TestRows(
            values=(ratings.values - np.float32(self.centre)).astype(np.float32),
            by_column=by_column,
            weights=ratings.weights,
            bounds=self._centred(ratings.bounds),
        )

    def _centred(self, bounds: Bounds | None) -> Bounds | None:
        """Bounds less the centre; None without any."""
        if bounds is None:
            return None
        return bounds.less(self.centre)

    def _root_mean_square(self, ring: Ring) -> float:
        """Root mean square of the training ratings, 1 if all equal the centre. Collective."""
        squares = np.zeros((len(ring.blocks), 1))
        for (b, _), block in self.train.items():
            values = block.values
            squares[b - ring.blocks.start] += np.einsum("i,i->", values, values, dtype=np.float64)
        scale = float(np.sqrt(ring.total(squares)[0] / self.n_data))
        if scale == 0:
            return 1.0
        return scale

    def _divide(self, scale: float) -> None:
        """Divide all ratings by `scale`."""
        for block in self.train.values():
            values = block.stored if block.table is None else block.table
            np.divide(values, scale, out=values)
            _divide_bounds(block.bounds, scale)
        for rows in self.test.values():
            np.divide(rows.values, scale, out=rows.values)
            _divide_bounds(rows.bounds, scale)

    def _count_pairs(self, ring: Ring) -> None:
        """Set `row_pairs` and `column_pairs`. Collective."""
        self.row_pairs = {b: np.zeros_like(counts) for b, counts in self.row_counts.items()}
        of_columns = np.zeros((len(ring.blocks), self.shape[1]))
        for (b, c), block in self.train.items():
            pairs = block.pairs
            self.row_pairs[b] += np.diff(pairs.indptr)
            start, stop = self.bounds(Factor.H, c)
            numbers = np.bincount(pairs.indices, minlength=stop - start)
            of_columns[b - ring.blocks.start, start:stop] += numbers
        self.column_pairs = ring.total(of_columns).astype(np.int64)

    def _count(self, ring: Ring) -> tuple[Int64, Int64]:
        """Return `part_sizes` and `part_peaks`. Collective."""
        grid = ring.grid
        sizes = np.zeros((len(ring.blocks), grid))
        peaks = np.zeros((len(ring.blocks), grid))
        for (b, c), block in self.train.items():
            part = (c - b) % grid
            sizes[b - ring.blocks.start, part] = len(block.indices)
            if len(block.indices):
                columns = np.bincount(block.indices)
                peaks[b - ring.blocks.start, part] = max(np.diff(block.indptr).max(), columns.max())
        peaks = ring.reduce(peaks, lambda peaks: peaks, grid, np.maximum)
        return ring.total(sizes).astype(np.int64), peaks.astype(np.int64)


def _divide_bounds(bounds: Bounds | CellBounds | None, scale: float) -> None:
    """Divide bounds, if there are any, by `scale`."""
    if bounds is None:
        return
    for limit in (bounds.lower, bounds.upper):
        np.divide(limit, scale, out=limit)


class _GrowingCells:
    """The cells of a range of rows, to which slabs of rows are added in order.

    Parameters
    ----------
    column_bounds : (B + 1,) int64
        First column of every cell, and the number of columns.
    """

    def __init__(self, column_bounds: Int64) -> None:
        self._bounds = column_bounds
        self._numbering = Numbering()
        self._has_table = True
        self._cells = [_Pieces() for _ in column_bounds[1:]]

    def add(self, ratings: RowRatings) -> None:
        """Add the ratings of the next rows."""
        values: Array = ratings.values
        if self._has_table:
            numbers = self._numbering.numbers(ratings.values)
            if numbers is None:  # too many distinct values for a table
                self._leave_table()
            else:
                values = numbers
        weights = self._split(ratings, ratings.weights)
        limits = [self._split(ratings, limit) for limit in ratings.bounds or ()]
        cells = split_columns(ratings.indptr, ratings.indices, values, self._bounds)
        for c, (rows, local_columns, stored) in enumerate(cells):
            pieces = self._cells[c]
            pieces.indptr.append(pieces.indptr[-1][-1] + rows[1:])
            pieces.indices.append(local_columns)
            pieces.stored.append(stored)
            if weights:
                pieces.weights.append(weights[c])
            if limits:
                lower, upper = limits
                pieces.lower.append(lower[c])
                pieces.upper.append(upper[c])

    def _leave_table(self) -> None:
        """Replace indices in the table of distinct values by the values."""
        self._has_table = False
        table = self._numbering.values
        for pieces in self._cells:
            pieces.stored = [table[stored] for stored in pieces.stored]

    def _split(self, ratings: RowRatings, numbers: Float32 | None) -> list[Float32]:
        """Further numbers of the ratings by cell; an empty list without any."""
        if numbers is None:
            return []
        cells = split_columns(ratings.indptr, ratings.indices, numbers, self._bounds)
        return [of_cell for _, _, of_cell in cells]

    def finished(self) -> list[CellRatings]:
        """The cells, each with a table of its own if there is one; their pieces are gone."""
        widths = np.diff(self._bounds).tolist()
        cells = []
        for pieces, width in zip(self._cells, widths, strict=True):
            table = self._numbering.values.copy() if self._has_table else None
            cells.append(pieces.joined(table, width))
        return cells


class _Pieces:
    """The ratings of a cell in pieces of consecutive rows, as `CellRatings` has them."""

    def __init__(self) -> None:
        self.indptr: list[Int64] = [np.zeros(1, np.int64)]
        self.indices: list[Array] = []
        self.stored: list[Array] = []
        self.weights: list[Float32] = []
        self.lower: list[Float32] = []
        self.upper: list[Float32] = []

    def joined(self, table: Float32 | None, columns: int) -> CellRatings:
        """Join the pieces, which are removed."""
        indptr = _join(self.indptr)
        indices = _join(self.indices)
        weights = None
        if self.weights:
            weights = _join(self.weights)
        bounds = None
        if self.lower:
            limits = Bounds(_join(self.lower), _join(self.upper))
            bounds = CellBounds.of_cell(indptr, indices, limits)
        return CellRatings(
            indptr=indptr,
            indices=indices,
            stored=_join(self.stored),
            table=table,
            columns=columns,
            weights=weights,
            bounds=bounds,
        )


def _join(pieces: list[Array]) -> Array:
    """Return the arrays of a list in one, and empty the list."""
    joined = np.concatenate(pieces)
    pieces.clear()
    return joined


def _give_memory_back() -> None:
    """Give freed memory back to the system, if the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
