"""The numbers, bounds and words in cells of a matrix, by their texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from dsgmcmc.input.sources.marks import with_point
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.tables.usual import EMPTY
from dsgmcmc.types import Array, Float64, Mask

_REMEMBERED = 100_000  # contents of cells whose numbers are remembered
#: Texts of bounds.
_NUMBER = r"[-+]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][-+]?[0-9]+)?"
BELOW_NUMBER = rf"^\s*(?:<=?|≤)\s*({_NUMBER})\s*$"
ABOVE_NUMBER = rf"^\s*(?:>=?|≥)\s*({_NUMBER})\s*$"
BETWEEN_NUMBERS = rf"^\s*[\[(]\s*({_NUMBER})\s*[,;]\s*({_NUMBER})\s*[\])]\s*$"
#: What texts of bounds begin with.
BEGINNINGS = ("<", ">", "≤", "≥", "[", "(")
#: Words for ratings of 1 and 0, in lower case.
TRUTH = dict.fromkeys(("true", "t", "yes", "y"), 1.0) | dict.fromkeys(
    ("false", "f", "no", "n"), 0.0
)


def missing_words(missing: Iterable[str]) -> list[str]:
    """Return those of the values that are no numbers, in lower case."""
    return [text.lower() for text in missing if not is_number(text)]


def are_codes(values: Float64, missing: Iterable[str]) -> Mask:
    """Return a mask of the numbers that mean "not rated"; they compare in float32."""
    codes = [float(text) for text in missing if is_number(text)]
    if not codes:
        return np.zeros(values.shape, bool)
    return np.isin(values.astype(np.float32), np.array(codes, np.float32))


class Numbers(dict[str | None, float]):
    """The number in a cell, by its text: NaN if it is not rated, infinity if it has no number.

    A cell that is known only by bounds has a number between them, and a word for true or false has
    1 or 0; `has_bounds` says whether bounds were found, and `words` has the words. Words in
    `missing` have the number `left_out`.
    """

    has_bounds = False

    def __init__(self, missing: Sequence[str], mark: str = "", *, left_out: float = np.nan) -> None:
        self._mark = mark
        self._left_out = left_out
        self.words = set[str]()
        self._missing = set(map(str.lower, missing))
        self._codes = {float(code) for code in missing if is_number(code)}

    def __missing__(self, text: str | None) -> float:
        number = self._read(text)
        if len(self) < _REMEMBERED:  # texts recur in most files
            self[text] = number
        return number

    def _read(self, text: str | None) -> float:
        word = (text or "").strip().lower()
        if text is None or word in EMPTY:
            return np.nan
        if word in self._missing:
            return self._left_out
        text = self._plain(text)
        if not is_number(text):
            bounds = cell_bound(text)
            if bounds is not None:
                self.has_bounds = True
                return float(stand_in(np.array(bounds[0]), np.array(bounds[1])))
            if word not in TRUTH:
                return np.inf
            self.words.add(text)
            return TRUTH[word]
        number = float(text)
        return np.nan if number in self._codes else number

    def _plain(self, text: str) -> str:
        """Return the text of a number as Python reads it; others, and other numbers, as none."""
        return with_point(text, self._mark) or "no number"

    def bounds(self, rows: Sequence[Sequence[str | None]], width: int) -> Float64:
        """Return the bounds of cells in rows of a table, (2, n, width); NaN for exact numbers."""
        bounds = np.full((2, len(rows) * width), np.nan)
        for k, text in enumerate(chain.from_iterable(rows)):
            if text is None or text.lstrip()[:1] not in BEGINNINGS:
                continue
            found = cell_bound(self._plain(text))
            if found is not None:
                bounds[:, k] = found
        return bounds.reshape(2, len(rows), width)

    def table(self, rows: Sequence[Sequence[str | None]], width: int) -> Float64:
        """Return the numbers in rows of a table as an array (n, width)."""
        numbers = map(self.__getitem__, chain.from_iterable(rows))
        return np.fromiter(numbers, np.float64, len(rows) * width).reshape(len(rows), width)


def numbers_of(texts: Iterable[str | None], missing: Sequence[str], mark: str) -> Float64:
    """Return the numbers in texts, (n,): NaN if not rated, infinity where there is no number."""
    row = list(texts)
    return Numbers(missing, mark).table([row], len(row)).ravel()


# ------------------------------------------------------------------------------------------ bounds


def bound_of(text: str) -> tuple[float, float] | None:
    """Return the bounds that a text gives, infinite on an open side; None if it gives none."""
    between = re.match(BETWEEN_NUMBERS, text)
    if between:
        return float(between[1]), float(between[2])
    below = re.match(BELOW_NUMBER, text)
    if below:
        return -np.inf, float(below[1])
    above = re.match(ABOVE_NUMBER, text)
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
