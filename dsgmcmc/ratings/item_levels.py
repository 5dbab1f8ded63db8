"""Finds items with fewer levels of ratings than others, such as answers of 0 and 1 beside 0 to 3.

A rare level may be missing by chance, or because an item is bad. Towards the end of a tail the
ratio of the counts of neighbouring levels does not rise, so it tells how many ratings the level
beyond an item's last one would have. Between two of its levels, an absent one would have as many
ratings as the rarer of both, or its share of all ratings tells. If none of many expected ratings is
there, the item has no such level; if several items lack the same levels, fewer do for another. This
says whether the items of a file clearly differ. A model then gives every item the levels that were
observed, because a scale may end at a level that is rare, or those that users have said.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Array, Float32, Float64, Mask

_EXPECTED = 12  # ratings that a level would have if the item had it
_EXPECTED_OF_KIND = 3  # the same if several items have the same levels
_SHARE = 0.1  # of the items, which have fewer levels


def levels_of_items(counts: Array) -> Mask:
    """Return which levels items have, (I, R), given their numbers of ratings, (I, R).

    An item has all levels, but for those of which many ratings were expected, and none is there.
    """
    expected = np.maximum(_expected_above(counts), _expected_above(counts[:, ::-1])[:, ::-1])
    expected = np.maximum(expected, _expected_between(counts))
    has = expected < _EXPECTED
    kinds, kind, sizes = np.unique(has, axis=0, return_inverse=True, return_counts=True)
    seen = counts > 0
    for k in np.flatnonzero((sizes > 1) & ~kinds.all(axis=1)).tolist():
        alike = (seen == kinds[k]).all(axis=1) & (kind.reshape(-1) != k)
        alike &= (seen | (expected >= _EXPECTED_OF_KIND)).all(axis=1)
        has[alike] = kinds[k]
    return has


def observed_levels(counts: Array) -> Mask:
    """Return which levels items have, (I, R): those at which they have ratings, given counts.

    An item with fewer than 12 ratings, or with one level only, tells too little: it has the levels
    of `levels_of_items`.
    """
    seen: Mask = counts > 0
    few = (counts.sum(axis=1) < _EXPECTED) | (np.count_nonzero(seen, axis=1) < 2)
    return np.where(few[:, np.newaxis], levels_of_items(counts), seen)


def with_said_levels(has: Mask, levels: Float64, said: Float32) -> Mask:
    """Return which of the `levels`, (R,), items have, (I, R), where some of them are said.

    `said`, (2, I), has the lowest and the highest level of an item, NaN if only `has`, (I, R),
    tells. A level that no item was given has no place, and an item needs one.
    """
    values = levels.astype(np.float32)
    lowest, highest = said[:, :, np.newaxis]
    inside = (values >= lowest) & (values <= highest)
    return np.where(inside.any(axis=1, keepdims=True), inside, has)


def items_differ(has: Mask) -> bool:
    """Whether at least two items, and a tenth of all, lack an end of the scale, given (I, R)."""
    lacking = int(np.count_nonzero(~(has[:, 0] & has[:, -1])))
    return lacking >= 2 and lacking >= _SHARE * len(has)


def _expected_above(counts: Array) -> Float64:
    """Ratings expected at levels above an item's last one, (I, R), given counts; 0 elsewhere."""
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
    expected[(last == 0) | (before == 0)] = 0
    above = np.arange(n_levels) > last[:, np.newaxis]
    return np.where(above, expected[:, np.newaxis], 0.0)


def _expected_between(counts: Array) -> Float64:
    """Ratings expected at absent levels between two that an item has, (I, R); 0 elsewhere."""
    n_levels = counts.shape[1]
    number = np.arange(n_levels)
    seen = counts > 0
    below = np.maximum.accumulate(np.where(seen, number, -1), axis=1)
    above = np.minimum.accumulate(np.where(seen, number, n_levels)[:, ::-1], axis=1)[:, ::-1]
    inside = ~seen & (below >= 0) & (above < n_levels)
    row, column = np.nonzero(inside)
    total = counts.sum(axis=0)
    expected = np.zeros(counts.shape)
    of_neighbours = [
        counts[row, neighbour] * np.minimum(1, total[column] / total[neighbour])
        for neighbour in (below[row, column], above[row, column])
    ]
    expected[row, column] = np.minimum(*of_neighbours)
    return expected
