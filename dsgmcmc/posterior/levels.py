"""New ratings at levels that their items do not have."""

from __future__ import annotations

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Int32, Mask


def levels_of_items(run: Run) -> Mask | None:
    """Return which levels the items of a run have, (items, R); None if all have all levels."""
    return run.config.law.levels_of_items(run.draw(0))


def refuse_absent_levels(run: Run, items: Int32, ratings: Array) -> None:
    """Raise InputError if a rating is at a level that its item does not have.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    items : (q,) int32
        Rows of the items; those that the run does not know have all levels.
    ratings : (q,) float
        Those that are no levels count as the nearest one.
    """
    has = levels_of_items(run)
    if has is None:
        return
    assert run.levels is not None
    known = np.flatnonzero((items >= 0) & (items < len(has)))
    absent = known[~has[items[known], nearest_level(ratings[known], run.levels)]]
    if len(absent):
        first = absent[0]
        levels = _listed_levels(run, has[items[first]])
        raise InputError(
            f"item {run.items.ids[items[first]]} has a rating of {ratings[first]:g}, and in the"
            f" ratings of {run.path} it has only the levels {levels}: correct the rating, or fit"
            " with it"
        )


def refuse_items_with_absent_levels(run: Run, items: Int32) -> None:
    """Raise InputError if items lack levels; folded in, they would have all levels.

    `items`, (q,) int32, are their rows, -1 for items that the run does not know.
    """
    has = levels_of_items(run)
    if has is None:
        return
    known = items[items >= 0]
    lacking = known[~has[known].all(axis=1)]
    if len(lacking):
        raise InputError(
            f"item {run.items.ids[lacking[0]]} has only the levels"
            f" {_listed_levels(run, has[lacking[0]])}, which it would lose if it were folded in:"
            " fold in users, or fit with the new ratings"
        )


def _listed_levels(run: Run, has: Mask) -> str:
    """Return the levels that an item has as text, given a mask of them, (R,)."""
    assert run.levels is not None
    return ", ".join(f"{level:g}" for level in run.levels[has])
