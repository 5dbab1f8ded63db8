"""Which items each user rated in training."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Int32


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

    def has(self, users: Int32) -> bool:
        """Return whether the ratings of all these users were read."""
        if not len(users):
            return True
        stop = self._first + len(self._indptr) - 1
        return bool(self._first <= users.min() and users.max() < stop)

    def items_of(self, user: int) -> Int32:
        """Return the rows of the items that a user rated."""
        start, stop = self._indptr[user - self._first :][:2]
        return self._items[start:stop]

    def count(self, users: Int32, items: Int32) -> int:
        """Return how many pairs of rows, (n,) each, training has."""
        return int(self.pattern[users - self._first, items].sum())


def read_rated(run: Run, data: Path | None = None, users: Int32 | None = None) -> Rated:
    """Read which items each user rated in training.

    Parameters are as for `Run.open_ratings` and `Rated`.
    """
    with run.open_ratings(data) as ratings:
        return Rated(ratings, users)
