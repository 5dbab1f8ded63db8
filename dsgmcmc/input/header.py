"""Says whether the first line of a matrix names its items, or has the ratings of a user.

Texts are names. Numbers are either, and so they are judged by the rows below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.marks import with_point
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import find_column, shortened
from dsgmcmc.types import Array, Float64

#: What the first line has, if the user has said so.
FirstLine = Literal["names", "ratings"]
#: Returns the numbers (n, width) in rows of texts; NaN where a cell is empty, infinity for a text.
ReadCells = Callable[[Sequence[Sequence[str]], int], Float64]

_FEWEST = 3  # rows whose range says where a further one may be
_FEW_IN_ORDER = 4  # numbers of a row that seldom ascend or descend by chance
_MANY_IN_ORDER = 8  # numbers of a row that do not
_WIDEST = 1000  # columns that are looked at


class Head:
    """The first line of a matrix, and the rows below.

    Parameters
    ----------
    fields : list of str
        The fields of the first line.
    rows : sequence of sequences of str
        Fields of the next rows.
    read : callable
        Reads the cells of rows.
    mark : str
        The mark before decimals; "" for a point.
    """

    def __init__(
        self,
        fields: Sequence[str],
        rows: Sequence[Sequence[str]],
        read: ReadCells,
        *,
        mark: str = "",
    ) -> None:
        self._mark = mark
        self.has_usual_name = find_column(fields[:1], "user") is not None
        self.corner = self._number(fields[0], read([fields[:1]], 1)[0, 0])
        self.is_short = bool(rows) and all(len(row) == len(fields) + 1 for row in rows)
        width = min(len(fields), _WIDEST)
        below = [list(row[:width]) for row in rows if len(row) == len(fields)]
        self.texts = [text.strip() for text in fields[1:width]]
        cells = read([fields[1:width]], width - 1)[0]
        numbers = map(self._number, self.texts, cells)
        self.numbers = np.array(list(numbers))
        self.below = read([row[1:] for row in below], width - 1)
        self.words_below = {text.strip() for row in below for text in row[1:]}
        self.first_below = read([row[:1] for row in below], 1)[:, 0]

    def has_names(self) -> bool | None:
        """Whether the line names the items; None if it may also have ratings."""
        if self.is_short or self.has_usual_name:
            return True
        is_text = np.isinf(self.numbers)
        if is_text.any():
            return self._judge_texts(is_text)
        has_texts_below = bool(np.isinf(self.first_below).any())
        if np.isinf(self.corner) and len(self.first_below) and not has_texts_below:
            return True
        if len(set(self.texts)) < len(self.texts) or np.isnan(self.numbers).any():
            # items with equal names, or none, cannot be told apart
            return None if self._is_apart() else False
        if np.isnan(self.corner) and has_texts_below:
            return True  # a user without a name would be refused
        return self._judge_numbers()

    def may_be_second_header(self) -> bool:
        """Whether the line, below a header, has whole numbers above decimals, as hours or groups.

        Equal ones, such as the zeros of a blank, are ratings.
        """
        numbers = self.numbers
        if not np.isfinite(numbers).all() or len(set(numbers.tolist())) < 2:
            return False
        return not np.any(numbers % 1) and self._has_decimals_below()

    def _number(self, text: str, cell: float) -> float:
        """Return the number in a field, given that of a cell with this text; infinity for a text.

        A code for "not rated" may be a name, and so may a word for true or false.
        """
        plain = with_point(text, self._mark)
        if plain is not None and is_number(plain):
            return float(plain)
        return np.nan if np.isnan(cell) else np.inf

    def _judge_texts(self, is_text: Array) -> bool | None:
        """Judge a line with texts; those of a row recur in others."""
        texts = {text for text, found in zip(self.texts, is_text, strict=True) if found}
        if texts <= self.words_below:
            return False
        if 2 * np.count_nonzero(is_text) >= len(self.texts):
            return True
        return None

    def _judge_numbers(self) -> bool | None:
        """Judge a line of different numbers, by their order and by the rows below."""
        numbers = self.numbers
        if not len(numbers):
            return False
        is_whole = not np.any(numbers % 1)
        if self._is_apart() or (is_whole and self._has_decimals_below()):
            return True
        steps = np.diff(numbers)
        is_in_order = bool(len(steps) and ((steps > 0).all() or (steps < 0).all()))
        if is_in_order and len(numbers) >= _MANY_IN_ORDER:
            return True
        is_counted = is_in_order and len(numbers) > 1 and bool((np.abs(steps) == 1).all())
        if is_counted or (is_in_order and len(numbers) >= _FEW_IN_ORDER):
            return None
        if not is_whole:
            return False
        outside = self._outside()
        return None if 2 * np.count_nonzero(outside) > len(numbers) else False

    def _has_decimals_below(self) -> bool:
        """Whether most cells below have decimals, so that a row without any is none of them."""
        known = self.below[np.isfinite(self.below)]
        if len(known) < _FEWEST or len(self.numbers) < _FEWEST:
            return False
        return bool(np.mean(known % 1 != 0) >= 0.75)

    def _ranges(self) -> tuple[Float64, Float64] | None:
        """Return the least and the largest number below, of every column; None of few rows."""
        known = np.isfinite(self.below)
        if not known.size or known.sum(axis=0).min() < _FEWEST:
            return None
        low = np.where(known, self.below, np.inf).min(axis=0)
        high = np.where(known, self.below, -np.inf).max(axis=0)
        return low, high

    def _outside(self) -> Array:
        """Return a mask of the numbers that are in no range of their column."""
        ranges = self._ranges()
        if ranges is None:
            return np.ones(len(self.numbers), bool)
        low, high = ranges
        return (self.numbers < low) | (self.numbers > high)

    def _is_apart(self) -> bool:
        """Whether every number is farther from the range of its column than this is wide."""
        ranges = self._ranges()
        if ranges is None or not len(self.numbers):
            return False
        low, high = ranges
        distance = np.maximum(low - self.numbers, self.numbers - high)
        return bool((distance > np.maximum(high - low, 0)).all() and (distance > 0).all())


def judge_first_line(where: object, head: Head, fields: Sequence[str]) -> bool:
    """Return whether a line names the items; raise InputError if it may also have ratings."""
    answer = head.has_names()
    if answer is None:
        option = named("first_line")
        raise InputError(
            f"{where}: line 1 ({shortened(list(fields))}) may name the items, or have the ratings"
            f" of a user: say which by {option} names or {option} ratings"
        )
    return answer
