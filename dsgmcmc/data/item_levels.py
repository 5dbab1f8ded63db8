"""Finds items with fewer levels of ratings than others, such as answers of 0 and 1 beside 0 to 3.

A rare level may be missing by chance, or because an item is bad. Towards the end of a tail the
ratio of the counts of neighbouring levels does not rise, so it tells how many ratings the level
beyond an item's last one would have. If none of many expected ratings is there, the item has no
such level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.columns import shortened
from dsgmcmc.data.parts import split_name
from dsgmcmc.data.session import Session
from dsgmcmc.data.tables import scalar
from dsgmcmc.types import Array, Mask

MOST_LEVELS = 25  # of a scale
_EXPECTED = 12  # ratings that a level would have if the item had it
_SHARE = 0.1  # of the items, which have fewer levels
_SAMPLE = 200_000  # ratings that show the levels of items


class _ItemLevels(NamedTuple):
    """Numbers of ratings of items (I, R) at levels (R,)."""

    items: Array
    levels: Array
    counts: Array


def describe_item_levels(db: Session, codes: Sequence[float]) -> str:
    """Say which items have fewer levels than others in the table ``raw``.

    Returns an empty text if few have, or ratings are no levels; `codes` are none.
    """
    found = _count_levels(db, codes)
    if found is None:
        return ""
    lacking = _lacks_highest(found.counts) | _lacks_highest(found.counts[:, ::-1])
    names = [split_name(str(name)) for name in found.items[lacking]]
    if len(names) < 2 or len(names) < _SHARE * len(found.items):
        return ""
    first = found.counts[np.flatnonzero(lacking)[0]] > 0
    some = ", ".join(f"{level:g}" for level in found.levels[first])
    return (
        f"{len(names):,} of {len(found.items):,} items have other levels than the rest"
        f" ({shortened(names)}), as {names[0]} has {some}: a model gives all items all levels from"
        f" {found.levels[0]:g} to {found.levels[-1]:g}; bring the items to one scale, or fit them"
        " apart"
    )


def _count_levels(db: Session, codes: Sequence[float]) -> _ItemLevels | None:
    """Count a sample of the ratings by item and level; None if there are more than 25 levels."""
    step = 1 + scalar(db, "SELECT count(*) FROM raw") // _SAMPLE
    others = "".join(f" AND rating != {code!r}" for code in codes)
    sample = f"FROM raw WHERE hash(rowid) % {step} = 0{others}"
    if scalar(db, f"SELECT approx_count_distinct(rating) {sample}") > 2 * MOST_LEVELS:
        return None
    cells = db.execute(f"SELECT item_id, rating, count(*) AS n {sample} GROUP BY ALL").fetchnumpy()
    levels, column = np.unique(cells["rating"], return_inverse=True)
    if not 2 < len(levels) <= MOST_LEVELS:
        return None
    items, row = np.unique(cells["item_id"].astype(str), return_inverse=True)
    counts = np.zeros((len(items), len(levels)))
    counts[row, column] = cells["n"]
    return _ItemLevels(items, levels, counts)


def _lacks_highest(counts: Array) -> Mask:
    """Return a mask of items that cannot have the highest level, given counts (I, R)."""
    n_levels = counts.shape[1]
    last = n_levels - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    row = np.arange(len(counts))
    at_last = counts[row, last]
    before = counts[row, np.maximum(last - 1, 0)]
    earlier = counts[row, np.maximum(last - 2, 0)]
    ratio = at_last / np.maximum(before, 1)
    falls = np.ones(len(counts))
    three = (last > 1) & (before > 0) & (earlier > 0)
    falls[three] = (ratio * earlier)[three] / before[three]
    expected = at_last * np.minimum(1, ratio) * np.minimum(1, falls)
    lacks: Mask = (last > 0) & (last < n_levels - 1) & (before > 0) & (expected >= _EXPECTED)
    return lacks
