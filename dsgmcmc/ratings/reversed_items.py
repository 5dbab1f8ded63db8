"""Finds items whose ratings go against those of the others, as answers to reversed questions do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import Side
from dsgmcmc.ratings.names import split_name
from dsgmcmc.ratings.pairs import RatedPairs, pairs_in_slabs
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Float64

_LEAST = 12  # ratings of an item that is judged
_ERRORS = 4  # standard errors of a correlation of 0, below which it is negative


def describe_reversed(ratings: Ratings) -> list[str]:
    """Say which items seem to be reversed; an empty list without any."""
    names = reversed_items(ratings)
    if not names:
        return []
    subject = f"{len(names):,} items seem to be reversed"
    if len(names) == 1:
        subject = "1 item seems to be reversed"
    return [
        f"{subject}: {shortened(names)}; their higher ratings go with lower ones of other items,"
        f" which a model with {named('rank')} 0 cannot say: turn their scale, or give"
        f" {named('rank')} 1 or more"
    ]


def reversed_items(ratings: Ratings) -> list[str]:
    """Return the names of items whose correlation with the rest is clearly negative, sorted.

    It is the correlation, over the users of an item, of its training ratings with the users' mean
    standardised ratings of other items.
    """
    side: Side = "cols"
    if ratings.orientation.transposed:
        side = "rows"
    standard = _standard(ratings)
    moments = _moments_with_rest(ratings, standard)
    number = np.maximum(moments[0], 1)
    _, mean_z, mean_rest, mean_square, product = moments / number
    spread = np.sqrt(np.maximum(mean_square - np.square(mean_rest), 1e-12))
    correlation = (product - mean_z * mean_rest) / spread
    found = (moments[0] >= _LEAST) & (correlation * np.sqrt(number) < -_ERRORS)
    return sorted(split_name(name) for name in ratings.ids(side)[found])


class _Standard(NamedTuple):
    """Means and sds of the training ratings of items, (n,) each; the sd of equal ones is inf."""

    mean: Float64
    sd: Float64

    def scores(self, part: RatedPairs) -> Float64:
        """Return ratings less the means of their items, in units of their sds, (m,)."""
        scores: Float64 = (part.values - self.mean[part.items]) / self.sd[part.items]
        return scores


def _standard(ratings: Ratings) -> _Standard:
    """Return the means and sds of items."""
    _, n = ratings.orientation.users_and_items(ratings.n_rows, ratings.n_cols)
    counts = np.zeros(n)
    sums = np.zeros(n)
    squares = np.zeros(n)
    for part in pairs_in_slabs(ratings, "train"):
        values = part.values.astype(np.float64)
        counts += np.bincount(part.items, minlength=n)
        sums += np.bincount(part.items, values, n)
        squares += np.bincount(part.items, np.square(values), n)
    mean = sums / np.maximum(counts, 1)
    sd = np.sqrt(np.maximum(squares / np.maximum(counts, 1) - np.square(mean), 0))
    sd[sd < 1e-6 * np.maximum(np.abs(mean), 1)] = np.inf
    return _Standard(mean, sd)


def _moments_with_rest(ratings: Ratings, standard: _Standard) -> Float64:
    """Sum over the users of items, (5, n): 1, z, rest, rest^2 and z rest.

    z is the standardised rating, and rest the mean of those of the user's other items; users
    without others do not count.
    """
    n_users, n = ratings.orientation.users_and_items(ratings.n_rows, ratings.n_cols)
    rated = np.zeros(n_users)
    total = np.zeros(n_users)
    for part in pairs_in_slabs(ratings, "train"):
        rated += np.bincount(part.users, minlength=n_users)
        total += np.bincount(part.users, standard.scores(part), n_users)
    moments = np.zeros((5, n))
    for part in pairs_in_slabs(ratings, "train"):
        z = standard.scores(part)
        others = rated[part.users] - 1
        rest = np.where(others > 0, (total[part.users] - z) / np.maximum(others, 1), 0)
        weight = (others > 0).astype(float)
        for row, term in enumerate((weight, weight * z, rest, rest**2, z * rest)):
            moments[row] += np.bincount(part.items, term, n)
    return moments
