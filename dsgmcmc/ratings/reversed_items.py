"""Finds items whose ratings go against those of the others, as answers to reversed questions do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SLAB, Side, row_slabs
from dsgmcmc.ratings.names import split_name
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Array, Float64, Int64

_LEAST = 12  # ratings of an item that is judged
_ERRORS = 4  # standard errors of a correlation of 0, below which it is negative


class _Part(NamedTuple):
    """Training ratings by numbers of users and items, (m,) each."""

    users: Int64
    items: Int64
    values: Float64


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
    users = ratings.n_rows
    n = ratings.n_cols
    side: Side = "cols"
    if ratings.orientation.transposed:
        users = ratings.n_cols
        n = ratings.n_rows
        side = "rows"
    counts = np.zeros(n)
    sums = np.zeros(n)
    squares = np.zeros(n)
    for part in _parts(ratings):
        counts += np.bincount(part.items, minlength=n)
        sums += np.bincount(part.items, part.values, n)
        squares += np.bincount(part.items, np.square(part.values), n)
    mean = sums / np.maximum(counts, 1)
    sd = np.sqrt(np.maximum(squares / np.maximum(counts, 1) - np.square(mean), 0))
    sd[sd < 1e-6 * np.maximum(np.abs(mean), 1)] = np.inf
    rated = np.zeros(users)
    total = np.zeros(users)
    for part in _parts(ratings):
        rated += np.bincount(part.users, minlength=users)
        total += np.bincount(part.users, (part.values - mean[part.items]) / sd[part.items], users)
    moments = np.zeros((5, n))  # of z and the mean of the rest: n, z, rest, rest^2, z rest
    for part in _parts(ratings):
        z = (part.values - mean[part.items]) / sd[part.items]
        others = rated[part.users] - 1
        rest = np.where(others > 0, (total[part.users] - z) / np.maximum(others, 1), 0)
        weight = (others > 0).astype(float)
        for row, term in enumerate((weight, weight * z, rest, rest**2, z * rest)):
            moments[row] += np.bincount(part.items, term, n)
    number = np.maximum(moments[0], 1)
    _, mean_z, mean_rest, mean_square, product = moments / number
    spread = np.sqrt(np.maximum(mean_square - np.square(mean_rest), 1e-12))
    correlation = (product - mean_z * mean_rest) / spread
    found = (moments[0] >= _LEAST) & (correlation * np.sqrt(number) < -_ERRORS)
    return sorted(split_name(name) for name in ratings.ids(side)[found])


def _parts(ratings: Ratings) -> Iterator[_Part]:
    """Yield the training ratings."""
    for start, stop in row_slabs(ratings.row_indptr, SLAB):
        slab = ratings.slab("train", start, stop)
        rows: Array = start + slab.rows.astype(np.int64)
        columns = slab.indices.astype(np.int64)
        values = slab.values.astype(np.float64)
        if ratings.orientation.transposed:
            yield _Part(columns, rows, values)
        else:
            yield _Part(rows, columns, values)
