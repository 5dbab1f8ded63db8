"""Lowest and highest levels of items that users say, such as 0 and 3 of four answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import Description, load_description
from dsgmcmc.input.sources.tables import scalar
from dsgmcmc.ratings.names import split_name
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Float32

_ENDS = ("lowest", "highest")
_MOST_LEVELS = 25  # of a scale


class SaidLevels(NamedTuple):
    """Levels of items in the DuckDB table ``said_levels``: id, lowest, highest.

    Attributes
    ----------
    doubts : list of str
        Items of the table that have no ratings.
    """

    doubts: list[str]

    @classmethod
    def read(cls, db: Session, description: Description, labels: Sequence[str]) -> Self:
        """Read the levels of items of the ratings in the table ``raw``.

        Raises InputError if there are no such columns, if they have other than two numbers of which
        the second is higher, or if an item has a rating outside of its levels.
        """
        if len(labels) > 1:
            description = description._replace(parts=tuple(labels))
        described = load_description(db, "item", description)
        column_of = {name.lower(): column for name, column in described.columns.items()}
        if not column_of.keys() >= {*_ENDS}:
            raise InputError(
                f"{described.path} has the columns {shortened([*described.columns])}: levels of"
                " items are in the columns lowest and highest"
            )
        low, high = (f"TRY_CAST({column_of[end]} AS FLOAT)" for end in _ENDS)
        db.execute(
            f"CREATE TABLE said_levels AS SELECT id, {low} AS lowest, {high} AS highest FROM"
            f" {described.name}"
        )
        db.execute(f"DROP TABLE {described.name}")
        wrong = db.execute(
            "SELECT id FROM said_levels WHERE NOT coalesce(isfinite(lowest) AND isfinite(highest)"
            " AND lowest < highest, false) ORDER BY id LIMIT 1"
        ).fetchone()
        if wrong is not None:
            raise InputError(
                f"{described.path}: item {split_name(wrong[0])} needs two numbers, lowest and"
                " highest, of which the second is higher"
            )
        _refuse_other_ratings(db)
        unrated = [
            split_name(name)
            for (name,) in db.execute(
                "SELECT id FROM said_levels ANTI JOIN raw ON item_id = id ORDER BY id"
            ).fetchall()
        ]
        if not unrated:
            return cls([])
        return cls([f"{described.path} has levels of items without ratings: {shortened(unrated)}"])

    def of_items(self, db: Session, number: int) -> Float32:
        """Return the lowest and the highest levels of all items, (2, number); NaN if not said."""
        found = db.execute(
            "SELECT k, lowest, highest FROM said_levels JOIN items USING (id)"
        ).fetchnumpy()
        said = np.full((2, number), np.nan, np.float32)
        for row, end in zip(said, _ENDS, strict=True):
            row[found["k"]] = found[end]
        return said


def _refuse_other_ratings(db: Session) -> None:
    """Raise InputError if ratings are no levels, or one is outside of the levels of its item."""
    number = scalar(db, "SELECT count(DISTINCT rating::FLOAT) FROM raw")
    if not 2 < number <= _MOST_LEVELS:
        raise InputError(
            f"the ratings have {number:,} different values: {named('levels')} is for 3 to"
            f" {_MOST_LEVELS} ordered levels"
        )
    outside = db.execute(
        "SELECT id, rating, lowest, highest FROM raw JOIN said_levels ON item_id = id WHERE"
        " rating::FLOAT < lowest OR rating::FLOAT > highest ORDER BY id, rating LIMIT 1"
    ).fetchone()
    if outside is not None:
        name, rating, lowest, highest = outside
        raise InputError(
            f"item {split_name(name)} has a rating of {rating:g}, and {named('levels')} says"
            f" {lowest:g} to {highest:g}: correct one of them"
        )
