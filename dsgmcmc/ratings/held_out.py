"""Splits the training ratings of a file into a training and a test part, to choose a model by it.

If the file has a temporal split, the latest training ratings are held out. If its test ratings are
whole groups, groups of training ratings are held out, by a hash of seed and group. Otherwise
training ratings are held out at random, by a hash of seed, row and column. Rows may be left out at
random, with all their ratings, by a hash of seed and row. The test ratings of the file are never
read. Only counts are kept in memory; every read computes the split again.

[Steele 2014] Fast splittable pseudorandom number generators. OOPSLA.
"""

from __future__ import annotations

import hashlib

import numpy as np
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.compact_ratings import count_values
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import AGES, SPLITS, RowRatings, Side, Split, Times, row_slabs
from dsgmcmc.types import Float32, Float64, Int32, Int64, Mask, UInt64

_SLAB_ENTRIES = 4_000_000  # ratings that are read at a time


class InnerSplit(Ratings):
    """A view of an open file that splits its training ratings into training and test ratings.

    Raises InputError if the split leaves no training ratings or no test ratings.

    Parameters
    ----------
    ratings : Ratings
        The open file.
    share : float
        Approximate share of the training ratings to hold out, rounded to a multiple of 1 / `AGES`
        if the split is temporal.
    seed : int
        Seed of the random split.
    rows : float
        Approximate share of the rows whose ratings are used.

    Attributes
    ----------
    digest : str
        Hash of the file's digest, the shares and the seed.
    """

    def __init__(self, ratings: Ratings, share: float, seed: int, rows: float = 1.0) -> None:
        vars(self).update(vars(ratings))  # names, features, times and levels come from the file
        self._whole = ratings
        self._share = share
        self._held_out_below = _hash_bound(share)
        self._used_up_to = _hash_bound(rows)
        self._seed_hash = _scramble(np.array([seed], np.uint64))
        self.temporal = False
        self.grouped = False
        self.grouped_by = ()
        self.digest = hashlib.sha256(
            f"{ratings.digest} inner {share!r} {rows!r} {seed}".encode()
        ).hexdigest()
        vars(self).pop("untrained", None)  # of the file's test ratings
        self._count()

    def _count(self) -> None:
        """Count the ratings of both parts, and compute mean and range of the training part."""
        counts = {part: np.zeros(self.n_rows, np.int64) for part in SPLITS}
        self.column_counts = np.zeros(self.n_cols, np.int64)
        total = 0.0
        total_weight = 0.0
        self.minimum = np.inf
        self.maximum = -np.inf
        for start, stop in row_slabs(self._whole.row_indptr, _SLAB_ENTRIES):
            slab = self._whole.slab("train", start, stop)
            rows = slab.rows
            columns = slab.indices
            masks = {part: self._mask(part, start, stop, columns) for part in SPLITS}
            for part, mask in masks.items():
                counts[part][start:stop] = np.bincount(rows[mask], minlength=stop - start)
            kept = slab.values[masks["train"]]
            if slab.weights is not None:
                total_weight += slab.weights[masks["train"]].sum(dtype=np.float64)
            self.column_counts += np.bincount(columns[masks["train"]], minlength=self.n_cols)
            total += kept.sum(dtype=np.float64)
            self.minimum = float(kept.min(initial=self.minimum))
            self.maximum = float(kept.max(initial=self.maximum))
        self._indptr = {part: np.append(0, np.cumsum(n)) for part, n in counts.items()}
        self.row_indptr = self._indptr["train"]
        self.test_indptr = self._indptr["test"]
        self.nnz = int(self.row_indptr[-1])
        self.nnz_test = int(self.test_indptr[-1])
        if not self.nnz or not self.nnz_test:
            raise InputError(
                f"{self.path} has {self._whole.nnz:,} training ratings: too few to hold some out"
                " for comparing models"
            )
        self.mean = total / self.nnz
        self._mean_weight = np.float32(total_weight / self.nnz)

    def _mask(self, part: Split, start: int, stop: int, columns: Int32) -> Mask:
        """Return a mask of the file's training ratings that are in a part, (n,).

        The ratings are those in rows `start` to `stop`, at `columns`, (n,).
        """
        rows = np.repeat(np.arange(start, stop), np.diff(self._whole.row_indptr[start : stop + 1]))
        if self._whole.temporal:
            held_out = self._whole.ages(start, stop) < round(self._share * AGES)
        elif self._whole.grouped:
            groups = self._whole.groups("train", start, stop).astype(np.uint64)
            held_out = _scramble(groups + self._seed_hash) < self._held_out_below
        else:
            cells = (rows * self.n_cols + columns).astype(np.uint64)
            held_out = _scramble(cells + self._seed_hash) < self._held_out_below
        used = _scramble(rows.astype(np.uint64) ^ self._seed_hash) <= self._used_up_to
        return used & (held_out if part == "test" else ~held_out)

    @override
    def slab(self, part: Split, start: int, stop: int) -> RowRatings:
        slab = self._whole.slab("train", start, stop)
        mask = self._mask(part, start, stop, slab.indices)
        indptr = self._indptr[part][start : stop + 1]
        chosen = slab.select(mask, indptr - indptr[0])
        if chosen.weights is None:
            return chosen
        return chosen._replace(weights=chosen.weights / self._mean_weight)

    @override
    def count_levels(self) -> tuple[Float64, Int64] | None:
        return count_values(self.values("train"))

    @override
    def stored_weights(self, part: Split, start: int, stop: int) -> Float32:
        stored = self._whole.stored_weights("train", start, stop)
        return stored[self._mask(part, start, stop, self._whole.columns("train", start, stop))]

    @override
    def columns(self, part: Split, start: int, stop: int) -> Int32:
        columns = self._whole.columns("train", start, stop)
        return columns[self._mask(part, start, stop, columns)]

    @override
    def times_slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read the positions in time of a part's ratings; they are positions in the file."""
        mask = self._mask(part, start, stop, self._whole.columns("train", start, stop))
        times = self._whole.times_slab("train", side, start, stop)
        return Times(*(numbers[mask] for numbers in times))


def _hash_bound(share: float) -> np.uint64:
    """Return the bound below which hashes, (n,) uint64, have this share."""
    return np.uint64(min(int(share * 2.0**64), 2**64 - 1))


def _scramble(x: UInt64) -> UInt64:
    """Mix the bits of (n,) uint64: the finaliser of splitmix64 [Steele 2014]."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
