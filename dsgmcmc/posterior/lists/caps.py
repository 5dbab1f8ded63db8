"""Lists with at most some items of each category, such as three films of a genre.

The best items are taken in order; one whose categories are full is passed over. So lists are first
made `LONGER` times as long, and longer again for the users whose lists are not filled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.index import SIDE_OF
from dsgmcmc.posterior.run import Run
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float64, Int32, Int64, Mask

LONGER = 2


class Ranked(NamedTuple):
    """The best items of users, in descending order of their scores, (n,) each."""

    positions: Int64  # of the user
    items: Int32
    scores: Float64

    def select(self, chosen: Array) -> Ranked:
        """Return some of them, by a mask or by their positions."""
        return Ranked(self.positions[chosen], self.items[chosen], self.scores[chosen])


class Caps(NamedTuple):
    """Categories of items, and how many items of one a list may have.

    Attributes
    ----------
    categories : list of list of int
        Of every item.
    most : int
    """

    categories: list[list[int]]
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
        of_items = np.split(features.indices, features.indptr[1:-1])
        return cls([found[is_category[found]].tolist() for found in of_items], int(number))

    def fill(
        self, n_users: int, top: int, rank: Callable[[Int64, int], Ranked], longest: int
    ) -> Ranked:
        """Return lists of at most `top` items for users.

        `rank` returns the best items of some users, by position, given how many; `longest` is the
        largest number that it needs to be asked for.
        """
        parts = []
        left = np.arange(n_users)
        length = min(LONGER * top, longest)
        while True:
            ranked = rank(left, length)
            kept = ranked.select(self._kept(ranked, top))
            n_kept = np.bincount(kept.positions, minlength=n_users)
            is_done = (n_kept >= top) | (length == longest)
            parts.append(kept.select(is_done[kept.positions]))
            left = left[~is_done[left]]
            if not len(left):
                break
            length = min(LONGER * length, longest)
        joined = Ranked(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return joined.select(np.argsort(joined.positions, kind="stable"))

    def _kept(self, ranked: Ranked, top: int) -> Mask:
        """Return which items are taken, in order."""
        kept = np.zeros(len(ranked.items), bool)
        user = -1
        taken: Counter[int] = Counter()
        number = 0
        pairs = zip(ranked.positions.tolist(), ranked.items.tolist(), strict=True)
        for k, (position, item) in enumerate(pairs):
            if position != user:
                user = position
                taken.clear()
                number = 0
            categories = self.categories[item]
            if number == top or any(taken[category] >= self.most for category in categories):
                continue
            kept[k] = True
            number += 1
            taken.update(categories)
        return kept
