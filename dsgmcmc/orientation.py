"""Users and items outside of the ring, rows and columns in it: the one place that translates.

The rows of a ratings file are the users, unless there are more items; then its rows are the items.
W has a row for every row of the file, and H for every column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from dsgmcmc.types import Factor

T = TypeVar("T")


@dataclass(frozen=True)
class Orientation:
    """Which factor's rows stand for users, and which factor's for items.

    Attributes
    ----------
    transposed : bool
        Whether the rows of a ratings file, and of W, are items.
    """

    transposed: bool

    def factor_of(self, entity: str) -> Factor:
        """The factor whose rows stand for an entity, "user" or "item"."""
        if (entity == "item") == self.transposed:
            return Factor.W
        return Factor.H

    def entity_of(self, factor: Factor) -> str:
        """What the rows of a factor stand for, "user" or "item"."""
        if (factor == Factor.H) == self.transposed:
            return "user"
        return "item"

    def factors_of(self, setting: str) -> tuple[Factor, ...]:
        """The factors that a setting names, users first.

        The setting is ``user``, ``item``, both of these with ``by-``, or ``both``; no factor is
        named by ``no`` and ``shared``.
        """
        name = setting.removeprefix("by-")
        if name in {"no", "shared"}:
            return ()
        if name == "both":
            return self.factor_of("user"), self.factor_of("item")
        return (self.factor_of(name),)

    def users_and_items(self, of_rows: T, of_columns: T) -> tuple[T, T]:
        """What belongs to users and to items, given what belongs to the rows and the columns."""
        if self.transposed:
            return of_columns, of_rows
        return of_rows, of_columns
