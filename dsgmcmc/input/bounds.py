"""Ratings that are known to lie within bounds: ``<0.1``, ``[2, 3]``, relations, lower and upper.

In the DuckDB table ``raw`` such a rating has ``lower`` or ``upper`` or both; other ratings have
NULL for both. Its ``rating`` is the bound, or the middle of two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.tables import TableFile, first_column, scalar
from dsgmcmc.tables.session import Session, as_number
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


def has_bounds(db: Session, file: TableFile, k: int) -> bool:
    """Whether a column has a text that is a bound."""
    text = f"c{k}::VARCHAR"
    pattern = "|".join(f"(?:{part})" for part in (_BELOW, _ABOVE, _BETWEEN))
    try:
        file.create(
            db,
            "CREATE OR REPLACE TABLE found AS SELECT 1 AS one FROM {table}"
            f" WHERE regexp_matches({text}, '{pattern}') LIMIT 1",
        )
    except InputError:  # lines have other faults
        return False
    found = bool(scalar(db, "SELECT count(*) FROM found"))
    db.execute("DROP TABLE found")
    return found


def refuse_relations(db: Session, file: TableFile, k: int) -> None:
    """Raise InputError if a column of relations has other words than those that are known."""
    known = (*BELOW, *ABOVE, *EQUAL)
    file.create(
        db,
        f"CREATE OR REPLACE TABLE found AS SELECT DISTINCT trim(c{k}::VARCHAR) AS word"
        f" FROM {{table}} WHERE coalesce(trim(c{k}::VARCHAR), '') NOT IN ({listed(known)}) LIMIT 5",
    )
    words = first_column(db, "SELECT word FROM found ORDER BY word")
    db.execute("DROP TABLE found")
    if words:
        shown = ", ".join(map(repr, words))
        raise InputError(
            f"{file.path}: the column of relations has {shown}: expected one of"
            f" {' '.join(word for word in known if word)}, or nothing"
        )


def listed(words: tuple[str, ...]) -> str:
    """Return SQL of a list of relations."""
    return ", ".join(f"'{word}'" for word in words)


class BoundSql:
    """SQL of a rating and its bounds, from its text and the columns that users name.

    Every value is computed once, in a subquery with columns of its own.

    Parameters
    ----------
    rating : str or None
        SQL of the text of the rating.
    lower, upper, relation : str or None
        SQL of the texts of these columns.

    Attributes
    ----------
    rating, lower, upper : str
        SQL of the rating, or of the bound or the middle of two bounds, and of the bounds, in the
        table `source`.
    """

    rating = "coalesce(number, (lower + upper) / 2, lower, upper)"
    lower = "lower"
    upper = "upper"

    def __init__(
        self, rating: str | None, lower: str | None, upper: str | None, relation: str | None
    ) -> None:
        self._rating = rating
        self._columns = {"lower": lower, "upper": upper}
        self._relation = relation

    def source(self, table: str) -> str:
        """Return SQL of a table with these columns, given that of the table that was read."""
        number = "NULL::DOUBLE"
        of_text = {"lower": "NULL::DOUBLE", "upper": "NULL::DOUBLE"}
        if self._rating is not None:  # most ratings are numbers, which are read faster
            number = as_number(self._rating)
            for side, bound in zip(of_text, bounds_of_text(self._rating), strict=True):
                of_text[side] = f"CASE WHEN number IS NULL THEN {bound} END"
        word = "''"
        if self._relation is not None:
            word = f"coalesce(trim({self._relation}), '')"
        read = (
            f"SELECT *, {of_text['lower']} AS text_lower, {of_text['upper']} AS text_upper,"
            f" {word} AS word FROM (SELECT *, {number} AS number FROM {table})"
        )
        both = ", ".join(f"{self._bound(side)} AS {side}" for side in of_text)
        return f"(SELECT *, {both} FROM ({read}))"

    def _bound(self, side: str) -> str:
        """SQL of a bound: of the text, the relation and the column, which must not contradict."""
        words = listed({"lower": ABOVE, "upper": BELOW}[side])
        opposite = {"lower": "text_upper", "upper": "text_lower"}[side]
        related = (
            f"CASE WHEN word IN ({words}) THEN"
            f" CASE WHEN {opposite} IS NULL THEN number ELSE 'nan'::DOUBLE END END"
        )
        sources = []
        if self._rating is not None:
            sources.append(f"text_{side}")
        if self._relation is not None:
            sources.append(related)
        column = self._columns[side]
        if column is not None:
            sources.append(_finite(column))
        return _only(sources)


def _only(bounds: list[str]) -> str:
    """SQL of the bound that several sources give; NaN if they give different bounds."""
    if len(bounds) < 2:
        return "".join(bounds) or "NULL::DOUBLE"
    listed_bounds = ", ".join(bounds)
    lowest = f"least({listed_bounds})"  # NULL counts for nothing, NaN for more than any number
    highest = f"greatest({listed_bounds})"
    return f"CASE WHEN {lowest} < {highest} THEN 'nan'::DOUBLE ELSE {highest} END"


def _finite(text: str) -> str:
    """SQL of a bound in a column, NULL if there is none there or it is infinite."""
    number = as_number(text)
    return f"CASE WHEN isfinite({number}) THEN {number} END"


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
