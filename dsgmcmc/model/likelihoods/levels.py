"""The distinct values of the training ratings."""

from __future__ import annotations

from typing import NamedTuple, Self

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.types import Float64, Int64, Mask


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
    """

    values: Float64
    counts: Int64
    of_rows: Mask | None = None
    spans: Float64 | None = None

    @classmethod
    def from_ratings(cls, ratings: Ratings) -> Self:
        """Count the training ratings of an open file at each distinct value."""
        return cls(*ratings.level_counts())
