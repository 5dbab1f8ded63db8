"""Lists with at most some items of each category, such as three films of a genre.

The best items are taken in order; one whose categories are full is passed over. Where lists are not
filled, those of full categories are excluded, and the best of the others follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.index import SIDE_OF
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.pairs import join, select
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float64, Int32, Int64, Mask


class Ranked(NamedTuple):
    """The best items of users, in descending order of their scores, (n,) each."""

    positions: Int64  # of the user
    items: Int32
    scores: Float64


class Caps(NamedTuple):
    """Categories of items, and how many items of one a list may have.

    Attributes
    ----------
    categories : (items, m) int64
        Of every item; `number` where an item has fewer than m.
    number : int
        Of categories.
    most : int
    """

    categories: Int64
    number: int
    most: int

    @classmethod
    def of_run(cls, run: Run, at_most: str) -> Caps:
        """Read the categories of the items of a run from a column of their features.

        Raises InputError if `at_most` is not COLUMN=N, or the items have no such column.
        """
        column, _, number = at_most.rpartition("=")
        if not column or not number.isdecimal() or not int(number):
            raise InputError(f"{named('at_most')} {at_most}: expected COLUMN=N, such as genres=3")
        with run.open_ratings() as ratings:
            side = SIDE_OF[run.index.factors["item"]]
            if side not in ratings.features:
                raise InputError(
                    f"{named('at_most')} {at_most}: the ratings file has no features of items:"
                    f" prepare it with {named('item_features')}"
                )
            features = ratings.feature_slab(side, 0, len(run.items))
        is_category = np.array([name.startswith(f"{column}=") for name in features.names])
        if not is_category.any():
            columns = dict.fromkeys(name.partition("=")[0] for name in features.names)
            raise InputError(
                f"{named('at_most')} {at_most}: the items have no categories in a column {column};"
                f" their columns are {', '.join(columns)}"
            )
        of_item = np.repeat(np.arange(len(run.items)), np.diff(features.indptr))
        chosen = is_category[features.indices]
        names, found = np.unique(features.indices[chosen], return_inverse=True)
        of_item = of_item[chosen]
        counts = np.bincount(of_item, minlength=len(run.items))
        places = np.arange(len(of_item)) - np.repeat(np.cumsum(counts) - counts, counts)
        categories = np.full((len(run.items), counts.max()), len(names))
        categories[of_item, places] = found
        return cls(categories, len(names), int(number))

    def fill(self, added: Array, top: int, rank: Callable[[Int64, Array, int], Ranked]) -> Ranked:
        """Return lists of at most `top` items for users.

        `rank` returns the best items of some users, given their positions, their `added` and how
        many; positions in its result are among these users. `added`, (users, items), is minus
        infinity for items that are not listed; it is changed.
        """
        parts = []
        taken = np.zeros((len(added), self.number + 1), np.int32)
        missing = np.full(len(added), top)
        left = np.arange(len(added))
        while True:
            length = int(missing[left].max(initial=1))
            ranked = rank(left, added, length)
            added[ranked.positions, ranked.items] = -np.inf
            is_long = np.bincount(ranked.positions, minlength=len(left)) == length
            ranked = ranked._replace(positions=left[ranked.positions])
            parts.append(self._take(ranked, taken, missing))
            goes_on = is_long & (missing[left] > 0)
            left = left[goes_on]
            if not len(left):
                break
            added = added[goes_on]
            added[self._are_full(taken[left])] = -np.inf
        joined = join(parts)
        return select(joined, np.argsort(joined.positions, kind="stable"))

    def _take(self, ranked: Ranked, taken: Int32, missing: Int64) -> Ranked:
        """Return the items that are listed, and count them.

        `taken`, (users, categories + 1), are the numbers of listed items, and `missing`, (users,),
        how many are still to be listed.
        """
        kept = np.zeros(len(ranked.items), bool)
        places = positions_in_lists(ranked.positions)
        for place in range(places.max(initial=-1) + 1):
            here = np.flatnonzero(places == place)
            users = ranked.positions[here]
            categories = self.categories[ranked.items[here]]
            counts = taken[users[:, np.newaxis], categories]
            is_free = ((counts < self.most) | (categories == self.number)).all(axis=1)
            is_free &= missing[users] > 0
            kept[here] = is_free
            taken[users[is_free, np.newaxis], categories[is_free]] += 1
            missing[users[is_free]] -= 1
        return select(ranked, kept)

    def _are_full(self, taken: Int32) -> Mask:
        """Return which items have a full category, (users, items)."""
        is_full = taken >= self.most
        is_full[:, self.number] = False
        full = np.zeros((len(taken), len(self.categories)), bool)
        for categories in self.categories.T:
            full |= is_full[:, categories]
        return full


def positions_in_lists(users: Array) -> Int32:
    """Return the position of each item, from 0, in the list of its user (`RankedItems.users`)."""
    starts = np.flatnonzero(np.diff(users, prepend=-1))
    lengths = np.diff(np.append(starts, len(users)))
    return (np.arange(len(users)) - np.repeat(starts, lengths)).astype(np.int32)
