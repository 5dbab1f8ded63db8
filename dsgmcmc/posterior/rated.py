"""Which items each user rated, or liked, in training."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dsgmcmc.model.predictive.base import reaches
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Array, Float32, Int32, Int64


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
        is_transposed = ratings.orientation.transposed
        if users is not None and len(users) and not is_transposed:
            self._first = int(users.min())
            stop = int(users.max()) + 1
        slab = ratings.slab("train", self._first, stop)
        self._shape = (stop - self._first, ratings.n_cols)
        self._indptr: Int64 = slab.indptr
        self._items: Int32 = slab.indices
        self._values: Float32 = slab.values
        if is_transposed:
            self._shape = (ratings.n_cols, ratings.n_rows)
            self._sort(slab.indices, slab.rows.astype(np.int32))
        elif ratings.replicates:
            self._sort(slab.rows, slab.indices)

    def _sort(self, users: Array, items: Int32) -> None:
        """Sort ratings by user and item; a pair counts once, with its highest rating."""
        order = np.lexsort((self._values, items, users))
        users = users[order]
        items = items[order]
        is_last = np.append((np.diff(users) != 0) | (np.diff(items) != 0), True)
        self._items = items[is_last]
        self._values = self._values[order][is_last]
        self._indptr = np.searchsorted(users[is_last], np.arange(self._shape[0] + 1))

    @cached_property
    def pattern(self) -> Any:
        """Ones for the ratings of the users that were read, (users, items) sparse matrix.

        These are all users if `users` are not given, or the file is transposed.
        """
        return self.reaching(None)

    def reaching(self, bound: float | None) -> Any:
        """Return ones for the ratings of at least `bound` (None: for all), as `pattern`."""
        from scipy.sparse import csr_matrix  # slow to import

        ones = np.ones(len(self._items))
        if bound is not None:
            ones[~reaches(self._values, bound)] = 0.0
        matrix = csr_matrix((ones, self._items.copy(), self._indptr.copy()), self._shape)
        matrix.eliminate_zeros()
        return matrix

    def has(self, users: Int32) -> bool:
        """Return whether the ratings of all these users were read."""
        if not len(users):
            return True
        stop = self._first + len(self._indptr) - 1
        return bool(self._first <= users.min() and users.max() < stop)

    def items_of(self, user: int, bound: float | None = None) -> Int32:
        """Return the rows of the items that a user rated (with a bound: at least that high)."""
        start, stop = self._indptr[user - self._first :][:2]
        items = self._items[start:stop]
        if bound is None:
            return items
        return items[reaches(self._values[start:stop], bound)]

    def count(self, users: Int32, items: Int32) -> int:
        """Return how many pairs of rows, (n,) each, training has."""
        return int(self.pattern[users - self._first, items].sum())


def read_rated(run: Run, users: Int32 | None = None) -> Rated:
    """Read which items each user rated in training.

    `users` are as for `Rated`. Raises InputError as `Run.open_ratings`.
    """
    with run.open_ratings() as ratings:
        return Rated(ratings, users)
