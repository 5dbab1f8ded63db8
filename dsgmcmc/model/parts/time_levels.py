"""Levels of time: ratings of one row, or of one column, that were given together.

A level is named after its side and the size of its groups: ``user:page`` has a group for each second in which a user
rated, ``user:8`` one for every eight ratings of a user in the order of time; items alike. Test ratings belong to groups
as training ratings do.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.ratings import SIDES, Ratings, Split
from dsgmcmc.data.ratings.times import StoredTimes
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Factor, Int32

PAGE = "page"
#: What a side alone stands for: the levels that were measured to be worth it.
USUAL = {"user": "user:page,user:8,user:64", "item": "item:32"}


def no_times(path: Path) -> InputError:
    """Make the error of levels of time where there are no times."""
    return InputError(
        f"{path} has no timestamps, which {named('time_levels')} needs: prepare it again with --timestamps"
    )


def canonical_levels(text: str) -> str:
    """Names of levels, in the order in which they are drawn; ``no`` for none.

    Raises
    ------
    ValueError
        If one is unknown, or there twice.
    """
    if text == "no":
        return text
    names = [name for part in text.split(",") for name in USUAL.get(part.strip(), part.strip()).split(",")]
    for name in names:
        kind, _, size = name.partition(":")
        if kind not in USUAL or not (size == PAGE or (size.isdecimal() and 2 <= int(size) < 2**31)):
            raise ValueError(f"{name!r} is not known: expected no, user, item, or levels like {USUAL['user']}")
    if len(set(names)) < len(names):
        raise ValueError("names a level twice")
    return ",".join(names)


class TimeLevel(NamedTuple):
    """One level; a `dsgmcmc.model.parts.groups.Level`.

    Attributes
    ----------
    name : str
        Such as ``user:8``.
    factor : Factor
        Whose rows' ratings its groups are of.
    run : int
        Ratings of a group; 0 where groups are pages.
    """

    name: str
    factor: Factor
    run: int

    @property
    def field(self) -> str:
        """Field of a block that has the effects."""
        return f"time.{self.name.replace(':', '.')}"

    def counts(self, ratings: Ratings) -> Int32:
        """How many groups every row has, (n,); of no row, how many there are, (1,)."""
        places, pages = _times(ratings).counts[SIDES[self.factor]]
        return -(-places // np.int32(self.run)) if self.run else pages

    def within(self, ratings: Ratings, part: Split, start: int, stop: int) -> Int32:
        """Groups of the ratings in rows `start` to `stop` of a part, (m,), among those of the row they belong to."""
        times = _times(ratings).slab(part, SIDES[self.factor], start, stop)
        return times.place // np.int32(self.run) if self.run else times.page


def _times(ratings: Ratings) -> StoredTimes:
    if ratings.times is None:
        raise no_times(ratings.path)
    return ratings.times


def time_levels_of(names: str, transposed: bool) -> tuple[TimeLevel, ...]:
    """Levels of canonical names; `transposed` says that the rows of W are items."""
    found = []
    for name in names.split(",") if names != "no" else ():
        kind, _, size = name.partition(":")
        factor = Factor.W if (kind == "item") == transposed else Factor.H
        found.append(TimeLevel(name, factor, 0 if size == PAGE else int(size)))
    return tuple(found)
