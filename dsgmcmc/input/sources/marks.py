"""The marks in numbers: decimal commas as in 8,70 and 1.234,5, and thousands as in 1,234.5.

Users say which mark begins the decimals of a column, or texts in the column allow one reading
alone. Either way the other mark, or a blank, may stand between thousands. If commas were found, and
no point beside them, 1.234 may be either: it is no number until users say so. The mark "" stands
for numbers as Python and DuckDB read them: a decimal point, and nothing between thousands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.settings import named
from dsgmcmc.tables.session import as_number, literal

#: The mark before the decimals of a number, its first character; "," with a question mark if no
#: number has shown that points stand between thousands.
Mark = Literal[",", ".", ",?"]
_IN_DOUBT: Mark = ",?"

_BLANKS = " \u00a0\u202f"  # a space, and the two that do not break a line
#: Marks that may stand between thousands, by the mark of decimals.
_THOUSANDS = {",": f".{_BLANKS}", ".": f",{_BLANKS}", _IN_DOUBT: f".{_BLANKS}"}
#: The sign of a bound.
_RELATION = "[<>≤≥]=?"


def _number(mark: str) -> str:
    """Return the regular expression of a number whose decimals follow a mark."""
    thousands = f"[0-9]{{1,3}}(?:[{_THOUSANDS[mark]}][0-9]{{3}})+"
    whole = f"(?:{thousands}|[0-9]+)"
    decimals = f"[{mark[0]}][0-9]*"
    number = f"{whole}(?:{decimals})?|[{mark[0]}][0-9]+"
    if mark == _IN_DOUBT:
        whole = f"[0-9]{{1,3}}(?:[{_BLANKS}][0-9]{{3}})+|[0-9]{{1,3}}(?:[.][0-9]{{3}}){{2,}}|[0-9]+"
        number = f"{thousands}{decimals}|(?:{whole})(?:{decimals})?|[{mark[0]}][0-9]+"
    return f"[-+]?(?:{number})(?:[eE][-+]?[0-9]+)?"


def _bound(mark: str) -> str:
    """Return the regular expression of a text that is a number, or a bound."""
    return rf"\s*(?:{_RELATION})?\s*{_number(mark)}\s*"


def find_mark(texts: Iterable[str | None]) -> Mark | None:
    """Return the mark of decimals that texts allow alone; None if they do not tell.

    Numbers without marks do not, nor does 1,234, which may be a thousand. Texts that need a comma
    beside others that need a point contradict each other.
    """
    commas = False
    points = False
    commas_between = False
    points_between = False
    for text in texts:
        if text is None or ("," not in text and "." not in text):
            continue
        is_comma = re.fullmatch(_bound(","), text) is not None
        is_point = re.fullmatch(_bound("."), text) is not None
        commas |= is_comma and not is_point
        points |= is_point and not is_comma
        commas_between |= is_point and "," in text
        points_between |= is_comma and not is_point and "." in text
    if commas and not points:
        return "," if points_between else _IN_DOUBT
    if points and not commas and commas_between:
        return "."
    return None


def mark_of(said: str | None, texts: Iterable[str | None]) -> str:
    """Return the mark of a column: what users have said, or what its texts show, or ""."""
    return said or find_mark(texts) or ""


def may_be_number(text: str) -> bool:
    """Whether a text is a number by one of the marks."""
    return any(re.fullmatch(rf"\s*{_number(mark)}\s*", text) for mark in _THOUSANDS)


def describe_mark(mark: str) -> str:
    """Say how numbers are read, unless they are plain."""
    if mark[:1] == ",":
        return "; decimals after a comma"
    if mark == ".":
        return "; thousands between commas"
    return ""


def marks_advice() -> str:
    """Say how users tell what commas and points in numbers mean."""
    option = named("decimal")
    return (
        f"say by {option} , that decimals follow a comma (8,70), or by {option} . that they follow"
        " a point, and commas stand between thousands (1,234.5)"
    )


def with_point(text: str, mark: str) -> str | None:
    """Return a text whose number has a decimal point, and no mark between thousands.

    Other texts stay as they are, and those that are numbers by another mark become None.
    """
    if not mark:
        return text
    if re.fullmatch(_bound(mark), text):
        return re.sub(f"[{_THOUSANDS[mark]}]", "", text).replace(mark[0], ".")
    if may_be_number(text):
        return None
    return text


def with_point_sql(text: str, mark: str) -> str:
    """Return SQL of a text whose number, or bound, has a decimal point; others are as they are."""
    if not mark:
        return text
    return f"CASE WHEN {_is_bound_sql(text, mark)} THEN {_plain_sql(text, mark)} ELSE {text} END"


def is_by_other_mark(text: str, mark: str) -> bool:
    """Whether a text is a number, but not by the mark of its column."""
    plain = with_point(text, mark)
    return may_be_number(text) and (plain is None or not is_number(plain))


def number_sql(text: str, mark: str) -> str:
    """Return SQL of a text as a number by a mark of decimals, or NULL."""
    if not mark:
        return as_number(text)
    number = as_number(_plain_sql(text, mark))
    return f"CASE WHEN {_is_bound_sql(text, mark)} THEN {number} END"


def _plain_sql(text: str, mark: str) -> str:
    """Return SQL of the text of a number, or a bound, with a decimal point alone."""
    thousands = literal(f"[{_THOUSANDS[mark]}]")
    return f"replace(regexp_replace({text}, {thousands}, '', 'g'), '{mark[0]}', '.')"


def _is_bound_sql(text: str, mark: str) -> str:
    """Return SQL that is true for a text that is a number, or a bound, by a mark of decimals."""
    return f"regexp_full_match({text}, {literal(_bound(mark))})"
