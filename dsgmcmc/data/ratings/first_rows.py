"""The first rows of a ratings file as a smaller one, without what else the file knows of them: to measure by size."""

from __future__ import annotations

import hashlib

import numpy as np

from dsgmcmc.data.ratings.context import NO_CONTEXT
from dsgmcmc.data.ratings.format import Split, row_slabs
from dsgmcmc.data.ratings.reader import Ratings
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

_SLAB = 4_000_000  # entries read at a time


class FirstRows(Ratings):
    """So many rows of a file, which are in random order, that they have about so many training ratings.

    All columns are there, but no features, times nor context.

    Parameters
    ----------
    ratings : Ratings
        The open file.
    wanted : int
        Training ratings. The rows that have at most so many are taken, but one row at least.

    Attributes
    ----------
    digest : str
        Hash of the file's digest and of the number of rows.
    """

    def __init__(self, ratings: Ratings, wanted: int) -> None:
        self._whole = ratings
        self.path, self.n_cols, self.transposed, self.seed = (
            ratings.path,
            ratings.n_cols,
            ratings.transposed,
            ratings.seed,
        )
        self.n_rows = max(int(np.searchsorted(ratings.row_indptr, wanted, side="right")) - 1, 1)
        self.row_indptr = ratings.row_indptr[: self.n_rows + 1]
        self.test_indptr = ratings.test_indptr[: self.n_rows + 1]
        self.nnz, self.nnz_test = int(self.row_indptr[-1]), int(self.test_indptr[-1])
        self.mean, self.minimum, self.maximum = ratings.mean, ratings.minimum, ratings.maximum
        self.source, self.source_sha256 = ratings.source, ratings.source_sha256
        self.features, self.times, self.context, self.temporal = {}, None, NO_CONTEXT, False
        self.digest = hashlib.sha256(f"{ratings.digest} first rows {self.n_rows}".encode()).hexdigest()
        self.column_counts = self._count()

    def _count(self) -> Int64:
        """Training ratings of each column."""
        if self.n_rows == self._whole.n_rows:
            return self._whole.column_counts
        counts = np.zeros(self.n_cols, np.int64)
        for start, stop in row_slabs(self.row_indptr, _SLAB):
            counts += np.bincount(self.columns("train", start, stop), minlength=self.n_cols)
        return counts

    def close(self) -> None:
        """See `Ratings.close`."""
        self._whole.close()

    def row_ids(self) -> Array:
        """See `Ratings.row_ids`."""
        return self._whole.row_ids()[: self.n_rows]

    def col_ids(self) -> Array:
        """See `Ratings.col_ids`."""
        return self._whole.col_ids()

    def slab(self, part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """See `Ratings.slab`."""
        return self._whole.slab(part, start, stop)

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """See `Ratings.columns`."""
        return self._whole.columns(part, start, stop)

    @property
    def value_bytes(self) -> int:
        """See `Ratings.value_bytes`."""
        return self._whole.value_bytes

    def levels(self, most: int) -> Float64 | None:
        """See `Ratings.levels`: those of the file."""
        return self._whole.levels(most)
