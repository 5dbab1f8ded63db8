"""Words in tables of ratings: for what is not known, and for true and false."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import numpy as np

from dsgmcmc.input.sources.numbers import TRUTH
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.tables.session import literal


def are_truth(words: Set[str]) -> bool:
    """Whether words, in lower case, mean true and false: both of them, or one in full.

    Another word alone may stand for something else, such as T for a trace, or n for no answer.
    """
    if not words or not words <= TRUTH.keys():
        return False
    return words <= {"true", "false"} or len({TRUTH[word] for word in words}) == 2


def parse_missing(missing: Any) -> tuple[str, ...]:
    """Return the values that mean "not rated" as texts.

    `missing` is text with commas, a number, a sequence, or None. An empty text stands for an empty
    field.
    """
    if missing is None:
        return ()
    values = missing.split(",") if isinstance(missing, str) else np.atleast_1d(missing).tolist()
    return tuple(str(value).strip() for value in values)


def is_word(text: str, words: Iterable[str]) -> str:
    """Return SQL that is true if a text is one of some words, in any case; NULL is an empty one."""
    listed = ", ".join(literal(word) for word in words)
    return f"coalesce(lower(trim({text})), '') IN ({listed})"


def not_rated_sql(missing: Iterable[str]) -> str:
    """Return SQL that is true for rows of ``raw`` that are not rated: codes, and rows with words.

    Codes compare in float32; rows in which `dsgmcmc.input.load.load` has found a word have NULL for
    ``test``.
    """
    condition = "test IS NULL"
    numbers = [f"{float(text)!r}::FLOAT" for text in missing if is_number(text)]
    if numbers:
        condition += f" OR rating::FLOAT IN ({', '.join(numbers)})"
    return f"({condition})"


def truth_sql(text: str) -> str:
    """Return SQL of 1 or 0 for a text that means true or false, or NULL."""
    cases = " ".join(f"WHEN {literal(word)} THEN {number:g}" for word, number in TRUTH.items())
    return f"CASE lower(trim({text})) {cases} END"
