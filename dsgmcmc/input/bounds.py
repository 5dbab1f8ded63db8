"""Ratings that are known to lie within bounds: ``<0.1``, ``[2, 3]``, relations, lower and upper.

In the DuckDB table ``raw`` such a rating has ``lower`` or ``upper`` or both; other ratings have
NULL for both. Its ``rating`` is the bound, or the middle of two.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.roles import OF_BOUNDS
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.tables import add_columns, scalar
from dsgmcmc.tables.session import Session
from dsgmcmc.types import Array, Float64

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


def refuse_relations(db: Session, file: Source, first: int) -> None:
    """Raise InputError if relations in ``raw``, from row `first` on, are other words than known."""
    known = (*BELOW, *ABOVE, *EQUAL)
    found = db.execute(
        f"SELECT relation, min(rowid) - {first} AS row FROM raw WHERE rowid >= {first}"
        f" AND relation NOT IN ({_listed(known)}) GROUP BY relation ORDER BY row LIMIT 5"
    ).fetchall()
    if found:
        shown = ", ".join(repr(word) for word, _ in found)
        raise InputError(
            f"{file.path}: the column of relations has {shown}: expected one of"
            f" {' '.join(word for word in known if word)}, or nothing; see"
            f" {file.where(found[0][1])}"
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
    lower = _agreed("raw.lower", "bounds.lower")
    upper = _agreed("raw.upper", "bounds.upper")
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
    bound = _agreed(side, "rating")
    db.execute(f"UPDATE raw SET {side} = {bound} WHERE rowid >= {first} AND {is_related}")
    db.execute(
        f"UPDATE raw SET {side} = 'nan' FROM bounds"
        f" WHERE raw.rowid = bounds.row AND {is_related} AND bounds.{opposite} IS NOT NULL"
    )


def _agreed(bound: str, other: str) -> str:
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
