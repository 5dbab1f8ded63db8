"""Splits the training ratings of a file once more, to choose a model; the file's test ratings are never read.

If the file has a temporal split, the latest training ratings are held out. Otherwise a rating is held out if a hash of
the seed, row and column is small, that is, at random. Only counts are kept in memory; the split is computed again at
every read.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dsgmcmc.data.ratings import AGES, SPLITS, Features, Ratings, Side, Split, Times, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, Mask, UInt64

_SLAB = 4_000_000  # entries read at a time


class InnerSplit(Ratings):
    """A view of an open file whose training ratings are split into training and test ratings.

    Raises InputError if one of the two parts would be empty.

    Parameters
    ----------
    ratings : Ratings
        The open file.
    share : float
        Approximate share of the training ratings that is held out; with a temporal split, rounded to 1 / `AGES`.
    seed : int
        Seed of the random split.

    Attributes
    ----------
    digest : str
        Hash of the file's digest, the share and the seed.
    """

    def __init__(self, ratings: Ratings, share: float, seed: int) -> None:
        self._whole, self._share, self._below = ratings, share, np.uint64(min(int(share * 2.0**64), 2**64 - 1))
        self._start = _scramble(np.array([seed], np.uint64))
        self.path, self.n_rows, self.n_cols = ratings.path, ratings.n_rows, ratings.n_cols
        self.transposed, self.seed = ratings.transposed, ratings.seed
        self.source = ratings.source
        self.features, self.times, self.temporal = ratings.features, ratings.times, False
        self.digest = hashlib.sha256(f"{ratings.digest} inner {share!r} {seed}".encode()).hexdigest()
        self._count()

    def _count(self) -> None:
        """Count the ratings of both parts; compute mean and range of the training part."""
        counts = {part: np.zeros(self.n_rows, np.int64) for part in SPLITS}
        self.column_counts = np.zeros(self.n_cols, np.int64)
        total, low, high = 0.0, np.inf, -np.inf
        for start, stop in row_slabs(self._whole.row_indptr, _SLAB):
            ends, columns, values = self._whole.slab("train", start, stop)
            rows, held = np.repeat(np.arange(stop - start), np.diff(ends)), self.held_out(start, stop, columns)
            for part, chosen in zip(SPLITS, (~held, held), strict=True):
                counts[part][start:stop] = np.bincount(rows[chosen], minlength=stop - start)
            if not held.all():
                kept = values[~held]
                self.column_counts += np.bincount(columns[~held], minlength=self.n_cols)
                total += kept.sum(dtype=np.float64)
                low, high = min(low, float(kept.min())), max(high, float(kept.max()))
        self._indptr = {part: np.append(0, np.cumsum(n)) for part, n in counts.items()}
        self.row_indptr, self.test_indptr = (self._indptr[part] for part in SPLITS)
        self.nnz, self.nnz_test = (int(self._indptr[part][-1]) for part in SPLITS)
        if not self.nnz or not self.nnz_test:
            raise InputError(
                f"{self.path} has {self._whole.nnz:,} training ratings: too few to hold some of them out, and choose a "
                "model by these"
            )
        self.mean, self.minimum, self.maximum = total / self.nnz, low, high

    def held_out(self, start: int, stop: int, columns: Int32) -> Mask:
        """Mask of the file's training ratings in rows `start` to `stop` that are held out; `columns` are theirs."""
        if self._whole.temporal:
            latest: Mask = self._whole.ages(start, stop) < round(self._share * AGES)
            return latest
        rows = np.repeat(np.arange(start, stop), np.diff(self._whole.row_indptr[start : stop + 1]))
        pairs = (rows * self.n_cols + columns).astype(np.uint64)
        held: Mask = _scramble(pairs + self._start) < self._below
        return held

    def chosen(self, part: Split, start: int, stop: int, columns: Int32 | None = None) -> Mask:
        """Mask of the file's training ratings in some rows that are in a part; `columns` are read if None."""
        held = self.held_out(start, stop, self._whole.columns("train", start, stop) if columns is None else columns)
        return held if part == "test" else ~held

    def close(self) -> None:
        """Close the file."""
        self._whole.close()

    def row_ids(self) -> Array:
        """Return (I,) original names of the rows: int64, or an object array of str."""
        return self._whole.row_ids()

    def col_ids(self) -> Array:
        """Return (J,) original names of the columns: int64, or an object array of str."""
        return self._whole.col_ids()

    def slab(self, part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """Read rows `start` to `stop` of a part."""
        _, columns, values = self._whole.slab("train", start, stop)
        chosen = self.chosen(part, start, stop, columns)
        indptr = self._indptr[part][start : stop + 1]
        return indptr - indptr[0], columns[chosen], values[chosen]

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """Columns of the ratings in rows `start` to `stop` of a part, (n,) int32, to count ratings per column."""
        columns = self._whole.columns("train", start, stop)
        return columns[self.chosen(part, start, stop, columns)]

    @property
    def value_bytes(self) -> int:
        """Bytes per training rating in memory (`dsgmcmc.kernels.stored`), judged by the file's first ratings."""
        return self._whole.value_bytes

    def levels(self, most: int) -> Float64 | None:
        """Distinct training ratings, (R,) float64 in ascending order; None if there are more than `most`.

        The levels are those of the whole file, so that models of both have equal levels.
        """
        return self._whole.levels(most)

    def feature_slab(self, side: Side, start: int, stop: int) -> Features:
        """Read the features of rows (or columns) `start` to `stop`."""
        return self._whole.feature_slab(side, start, stop)

    def times_slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read the positions in time, among all ratings of the file, of a part's ratings in rows `start` to `stop`."""
        chosen = self.chosen(part, start, stop)
        return Times(*(numbers[chosen] for numbers in self._whole.times_slab("train", side, start, stop)))


def _scramble(x: UInt64) -> UInt64:
    """Mix the bits of (n,) uint64: the finaliser of splitmix64 [Steele 2014]."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
