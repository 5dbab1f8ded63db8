"""The context of new ratings: their categories, for the terms that a run has effects of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dsgmcmc.data.frames import context_of, text_of
from dsgmcmc.data.ratings import Categories
from dsgmcmc.errors import InputError
from dsgmcmc.model.parts.context import GivenTerm, terms_of
from dsgmcmc.types import Array, Int32

#: Categories of some ratings by context column, (q,) int32 each; -1 where they are not known.
Codes = Mapping[str, Int32]

NOTHING: Codes = {}


class RunContext:
    """Terms of a run, and the categories of their columns.

    Parameters
    ----------
    terms : str
        As the run's setting has them.
    transposed : bool
        Whether the rows of W are items.
    columns : dict of str to Categories
        Context columns of the ratings; there may be more than the terms use.

    Attributes
    ----------
    terms : tuple of ContextTerm
    columns : dict of str to Categories
        Those that the terms use.
    """

    def __init__(self, terms: str, transposed: bool, columns: Mapping[str, Categories]) -> None:
        self.terms = terms_of(terms, transposed)
        self.columns = {term.column: columns[term.column] for term in self.terms}

    def codes(self, values: Mapping[str, Sequence[Any]]) -> dict[str, Int32]:
        """Categories of values by column, those that the run knows; other columns are left out."""
        return {
            column: self.columns[column].codes([text_of(value) for value in given])
            for column, given in values.items()
            if column in self.columns
        }

    def of_frame(self, X: Any, number: int) -> dict[str, Int32]:
        """Categories of so many ratings by every column: those in a data frame; others are not known."""
        known = self.codes({column: texts.tolist() for column, texts in context_of(X, self.columns).items()})
        return {column: known.get(column, np.full(number, -1, np.int32)) for column in self.columns}

    def one(self, values: Mapping[str, Any]) -> dict[str, Int32]:
        """Categories of one context, (1,) each.

        Raises
        ------
        InputError
            If the run has no such column, or no such category.
        """
        codes = {}
        for column, value in values.items():
            if column not in self.columns:
                has = f"the context of this run is {', '.join(self.columns)}" if self.columns else "this run has none"
                raise InputError(f"there is no context column {column!r}: {has}")
            codes[column] = self.columns[column].codes([text_of(value)])
            if codes[column][0] < 0:
                some = ", ".join(map(repr, self.columns[column].names[:5]))
                more = ", ..." if self.columns[column].size > 5 else ""
                raise InputError(f"{column} has no category {value!r}: expected one of {some}{more}")
        return codes

    def given(self, codes: Codes, number: int) -> list[GivenTerm]:
        """All terms, for so many ratings with these categories; columns without them are not known."""
        found, first = [], 0
        for term in self.terms:
            own = codes.get(term.column)
            found.append(GivenTerm(term, None if own is None else np.broadcast_to(own, number), first))
            first += 0 if term.kind else self.columns[term.column].size
        return found


def filled(column: Array) -> Array:
    """A column of text that DuckDB gave, with None where a value is missing."""
    values: Array = np.ma.getdata(column).astype(object)
    values[np.ma.getmaskarray(column)] = None
    return values
