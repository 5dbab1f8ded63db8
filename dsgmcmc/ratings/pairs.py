"""Ratings by user and item, read from a ratings file, whose rows may be users or items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SLAB, Split, row_slabs
from dsgmcmc.types import Array, Int32

Arrays = TypeVar("Arrays", bound=NamedTuple)


class RatedPairs(NamedTuple):
    """Ratings by user and item, (m,) each.

    Attributes
    ----------
    users, items : int32
        Rows of the users and of the items.
    values : float
        The ratings; of those that are known only by bounds, a value between the bounds.
    weights : float or None
        Relative precisions, with a mean of 1 over all training ratings.
    bounds : (m, 2) float or None
        Lower and upper bounds, equal if ratings are exact; None if all are.
    held_out : bool
        Whether they are test ratings.
    """

    users: Int32
    items: Int32
    values: Array
    weights: Array | None = None
    bounds: Array | None = None
    held_out: bool = False


def select(columns: Arrays, chosen: Array | slice) -> Arrays:
    """Return the chosen elements of all arrays, by a mask, positions or a slice."""
    return columns._make(
        column[chosen] if isinstance(column, np.ndarray) else column for column in columns
    )


def join(parts: Sequence[Arrays]) -> Arrays:
    """Return the elements of all arrays, one part after the other; what is no array is the first's.

    If some parts have ``bounds``, those of others are their ``values``, twice.
    """
    joined = []
    for name in parts[0]._fields:
        columns = [part._asdict()[name] for part in parts]
        if name == "bounds" and any(column is not None for column in columns):
            for k, column in enumerate(columns):
                if column is None:
                    columns[k] = np.column_stack([parts[k]._asdict()["values"]] * 2)
        if isinstance(columns[0], np.ndarray):
            joined.append(np.concatenate(columns))
        else:
            joined.append(columns[0])
    return parts[0]._make(joined)


def rated_pairs(ratings: Ratings, part: Split) -> RatedPairs:
    """Return all ratings of a part, in the order of the file."""
    return _in_rows(ratings, part, 0, ratings.n_rows)


def pairs_in_slabs(ratings: Ratings, part: Split) -> Iterator[RatedPairs]:
    """Yield the ratings of a part in the order of the file, those of some rows at a time."""
    indptr = {"train": ratings.row_indptr, "test": ratings.test_indptr}
    for start, stop in row_slabs(indptr[part], SLAB):
        yield _in_rows(ratings, part, start, stop)


def _in_rows(ratings: Ratings, part: Split, start: int, stop: int) -> RatedPairs:
    """Return the ratings of a part in rows `start` to `stop`."""
    slab = ratings.slab(part, start, stop)
    rows = (start + slab.rows).astype(np.int32)
    users, items = ratings.orientation.users_and_items(rows, slab.indices)
    bounds = None
    if slab.bounds is not None:
        bounds = np.column_stack(slab.bounds)
    return RatedPairs(users, items, slab.values, slab.precisions, bounds, part == "test")
