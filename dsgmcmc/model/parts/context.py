"""Context: effects of the category that a rating has, alone or within its user or its item.

``device`` is a term with an effect for every device; ``user:weekday`` has one for every user and weekday, and
``item:weekday`` alike. Categories are those of the context columns of the ratings file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.ratings import Ratings, Split
from dsgmcmc.data.ratings.context import context_name
from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import Quantity, SavedDraw
from dsgmcmc.settings import named
from dsgmcmc.types import Factor, Float32, Int32

SIDES = ("user", "item")


def canonical_terms(text: str) -> str:
    """Terms, in the order in which they are drawn, without spaces around them; ``no`` for none.

    Raises
    ------
    ValueError
        If one cannot be, or is there twice.
    """
    if text == "no":
        return text
    names = []
    for part in text.split(","):
        side, colon, column = part.rpartition(":")
        if side.strip() not in (*SIDES, "") or (colon and not side.strip()):
            raise ValueError(f"{part.strip()!r} is no term: expected COLUMN, user:COLUMN or item:COLUMN")
        names.append(f"{side.strip()}{colon}{context_name(column.strip())}")
    if len(set(names)) < len(names):
        raise ValueError("names a term twice")
    return ",".join(names)


class ContextTerm(NamedTuple):
    """One term of the context; with a model's factors, a `dsgmcmc.model.parts.groups.Level`.

    Attributes
    ----------
    name : str
        Such as ``device`` or ``user:weekday``.
    factor : Factor or None
        Whose rows have effects of their own; None if all share them.
    """

    name: str
    factor: Factor | None

    @property
    def kind(self) -> str:
        """``user`` or ``item``, whichever have effects of their own; empty if all share them."""
        return self.name.rpartition(":")[0]

    @property
    def column(self) -> str:
        """The context column with its categories."""
        return self.name.rpartition(":")[2]

    @property
    def field(self) -> str:
        """Field of a block that has the effects."""
        return f"context.{self.name.replace(':', '.')}"

    @property
    def quantity(self) -> Quantity:
        """Effects of a row; of a term that is not shared."""
        axis = (axis_of(self.column),)
        return Quantity(self.field, axis, of_rows=True, at_home=True, rating=1, factor=self.factor)

    def counts(self, ratings: Ratings) -> Int32:
        """How many groups every row has, (n,); of no row, how many there are, (1,)."""
        rows = 1 if self.factor is None else (ratings.n_rows, ratings.n_cols)[self.factor]
        return np.full(rows, ratings.context.columns[self.column].size, np.int32)

    def within(self, ratings: Ratings, part: Split, start: int, stop: int) -> Int32:
        """Groups of the ratings in rows `start` to `stop` of a part, (m,), among those of the row they belong to."""
        return ratings.context.slab(self.column, part, start, stop)


def terms_of(names: str, transposed: bool) -> tuple[ContextTerm, ...]:
    """Terms of canonical names; `transposed` says that the rows of W are items."""
    factors = dict(zip(SIDES, (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H), strict=True))
    return tuple(
        ContextTerm(name, factors.get(name.rpartition(":")[0])) for name in (names.split(",") if names != "no" else ())
    )


class GivenTerm(NamedTuple):
    """A term of the context of new ratings.

    Attributes
    ----------
    term : ContextTerm
    codes : (q,) int32, or None
        Category of every rating, -1 where it is not known; None if no rating's is.
    first : int
        Of a term that all rows share, the place of its first effect among those of all such terms.
    """

    term: ContextTerm
    codes: Int32 | None
    first: int = 0

    def effects(
        self, draw: SavedDraw, users: Int32, items: Int32, precision: float
    ) -> tuple[Float32 | float, Float32 | float]:
        """Mean and variance of the effects on the ratings of these rows: those that are not known have their prior."""
        if self.codes is None:
            return 0.0, 1 / precision
        if not self.term.kind:
            known = self.codes >= 0
            effects = draw.shared["context.effects"][np.where(known, self.first + self.codes, 0)].astype(np.float32)
        else:
            rows = {"user": users, "item": items}[self.term.kind]
            known = (self.codes >= 0) & (rows >= 0)
            table = draw.rows[self.term.kind][self.term.field]
            effects = table[np.where(known, rows, 0), np.where(known, self.codes, 0)]
        mean, variance = np.where(known, [effects, np.zeros_like(effects)], [[0.0], [1 / precision]]).astype(np.float32)
        return mean, variance


def columns_of(names: str) -> tuple[str, ...]:
    """Context columns that terms need, each once."""
    return tuple(dict.fromkeys(term.column for term in terms_of(canonical_terms(names), transposed=False)))


def axis_of(column: str) -> str:
    """Name of the axis of the categories of a column."""
    return f"context.{column}"


def axes_of(names: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """Lengths of the axes of the quantities of canonical terms, given the numbers of categories by column."""
    terms = terms_of(names, transposed=False)
    shared = sum(sizes[term.column] for term in terms if term.factor is None)
    axes = {axis_of(term.column): sizes[term.column] for term in terms}
    return axes | {"context_term": len(terms), "context_category": shared}


def check_columns(names: str, ratings: Ratings) -> None:
    """Refuse ratings that lack a column that a term needs."""
    for term in terms_of(names, ratings.transposed):
        if term.column not in ratings.context.columns:
            there = ", ".join(ratings.context.columns) or "no context columns"
            raise InputError(
                f"{ratings.path} has {there}, and no {term.column!r}, which {named('context')} needs: prepare it again "
                "with that context column"
            )
