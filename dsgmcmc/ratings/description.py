"""What a ratings file has, in words: its sizes and scale, and doubts about its test ratings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES, SLAB, Side, row_slabs


def describe_ratings(ratings: Ratings) -> dict[str, str]:
    """Describe the sizes and the scale of a ratings file, by labels for people."""
    users, items = ratings.orientation.users_and_items(ratings.n_rows, ratings.n_cols)
    columns = {
        entity: _columns_of_parts(ratings, side)
        for entity, side in zip(ratings.entities, SIDES, strict=True)
    }
    described = {
        "users": f"{users:,}{columns['user']}",
        "items": f"{items:,}{columns['item']}",
        "ratings": _describe_pairs(ratings),
        "training": _describe_training(ratings),
        "test": _describe_test(ratings),
    }
    if ratings.open_directions is not None:
        directions = ", ".join(ratings.open_directions.columns)
        described["directions"] = f"{directions}, in an arrangement that `compare` chooses"
    return described


def _columns_of_parts(ratings: Ratings, side: Side) -> str:
    """Return the columns of the parts of names, in brackets; "" for names of one part."""
    if side not in ratings.parts:
        return ""
    return f" ({', '.join(ratings.parts[side])})"


def _describe_pairs(ratings: Ratings) -> str:
    """Describe the number of all ratings, and how dense they are."""
    total = ratings.nnz + ratings.nnz_test
    pairs = total - ratings.replicates
    text = f"{total:,}, density {pairs / (ratings.n_rows * ratings.n_cols):.3%}"
    if ratings.replicates:
        text += f"; {pairs:,} pairs, {ratings.replicates:,} replicates"
    return text


def _describe_training(ratings: Ratings) -> str:
    """Describe the number, the range, the mean and the levels of the training ratings."""
    text = (
        f"{ratings.nnz:,}, from {ratings.minimum:g} to {ratings.maximum:g}, mean {ratings.mean:.5g}"
    )
    if ratings.resolution is not None:
        text += f", in steps of {ratings.resolution:g}"
    if ratings.said_levels is not None:
        lowest, highest = ratings.said_levels
        number = np.count_nonzero(np.isfinite(lowest))
        text += f"; {number:,} items have said levels, from {np.nanmin(lowest):g}"
        text += f" to {np.nanmax(highest):g}"
    elif ratings.item_levels:
        text += "; items differ in their levels"
    if ratings.has_bounds:
        text += f"; {ratings.count_bounded('train'):,} known only by bounds"
    return text


def _describe_test(ratings: Ratings) -> str:
    """Describe the number of test ratings, and of those that are harder to score or predict."""
    total = ratings.nnz + ratings.nnz_test
    text = f"{ratings.nnz_test:,} ({ratings.nnz_test / total:.1%})"
    if bounded := ratings.count_bounded("test"):
        text += f"; {bounded:,} known only by bounds"
    if untrained := describe_untrained(ratings.untrained):
        text += f"; {untrained}"
    return text


def independent_tests(ratings: Ratings) -> int:
    """Count test ratings; those of a user or item without training ratings are one together."""
    numbers = np.diff(ratings.test_indptr)
    has_training = np.diff(ratings.row_indptr) > 0
    independent = int(np.count_nonzero(numbers[~has_training]))
    untrained = set[int]()
    for start, stop in row_slabs(ratings.test_indptr, SLAB):
        columns = ratings.columns("test", start, stop)
        columns = columns[np.repeat(has_training[start:stop], numbers[start:stop])]
        is_trained = ratings.column_counts[columns] > 0
        independent += int(np.count_nonzero(is_trained))
        untrained.update(np.unique(columns[~is_trained]).tolist())
    return independent + len(untrained)


def describe_untrained(counts: Mapping[str, int]) -> str:
    """Say how many test ratings have a user, or an item, without training ratings; "" if none has.

    `counts` has these numbers for "user" and "item".
    """
    if not any(counts.values()):
        return ""
    return (
        f"the users of {counts['user']:,} and the items of {counts['item']:,} have no training"
        " ratings"
    )


def doubts_about_test(ratings: Ratings) -> list[str]:
    """Return a warning if no test rating's user has training ratings; likewise for items.

    Names of several parts may be new in the test ratings, which their parts then predict, and whole
    groups that are held out may be all that an item has.
    """
    if ratings.grouped:
        return []
    with_parts = [ratings.entities[SIDES.index(side)] for side in ratings.parts]
    return [
        f"all test ratings are of {entity}s without training ratings: are the {entity}s named"
        " as in the training file?"
        for entity, number in ratings.untrained.items()
        if 0 < number == ratings.nnz_test and entity not in with_parts
    ]
