"""Who rated what in training."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dsgmcmc.data.ratings import Ratings, row_slabs
from dsgmcmc.posterior.exposure import Exposure
from dsgmcmc.types import Float32, Int32

if TYPE_CHECKING:
    import scipy.sparse

_SLAB = 4_000_000  # ratings read at a time


class Rated:
    """Which items each user rated in training.

    Parameters
    ----------
    ratings : Ratings
        Open ratings file of the run.
    users : (n,) int32, optional
        Rows of the users that will be needed; default all, which `exposure` needs.
    """

    def __init__(self, ratings: Ratings, users: Int32 | None = None) -> None:
        self._first, last = 0, ratings.n_rows
        if users is not None and len(users) and not ratings.transposed:
            self._first, last = int(users.min()), int(users.max()) + 1
        indptr, indices, _ = ratings.slab("train", self._first, last)
        self._indptr, self._indices = indptr, indices
        self._items = ratings.n_rows if ratings.transposed else ratings.n_cols
        if ratings.transposed:  # rows are items
            rows = np.repeat(np.arange(ratings.n_rows, dtype=np.int32), np.diff(indptr))
            order = np.argsort(indices, kind="stable")
            self._indptr = np.append(0, np.cumsum(ratings.column_counts))
            self._indices = rows[order]

    def of(self, user: int) -> Int32:
        """Rows of the items that a user rated."""
        row = user - self._first
        items: Int32 = self._indices[self._indptr[row] : self._indptr[row + 1]]
        return items

    def pattern(self) -> scipy.sparse.csr_matrix:
        """Who rated what, of all users that were read: (users, items) float32 of ones."""
        import scipy.sparse  # takes its time to import

        ones = np.ones(len(self._indices), np.float32)
        shape = len(self._indptr) - 1, self._items
        return scipy.sparse.csr_matrix((ones, self._indices, self._indptr), shape=shape)

    @cached_property
    def exposure(self) -> Exposure:
        """Exposure of users to items."""
        return Exposure.of_pattern(self.pattern())


class OwnRatings(NamedTuple):
    """Training ratings of some users (or items): position of the user, row of the item, and the rating, (n,) each."""

    which: npt.NDArray[np.intp]
    others: Int32
    values: Float32


def own_ratings(ratings: Ratings, kind: str, rows: Int32) -> OwnRatings:
    """Read the training ratings of some users or items, by their rows (q,) int32, all different."""
    place = np.full(max(ratings.n_rows, ratings.n_cols), -1)
    place[rows] = np.arange(len(rows))
    parts = []
    for start, stop in row_slabs(ratings.row_indptr, _SLAB):
        ends, columns, values = ratings.slab("train", start, stop)
        sides = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(ends)), columns
        own, other = sides if (kind == "user") != ratings.transposed else sides[::-1]
        chosen = place[own] >= 0
        parts.append((place[own[chosen]], other[chosen], values[chosen]))
    return OwnRatings(*(np.concatenate(column) for column in zip(*parts, strict=True)))
