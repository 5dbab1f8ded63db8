r"""Exposure: which items a user will rate, estimated from who rated what, without the values.

Let B be the pattern of the training ratings (users x items, 1 for a rating and 0 otherwise). Every
column of B is regressed on all other columns, with a ridge penalty lambda. These regressions,
EASE^R [Steck 2019], have a closed form:

    P = (B^T B + lambda I)^-1,    W_jk = -P_jk / P_kk for j != k,    W_jj = 0,    score_i = b_i W

where b_i is row i of B. At most `MAX_ITEMS` items, those with the most ratings, take part. The
exposure grows faster than the score (docs/evidence/dropped.md):

    e_ij = max(score_ij, FLOOR times the share of users who rated j)^POWER

It orders items, and is a point estimate; the posterior of ratings does not depend on it.
``RUN/exposure-HASH.npy`` has W in float32, for the ratings with this hash, and the SHA-256 of its
rows (`dsgmcmc.storage.checked_rows`). It may be deleted.

[Steck 2019] Embarrassingly shallow autoencoders for sparse data, WWW.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.kernels.row_sums import sum_rows
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.storage.checked_rows import CheckedRows, write_rows
from dsgmcmc.types import Float32, Float64, Int32, Int64

#: Maximum number of items that take part in the regressions.
MAX_ITEMS = 4096
#: lambda
PENALTY = 500.0
#: Least score, in units of the share of users who rated an item; it exposes users without ratings
#: to popular items.
FLOOR = 0.01
POWER = 1.5


class Rated:
    """Items that each user rated in training.

    Parameters
    ----------
    ratings : Ratings
        Open ratings file of the run.
    users : (n,) int32, optional
        Rows of the users that will be needed; default all.
    """

    def __init__(self, ratings: Ratings, users: Int32 | None = None) -> None:
        self._first = 0
        stop = ratings.n_rows
        if users is not None and len(users) and not ratings.orientation.transposed:
            self._first = int(users.min())
            stop = int(users.max()) + 1
        slab = ratings.slab("train", self._first, stop)
        self._shape = (stop - self._first, ratings.n_cols)
        self._indptr = slab.indptr
        self._items = slab.indices
        if ratings.replicates or ratings.orientation.transposed:
            pattern = self.pattern
            if ratings.replicates:  # a pair counts once
                pattern.sum_duplicates()
                pattern.data[:] = 1.0
            if ratings.orientation.transposed:
                pattern = pattern.T.tocsr()
            self.pattern = pattern
            self._indptr = pattern.indptr
            self._items = pattern.indices

    @cached_property
    def pattern(self) -> Any:
        """Ones for the ratings of the users that were read, (users, items) sparse matrix.

        These are all users if `users` are not given, or the file is transposed.
        """
        from scipy.sparse import csr_matrix  # slow to import

        return csr_matrix((np.ones(len(self._items)), self._items, self._indptr), self._shape)

    def items_of(self, user: int) -> Int32:
        """Return the rows of the items that a user rated."""
        start, stop = self._indptr[user - self._first :][:2]
        return self._items[start:stop]

    def count(self, users: Int32, items: Int32) -> int:
        """Return how many pairs of rows, (n,) each, training has."""
        return int(self.pattern[users - self._first, items].sum())


@dataclass(frozen=True)
class Exposure:
    """Exposure of users to items.

    Attributes
    ----------
    shares : (items,) float64
        Share of the users who rated each item.
    weights : (k, k) float32
        W of the k items with the largest shares, in ascending order of the items.
    file : CheckedRows, optional
        W in a file, whose rows are checked before they are used.
    """

    shares: Float64
    weights: Float32
    file: CheckedRows | None = None

    @classmethod
    def of_ratings(cls, rated: Rated, shares: Float64) -> Exposure:
        """Estimate the exposure from the training ratings of all users."""
        pattern = rated.pattern[:, _regressed(shares)]
        inverse = np.linalg.inv(
            (pattern.T @ pattern).toarray() + PENALTY * np.eye(pattern.shape[1])
        )
        weights = inverse / -np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return cls(shares, weights.astype(np.float32))

    @classmethod
    def read(cls, path: Path, shares: Float64) -> Exposure | None:
        """Open a file written by `write`.

        None if it is missing, its hashes are damaged, or it does not fit the number of items.
        """
        n = len(_regressed(shares))
        with suppress(OSError, ValueError):
            file = CheckedRows(path)
            if file.matrix.shape == (n, n) and file.matrix.dtype == np.float32:
                return cls(shares, file.matrix, file)
        return None

    def write(self, path: Path) -> None:
        """Write the exposure to a file atomically, and ignore errors: W can be computed again."""
        with suppress(OSError):
            write_rows(path, self.weights)

    def scores(self, rated: Sequence[Int32]) -> Float32:
        """Return exposures, (users, items) float32; `rated` has the items that each user rated.

        Raises InputError if rows of the file are damaged.
        """
        positions = [self._position_of[items] for items in rated]
        rows = np.concatenate(positions)
        if self.file is not None:
            self.file.check(rows[rows >= 0])
        ends = np.cumsum([0, *map(len, positions)], dtype=np.int64)
        sums = np.empty((len(rated), len(self.weights)), np.float32)
        sum_rows(self.weights, rows, ends, sums)
        least = (FLOOR * self.shares).astype(np.float32)
        np.maximum(sums, least[self._regressed], out=sums)
        exposure = np.tile(least, (len(rated), 1))
        exposure[:, self._regressed] = sums
        return np.power(exposure, POWER, dtype=np.float32)

    @cached_property
    def _regressed(self) -> Int32:
        """Items that take part in the regressions, ascending."""
        return _regressed(self.shares)

    @cached_property
    def _position_of(self) -> Int64:
        """Position of each item among those that take part in the regressions; -1 for others."""
        positions = np.full(len(self.shares), -1, np.int64)
        positions[self._regressed] = np.arange(len(self._regressed))
        return positions


def _regressed(shares: Float64) -> Int32:
    """Return the items with the most ratings, which take part in the regressions, ascending."""
    return np.sort(np.argsort(-shares, kind="stable")[:MAX_ITEMS]).astype(np.int32)
