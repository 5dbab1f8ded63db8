"""The ratings that a process holds: its row ranges, each cut into column blocks, and its test ratings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings.format import row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.csr import split_columns
from dsgmcmc.parallel.faults import fault
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring  # which loads MPI


SLAB = 250_000  # ratings read at a time


@dataclass(frozen=True)
class RatingsBlock:
    """Training ratings of one cell in CSR: local rows, local columns, values less the centre, over the scale.

    Attributes
    ----------
    indptr : (n + 1,) int64
    indices : (nnz,) int32
    values : (nnz,) float32
    columns : int
        Of the cell.
    offsets : (nnz,) float32, optional
        What the predictors have besides that of the factors.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    columns: int
    offsets: Float32 | None = None

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What gradient kernels take of it; with `offsets` where there are some."""
        given = self.indptr, self.indices, self.values
        return given if self.offsets is None else (*given, self.offsets)

    @cached_property
    def by_column(self) -> RatingsBlock:
        """The same ratings sorted by column: of a cell whose rows are the columns. Kept from the first time on."""
        from scipy import sparse  # takes its time to import, and an opened run needs no cells

        rows = len(self.indptr) - 1
        turned = sparse.csr_array((self.values, self.indices, self.indptr), shape=(rows, self.columns)).tocsc()
        return RatingsBlock(turned.indptr.astype(np.int64), turned.indices.astype(np.int32), turned.data, rows)


@dataclass(frozen=True)
class TestRows:
    """Test ratings of one row block, in the order of the file.

    Attributes
    ----------
    values : (q,) float32
        Ratings less the centre, over the scale.
    by_column : list of (selection, rows, columns)
        For every column block: positions in `values`, local rows and local columns, all int32.
    """

    values: Float32
    by_column: list[tuple[Int32, Int32, Int32]]


def trim_memory() -> None:
    """Return memory that was freed to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class RatingBlocks:
    """The blocks of the rows that this process owns. Collective.

    Parameters
    ----------
    ratings : Ratings
        Open ratings file.
    ring : Ring
        The processes of the chain; says which row blocks are this process's.
    centre : float
        Subtracted from every rating (the training mean, or 0).
    standardise : bool
        Whether ratings are then divided by the root of their mean square.
    codes : callable, optional
        Gives what `train` has in the place of ratings, such as the numbers of levels.

    Attributes
    ----------
    scale : float
        What they are divided by; 1 if they are not, or are all alike.
    row_bounds, column_bounds : (B + 1,) int64
        Where the row and column blocks begin.
    row_counts : dict of int to (rows,) int64
        Training ratings of every row, by row block of this process.
    column_counts : (J,) int64
        Training ratings of every column of the whole matrix.
    part_sizes : (B,) int64
        Training ratings in every part.
    part_peaks : (B,) int64
        Most training ratings of any one row or column within a part.
    """

    def __init__(
        self,
        ratings: Ratings,
        ring: Ring,
        centre: float,
        standardise: bool = False,
        codes: Callable[[Float32], Array] | None = None,
    ) -> None:
        grid = ring.grid
        if grid > min(ratings.n_rows, ratings.n_cols):
            raise InputError(
                f"{named('grid')} {grid} is more than {ratings.path} allows: it has {ratings.n_rows} rows and "
                f"{ratings.n_cols} columns"
            )
        self.n_data, self.n_test, self.centre, self._codes = ratings.nnz, ratings.nnz_test, centre, codes
        self.shape = (ratings.n_rows, ratings.n_cols)
        self.column_counts: Int64 = ratings.column_counts
        self.column_bounds = block_bounds(np.concatenate([[0], np.cumsum(self.column_counts)]), grid)
        self.row_bounds = block_bounds(ratings.row_indptr, grid)
        self.row_counts = {
            b: np.diff(ratings.row_indptr[self.row_bounds[b] : self.row_bounds[b + 1] + 1]) for b in ring.blocks
        }
        self.train: dict[tuple[int, int], RatingsBlock] = {}
        self.test: dict[int, TestRows] = {}
        ring.agree(partial(self._read, ratings, ring), "reading ratings")
        self.part_sizes, self.part_peaks = self._count(ring)
        self.scale = self._standardise(ring) if standardise else 1.0
        self._peak = int(max(np.diff(ratings.row_indptr).max(), self.column_counts.max()))
        trim_memory()

    def bounds(self, factor: Factor, index: int) -> tuple[int, int]:
        """First and last + 1 global row of a block of a factor."""
        bounds = self.row_bounds if factor == Factor.W else self.column_bounds
        return int(bounds[index]), int(bounds[index + 1])

    def curvature_bound(self, probability: Float64 | None) -> float:
        """Most ratings of any one row or column in a part, over the part's probability; in all, without parts."""
        if probability is None:
            return float(max(self._peak, 1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.nan_to_num(self.part_peaks / probability)
        return float(max(scaled.max(), 1.0))

    def level_counts(self, ring: Ring, size: int) -> Int64:
        """Training ratings of every level, (R,) int64, of which there are so many. Collective."""
        counts = np.zeros((len(ring.blocks), size))
        for (b, _), block in self.train.items():
            counts[b - ring.blocks.start] += np.bincount(block.values.astype(np.int64), minlength=size)
        return ring.total(counts).astype(np.int64)

    def _read(self, ratings: Ratings, ring: Ring) -> None:
        for b in ring.blocks:
            fault("load")
            start, stop = int(self.row_bounds[b]), int(self.row_bounds[b + 1])
            for c, block in enumerate(self._read_train(ratings, start, stop)):
                self.train[b, c] = block
            self.test[b] = self._cut_test(*ratings.slab("test", start, stop))

    def _read_train(self, ratings: Ratings, start: int, stop: int) -> list[RatingsBlock]:
        """Read a range of rows in small slabs, so that little more memory is needed than what is kept."""
        bounds, grid = self.column_bounds, len(self.column_bounds) - 1
        slabs = [(start + a, start + b) for a, b in row_slabs(ratings.row_indptr[start : stop + 1], SLAB)]
        block_of, sizes = np.repeat(np.arange(grid, dtype=np.int32), np.diff(bounds)), np.zeros(grid, np.int64)
        for first, last in slabs:
            sizes += np.bincount(block_of[ratings.columns("train", first, last)], minlength=grid)
        blocks = [
            RatingsBlock(np.zeros(stop - start + 1, np.int64), np.empty(n, np.int32), np.empty(n, np.float32), m)
            for n, m in zip(sizes, np.diff(bounds).tolist(), strict=True)
        ]
        filled = np.zeros(grid, np.int64)
        for first, last in slabs:
            for c, (indptr, indices, values) in enumerate(
                split_columns(*ratings.slab("train", first, last), bounds, self.centre)
            ):
                place = slice(filled[c], filled[c] + len(values))
                if place.stop > sizes[c]:
                    raise InputError(f"{ratings.path} has changed while it was read: start again")
                blocks[c].indptr[first - start + 1 : last - start + 1] = filled[c] + indptr[1:]
                if self._codes is not None:
                    values = self._codes(values)
                blocks[c].indices[place], blocks[c].values[place] = indices, values
                filled[c] += len(values)
        return blocks

    def _cut_test(self, indptr: Int64, indices: Int32, values: Float32) -> TestRows:
        rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        block = np.searchsorted(self.column_bounds, indices, side="right") - 1
        by_column = []
        for c in range(len(self.column_bounds) - 1):
            chosen = np.flatnonzero(block == c).astype(np.int32)
            columns = (indices[chosen] - self.column_bounds[c]).astype(np.int32)
            by_column.append((chosen, rows[chosen], columns))
        return TestRows((values - np.float32(self.centre)).astype(np.float32), by_column)

    def _standardise(self, ring: Ring) -> float:
        """Divide all ratings by the root of the mean square of the training ones, and return it."""
        squares = np.zeros((len(ring.blocks), 1))
        for (b, _), block in self.train.items():
            squares[b - ring.blocks.start] += np.einsum("i,i->", block.values, block.values, dtype=np.float64)
        scale = float(np.sqrt(ring.total(squares)[0] / self.n_data)) or 1.0
        for values in (*(block.values for block in self.train.values()), *(rows.values for rows in self.test.values())):
            np.divide(values, scale, out=values)
        return scale

    def _count(self, ring: Ring) -> tuple[Int64, Int64]:
        grid = ring.grid
        sizes = np.zeros((len(ring.blocks), grid))
        peaks = np.zeros((len(ring.blocks), grid))
        for (b, c), block in self.train.items():
            part = (c - b) % grid
            sizes[b - ring.blocks.start, part] = len(block.values)
            if len(block.values):
                columns = np.bincount(block.indices)
                peaks[b - ring.blocks.start, part] = max(np.diff(block.indptr).max(), columns.max())
        total = ring.total(sizes)
        peak = ring.reduce(peaks, lambda most: most, grid, np.maximum)
        return total.astype(np.int64), peak.astype(np.int64)
