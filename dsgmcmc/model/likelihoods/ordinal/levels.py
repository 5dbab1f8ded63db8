"""The distinct values of the training ratings."""

from __future__ import annotations

from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Float64, Int64, Mask

#: Distinct values of open files, or of views of them, and their numbers of ratings.
_COUNTED: WeakKeyDictionary[Ratings, tuple[Float64, Int64]] = WeakKeyDictionary()


class Levels(NamedTuple):
    """The distinct values of the training ratings.

    Attributes
    ----------
    values : (R,) float64
        Distinct values, ascending.
    counts : (R,) int64
        Number of training ratings with each value; zeros if the likelihood does not need these
        numbers.
    of_rows : (n, R) bool, optional
        Levels that each row of the factor with thresholds has, if some rows lack levels.
    spans : (R, R) float64, optional
        Number of training ratings at a level that stands for levels k to l, if some rows lack
        levels.
    anchored : bool
        Whether each row that lacks levels shares the value of a threshold that it has
        (`dsgmcmc.model.likelihoods.ordinal.own_levels`).
    """

    values: Float64
    counts: Int64
    of_rows: Mask | None = None
    spans: Float64 | None = None
    anchored: bool = False

    @classmethod
    def from_ratings(cls, ratings: Ratings) -> Self:
        """Count the training ratings of an open file at each distinct value."""
        if ratings not in _COUNTED:
            _COUNTED[ratings] = _count(ratings)
        return cls(*_COUNTED[ratings])


def _count(ratings: Ratings) -> tuple[Float64, Int64]:
    """Return the distinct training ratings, (R,) ascending, and the number of each, (R,)."""
    counted = ratings.count_levels()
    if counted is None:
        return _count_many(ratings)
    return counted


def _count_many(ratings: Ratings) -> tuple[Float64, Int64]:
    """Return what `_count` returns, of any number of distinct ratings."""
    values = np.zeros(0)
    counts = np.zeros(0, np.int64)
    for slab in ratings.values("train"):
        slab_values, slab_counts = np.unique(slab.astype(np.float64), return_counts=True)
        values, index = np.unique(np.concatenate([values, slab_values]), return_inverse=True)
        sums = np.bincount(index, np.concatenate([counts, slab_counts]), len(values))
        counts = sums.astype(np.int64)
    return values, counts
