"""Ratings that are known to lie within bounds: ``<0.1``, ``[2, 3]``, relations, lower and upper.

In the DuckDB table ``raw`` such a rating has ``lower`` or ``upper`` or both; other ratings have
NULL for both. Its ``rating`` is the bound, or the middle of two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.roles import OF_BOUNDS
from dsgmcmc.input.sources.tables import add_columns, first_column, scalar
from dsgmcmc.tables.session import Session
from dsgmcmc.types import Array, Float64, Mask

_NUMBER = r"[-+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][-+]?[0-9]+)?"
_BELOW = rf"^\s*(?:<=?|≤)\s*({_NUMBER})\s*$"
_ABOVE = rf"^\s*(?:>=?|≥)\s*({_NUMBER})\s*$"
_BETWEEN = rf"^\s*[\[(]\s*({_NUMBER})\s*[,;]\s*({_NUMBER})\s*[\])]\s*$"
#: What texts of bounds begin with.
BEGINNINGS = ("<", ">", "≤", "≥", "[", "(")
#: Relations of a rating to its number, as ChEMBL has them, in SQL; `~` is taken for `=`.
BELOW = ("<", "<=", "<<", "≤")
ABOVE = (">", ">=", ">>", "≥")
EQUAL = ("", "=", "~", "==")


def _extracted(text: str, pattern: str, group: int = 1) -> str:
    return f"try_cast(nullif(regexp_extract({text}, '{pattern}', {group}), '') AS DOUBLE)"


def bounds_of_text(text: str) -> tuple[str, str]:
    """Return SQL of the lower and the upper bound that a text such as ``<0.1`` gives, or NULL."""
    first = f"left(ltrim({text}), 1)"  # much faster than a regular expression
    between = f"{first} IN ('[', '(')"
    bounds = [
        f"CASE WHEN {first} IN ({signs}) THEN {_extracted(text, pattern)}"
        f" WHEN {between} THEN {_extracted(text, _BETWEEN, group)} END"
        for signs, pattern, group in (("'>', '≥'", _ABOVE, 1), ("'<', '≤'", _BELOW, 2))
    ]
    return bounds[0], bounds[1]


def is_bound(text: str) -> bool:
    """Whether a text is a bound."""
    return bound_of(text) is not None


def refuse_relations(db: Session, path: Path, first: int) -> None:
    """Raise InputError if relations in ``raw``, from row `first` on, are other words than known."""
    known = (*BELOW, *ABOVE, *EQUAL)
    words = first_column(
        db,
        f"SELECT DISTINCT relation FROM raw WHERE rowid >= {first} AND relation NOT IN"
        f" ({_listed(known)}) ORDER BY relation LIMIT 5",
    )
    if words:
        shown = ", ".join(map(repr, words))
        raise InputError(
            f"{path}: the column of relations has {shown}: expected one of"
            f" {' '.join(word for word in known if word)}, or nothing"
        )


def _listed(words: tuple[str, ...]) -> str:
    """Return SQL of a list of relations."""
    return ", ".join(f"'{word}'" for word in words)


def set_bounds(db: Session, first: int, roles: Collection[str]) -> None:
    """Set the bounds of the ratings in ``raw`` from row `first` on, and values between bounds.

    The columns ``lower``, ``upper`` and ``relation`` of ``raw`` have what the columns of these
    `roles` say, and the table ``texts`` the texts of ratings. Bounds that differ become NaN.
    """
    lower, upper = bounds_of_text("text")
    db.execute(
        f"CREATE OR REPLACE TABLE bounds AS SELECT row, {lower} AS lower, {upper} AS upper"
        " FROM texts"
    )
    has_texts = scalar(db, "SELECT count(lower) + count(upper) FROM bounds") > 0
    if not has_texts and set(OF_BOUNDS).isdisjoint(roles):
        return
    add_columns(db, {"lower": "DOUBLE", "upper": "DOUBLE"})
    lower = _agreed_sql("raw.lower", "bounds.lower")
    upper = _agreed_sql("raw.upper", "bounds.upper")
    db.execute(
        f"UPDATE raw SET lower = {lower}, upper = {upper} FROM bounds WHERE raw.rowid = bounds.row"
    )
    if "relation" in roles:
        _set_related(db, first, ABOVE, side="lower", opposite="upper")
        _set_related(db, first, BELOW, side="upper", opposite="lower")
        db.execute("ALTER TABLE raw DROP COLUMN relation")
    db.execute(
        "UPDATE raw SET rating = coalesce((lower + upper) / 2, lower, upper)"
        f" WHERE rowid >= {first} AND rating IS NULL"
    )


def _set_related(
    db: Session, first: int, words: tuple[str, ...], *, side: str, opposite: str
) -> None:
    """Set the bound of ratings whose relation to a number is one of some words.

    It is the number, or NaN if a text in its place has a bound on the opposite side.
    """
    is_related = f"relation IN ({_listed(words)})"
    bound = _agreed_sql(side, "rating")
    db.execute(f"UPDATE raw SET {side} = {bound} WHERE rowid >= {first} AND {is_related}")
    db.execute(
        f"UPDATE raw SET {side} = 'nan' FROM bounds"
        f" WHERE raw.rowid = bounds.row AND {is_related} AND bounds.{opposite} IS NOT NULL"
    )


def _agreed_sql(bound: str, other: str) -> str:
    """Return SQL of the bound that two sources give; NaN if they give different bounds."""
    # for least and greatest, NULL is nothing, and NaN is above all numbers
    lowest = f"least({bound}, {other})"
    highest = f"greatest({bound}, {other})"
    return f"CASE WHEN {lowest} < {highest} THEN 'nan'::DOUBLE ELSE {highest} END"


_TWO_BOUNDS = "it has two different bounds on one side"
_WRONG_ORDER = "the lower bound is above the upper bound"
_OUTSIDE = "the rating is outside its bounds"
#: Faults of bounds in ``raw``, by condition in SQL.
FAULTS = {
    _TWO_BOUNDS: "isnan(lower) OR isnan(upper)",
    _WRONG_ORDER: "lower > upper",
    _OUTSIDE: "rating < lower OR rating > upper",
}


# ------------------------------------------------------------------------------- bounds in memory


def bound_of(text: str) -> tuple[float, float] | None:
    """Return the bounds that a text gives, infinite on an open side; None if it gives none."""
    between = re.match(_BETWEEN, text)
    if between:
        return float(between[1]), float(between[2])
    below = re.match(_BELOW, text)
    if below:
        return -np.inf, float(below[1])
    above = re.match(_ABOVE, text)
    if above:
        return float(above[1]), np.inf
    return None


def cell_bound(text: str) -> tuple[float, float] | None:
    """Return the bounds that the text of a cell gives; None also if they are in the wrong order."""
    found = bound_of(text)
    if found is None or found[0] > found[1]:
        return None
    return found


def with_open_sides(lower: Float64, upper: Float64) -> tuple[Float64, Float64]:
    """Return lower and upper bounds, infinite where one is NaN; both stay NaN if both are."""
    bounded = ~(np.isnan(lower) & np.isnan(upper))
    return (
        np.where(bounded & np.isnan(lower), -np.inf, lower),
        np.where(bounded & np.isnan(upper), np.inf, upper),
    )


def stand_in(lower: Array, upper: Array) -> Array:
    """Return the middle of two bounds, or the finite one of them."""
    with np.errstate(invalid="ignore"):
        middle = (lower + upper) / 2
    return np.where(np.isfinite(middle), middle, np.where(np.isfinite(lower), lower, upper))


def read_text_bounds(ratings: Array) -> tuple[Array, Float64, Float64] | None:
    """Return ratings without those that are texts of bounds, and their lower and upper bounds.

    These ratings become NaN, and other ratings have NaN for bounds. None if no rating is a bound.
    """
    numbers = ratings.copy()
    limits = np.full((2, len(ratings)), np.nan)
    for k, value in enumerate(ratings.tolist()):
        if not isinstance(value, str):
            continue
        found = bound_of(value)
        if found is not None:
            numbers[k] = np.nan
            limits[:, k] = np.where(np.isfinite(found), found, np.nan)
    if np.isnan(limits).all():
        return None
    return numbers, limits[0], limits[1]


class MemoryBounds(NamedTuple):
    """What is known of ratings in memory, (n,) each; NaN where it is not known.

    Attributes
    ----------
    rating : float64
        Exact ratings, or what a relation refers to.
    text_lower, text_upper : float64
        Bounds in texts of ratings.
    lower, upper : float64
        Columns of bounds.
    relation : object, optional
        Words for the relation of ratings to their numbers, or None.
    """

    rating: Float64
    text_lower: Float64
    text_upper: Float64
    lower: Float64
    upper: Float64
    relation: Array | None = None

    def combined(self) -> dict[str, Array]:
        """Return columns "rating", "lower" and "upper", of which the last are NaN if exact.

        Raises InputError, with the first row, if what is known of a rating is contradictory.
        """
        related_lower, related_upper = self._bounds_of_relations()
        lower = _agreed([self.text_lower, related_lower, _finite_of(self.lower)])
        upper = _agreed([self.text_upper, related_upper, _finite_of(self.upper)])
        _refuse_row(lower > upper, _WRONG_ORDER)
        _refuse_row((self.rating < lower) | (self.rating > upper), _OUTSIDE)
        bounded = ~(np.isnan(lower) & np.isnan(upper))
        open_lower, open_upper = with_open_sides(lower, upper)
        rating = np.where(
            np.isnan(self.rating) & bounded, stand_in(open_lower, open_upper), self.rating
        )
        return {"rating": rating, "lower": open_lower, "upper": open_upper}

    def _bounds_of_relations(self) -> tuple[Float64, Float64]:
        """Return the lower and upper bounds that relations give, (n,); NaN where they give none.

        Raises InputError, with the first row, for an unknown relation, or one with a text that has
        the opposite bound.
        """
        if self.relation is None:
            none = np.full(len(self.rating), np.nan)
            return none, none
        words = np.array([str(word or "").strip() for word in self.relation.tolist()], object)
        known = np.isin(words, [*BELOW, *ABOVE, *EQUAL])
        _refuse_row(~known, "its relation is none of " + " ".join((*BELOW, *ABOVE, *EQUAL[1:])))
        is_above = np.isin(words, ABOVE)
        is_below = np.isin(words, BELOW)
        opposite = is_above & ~np.isnan(self.text_upper)
        opposite |= is_below & ~np.isnan(self.text_lower)
        _refuse_row(opposite, _TWO_BOUNDS)
        lower = np.where(is_above, self.rating, np.nan)
        upper = np.where(is_below, self.rating, np.nan)
        return lower, upper


def _finite_of(bounds: Float64) -> Float64:
    return np.where(np.isfinite(bounds), bounds, np.nan)


def _agreed(sources: Sequence[Float64]) -> Float64:
    """Return the bound of each rating that several sources give; they must not differ."""
    agreed = sources[0]
    for source in sources[1:]:
        both_known = ~(np.isnan(agreed) | np.isnan(source))
        _refuse_row(both_known & (agreed != source), _TWO_BOUNDS)
        agreed = np.where(np.isnan(agreed), source, agreed)
    return agreed


def _refuse_row(bad: Mask, fault: str) -> None:
    """Raise InputError with the first row that has a fault, if any."""
    rows = np.flatnonzero(bad)
    if len(rows):
        raise InputError(f"row {rows[0]} (the first is row 0): {fault}")
