"""Ratings that are known to lie within bounds: ``<0.1``, ``[2, 3]``, relations, lower and upper.

In the DuckDB table ``raw`` such a rating has ``lower`` or ``upper`` or both; other ratings have
NULL for both. Its ``rating`` is the bound, or the middle of two.
"""

from __future__ import annotations

import re

import numpy as np

from dsgmcmc.data.session import Session, as_number
from dsgmcmc.data.tables import TableFile, first_column, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array

_NUMBER = r"[-+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][-+]?[0-9]+)?"
_BELOW = rf"^\s*(?:<=?|≤)\s*({_NUMBER})\s*$"
_ABOVE = rf"^\s*(?:>=?|≥)\s*({_NUMBER})\s*$"
_BETWEEN = rf"^\s*[\[(]\s*({_NUMBER})\s*[,;]\s*({_NUMBER})\s*[\])]\s*$"
#: Relations of a rating to its number, as ChEMBL has them, in SQL; `~` is taken for `=`.
BELOW = ("<", "<=", "<<", "≤")
ABOVE = (">", ">=", ">>", "≥")
EQUAL = ("", "=", "~", "==")


def _extracted(text: str, pattern: str, group: int = 1) -> str:
    return f"try_cast(nullif(regexp_extract({text}, '{pattern}', {group}), '') AS DOUBLE)"


def bounds_of_text(text: str) -> tuple[str, str]:
    """Return SQL of the lower and the upper bound that a text such as ``<0.1`` gives, or NULL."""
    lower = f"coalesce({_extracted(text, _ABOVE)}, {_extracted(text, _BETWEEN)})"
    upper = f"coalesce({_extracted(text, _BELOW)}, {_extracted(text, _BETWEEN, 2)})"
    return lower, upper


def is_bound(text: str) -> bool:
    """Whether a text is a bound."""
    return any(re.match(pattern, text) for pattern in (_BELOW, _ABOVE, _BETWEEN))


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

    Parameters
    ----------
    rating : str or None
        SQL of the text of the rating.
    lower, upper, relation : str or None
        SQL of the texts of these columns.
    """

    def __init__(
        self, rating: str | None, lower: str | None, upper: str | None, relation: str | None
    ) -> None:
        self._number = "NULL::DOUBLE" if rating is None else as_number(rating)
        self.lower = "NULL::DOUBLE"
        self.upper = "NULL::DOUBLE"
        if rating is not None:  # most ratings are numbers, which are read faster
            case = f"CASE WHEN {self._number} IS NULL THEN {{}} END"
            self.lower, self.upper = map(case.format, bounds_of_text(rating))
        if relation is not None:
            word = f"coalesce(trim({relation}), '')"
            case = "CASE WHEN {} IN ({}) THEN {} END"
            above = case.format(word, listed(ABOVE), self._number)
            below = case.format(word, listed(BELOW), self._number)
            self.lower = f"coalesce({self.lower}, {above})"
            self.upper = f"coalesce({self.upper}, {below})"
        if lower is not None:
            self.lower = f"coalesce({self.lower}, {_finite(lower)})"
        if upper is not None:
            self.upper = f"coalesce({self.upper}, {_finite(upper)})"

    @property
    def rating(self) -> str:
        """SQL of the rating: its number, or the bound, or the middle of two bounds."""
        middle = f"({self.lower} + {self.upper}) / 2"
        return f"coalesce({self._number}, {middle}, {self.lower}, {self.upper})"


def _finite(text: str) -> str:
    """SQL of a bound in a column, NULL if there is none there or it is infinite."""
    number = as_number(text)
    return f"CASE WHEN isfinite({number}) THEN {number} END"


#: Faults of bounds in ``raw``, by condition in SQL.
FAULTS = {
    "the lower bound is above the upper bound": "lower > upper",
    "the rating is outside its bounds": "rating < lower OR rating > upper",
}


def read_text_bounds(ratings: Array) -> dict[str, Array]:
    """Return columns "rating", "lower" and "upper" of ratings of which some are texts of bounds.

    Bounds that are not known are NaN. An empty dict if no rating is a bound.
    """
    numbers = ratings.copy()
    lower = np.full(len(ratings), np.nan)
    upper = np.full(len(ratings), np.nan)
    for k, value in enumerate(ratings.tolist()):
        if not isinstance(value, str):
            continue
        between = re.match(_BETWEEN, value)
        below = re.match(_BELOW, value)
        above = re.match(_ABOVE, value)
        if between:
            lower[k] = float(between[1])
            upper[k] = float(between[2])
            numbers[k] = (lower[k] + upper[k]) / 2
        elif below:
            upper[k] = float(below[1])
            numbers[k] = upper[k]
        elif above:
            lower[k] = float(above[1])
            numbers[k] = lower[k]
    if np.isnan(lower).all() and np.isnan(upper).all():
        return {}
    return {"rating": numbers, "lower": lower, "upper": upper}
