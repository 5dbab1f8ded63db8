"""The three ways in which a table of three directions is a matrix.

A table with the columns station (users), hour (items) and day (context) is a matrix of stations
and pairs (hour, day), of pairs (station, day) and hours, or of pairs (station, hour) and days.
`dsgmcmc.prepare.three_way` writes the ratings file of any.
"""

from __future__ import annotations

from typing import NamedTuple

from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES, Directions
from dsgmcmc.settings import named


class Arrangement(NamedTuple):
    """A table of three directions as a matrix: columns of the names of users, and of items."""

    user: tuple[str, ...]
    item: tuple[str, ...]

    @property
    def name(self) -> str:
        """The columns, as in ``station+day x hour``."""
        return f"{'+'.join(self.user)} x {'+'.join(self.item)}"


def arrangements_of(directions: Directions) -> list[Arrangement]:
    """List the arrangements of a table; the first is that of an open file."""
    user, item, context = directions.columns
    return [
        Arrangement((user,), (item, context)),
        Arrangement((user, context), (item,)),
        Arrangement((user, item), (context,)),
    ]


def arrangement_of(ratings: Ratings) -> Arrangement:
    """Return the arrangement of ratings of three directions."""
    by_entity = {
        entity: ratings.labels[side] for side, entity in zip(SIDES, ratings.entities, strict=True)
    }
    return Arrangement(**by_entity)


def refuse_open(ratings: Ratings) -> None:
    """Raise InputError if the arrangement of the ratings is still open."""
    if ratings.open_directions is None:
        return
    user, item, context = ratings.open_directions.columns
    raise InputError(
        f"{ratings.path} has three directions ({user}, {item}, {context}), whose arrangement is"
        f" open: compare models ({named('model')} auto), or say it in `prepare` by"
        f" {named('columns')} user={user}+{context},item={item}, or"
        f" user={user},item={item}+{context} (docs/three-way.md)"
    )
