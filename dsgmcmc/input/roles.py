"""Finds the columns of users, items, ratings and timestamps in a file or a data frame."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.ratings.names import main_role, of_parts, part_role
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import (
    NAMES,
    ROLES,
    SHOWN,
    Columns,
    find_column,
    joined,
    shortened,
    simplified,
    usual_roles,
)
from dsgmcmc.types import Array

if TYPE_CHECKING:
    from dsgmcmc.input.sources.base import Source

#: Roles of columns that say more of a rating, which no usual name has: only users can name them.
MEASURES = ("weight", "lower", "upper", "relation")
#: Those of them whose fields may be empty.
OF_BOUNDS = ("lower", "upper", "relation")
_RATINGS = ("rating", "ratings")  # preferred to other usual names of ratings
NO_COLUMN = "none"  # as the column of ratings: every row is a click
_NOT_RATINGS = {name for role in ROLES if role != "rating" for name in NAMES[role]}
#: A cell of a matrix: a number, which may be a bound, or nothing.
_CELL = re.compile(
    r"(?i)([<>]=?|[≤≥])?\s*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|NA|N/A|NaN|null|[.]?"
)
_CODES = (99, 999, 9999)  # usual codes for "not rated", with either sign
_EARLIEST = 1e8  # seconds from 1970 to 1973
_FEW = 50  # with fewer ratings, all may differ by chance
_MOST_SKEWED = 10  # ratio of the largest id and the median of all

Rows = Sequence[Sequence[str]]  # fields of rows
#: Roles whose names may have several parts, each in a column of its own.
NAMED_ROLES = ("user", "item")
#: Role of a third direction, whose side is left open (`dsgmcmc.prepare.three_way`).
CONTEXT = "context"


class Heading(NamedTuple):
    """Columns of a table, before they have roles.

    Attributes
    ----------
    where : object
        The file or the data frame, for messages.
    names : sequence of str, optional
        Names of the columns; None for a table without a header.
    width : int
        Number of columns.
    sample : sequence of sequences of str
        Fields of the first rows of a text file.
    """

    where: object
    names: Sequence[str] | None
    width: int
    sample: Rows = ()

    @classmethod
    def of(cls, file: Source) -> Self:
        """Return the columns of a file."""
        names = file.names if file.header else None
        return cls(file.path, names, file.width, file.sample)

    def __str__(self) -> str:
        """Return a list of the columns."""
        if self.names is None:
            return f"{self.width} columns without a header"
        return f"columns {shortened(self.names)}"


def refuse_repeated(where: object, names: Sequence[str]) -> None:
    """Raise InputError if two columns have the same name, in upper or lower case."""
    numbers = Counter(name.lower() for name in names)
    repeated = [name for name in names if numbers[name.lower()] > 1]
    if repeated:
        raise InputError(f"{where}: two columns have the same name ({shortened(repeated)})")


def names_pairs(columns: Collection[object]) -> bool:
    """Whether columns have usual names of users and of items, as in tables of ratings."""
    return usual_roles(columns, NAMED_ROLES) == list(NAMED_ROLES)


def names_recur(names: Sequence[str], sample: Rows) -> bool:
    """Whether names of columns recur in the rows below, so that they may be a row themselves.

    They are no row if a name is usual for users or items.
    """
    if usual_roles(names, NAMED_ROLES):
        return False
    pairs = (pair for row in sample for pair in zip(names, row, strict=False))
    return any(name and name == text.strip() for name, text in pairs)


def clicks_advice() -> str:
    """Return advice for clicks in a table that has other columns."""
    return f"for clicks, give {named('columns')} rating={NO_COLUMN}"


def refuse_rounded(floats: Array | list[float], role: str) -> None:
    """Raise InputError if names of a role are floats so large that integers have been rounded."""
    numbers = np.asarray(floats, dtype=None if len(floats) else float)
    bits = np.finfo(numbers.dtype).nmant + 1
    rows = np.flatnonzero(np.abs(numbers) >= 2.0**bits)
    if len(rows):
        raise InputError(
            f"names of {role}s are floats of 2^{bits} or more, which are rounded integers: row"
            f" {rows[0]} has {floats[rows[0]]}; pass X and y, or a data frame with integer ids"
        )


def parse_columns(
    text: str | Columns | None, roles: Sequence[str] = (*ROLES, CONTEXT, *MEASURES)
) -> dict[str, str | tuple[str, ...]]:
    """Parse text such as ``user=U,item=I`` into columns by role; no text gives an empty dict.

    The text may name any of the roles, in any order; U is a name in the header, a position counted
    from 1, or several of them, ``U+V`` (`expand_parts`). Columns that are parsed already are
    returned. Raises InputError if the text has another form.
    """
    if text is None:
        return {}
    if not isinstance(text, str):
        return dict(text)
    columns: dict[str, str | tuple[str, ...]] = {}
    for part in text.split(","):
        role, _, name = (field.strip() for field in part.partition("="))
        if not name or role not in roles or role in columns:
            expected = ",".join(f"{role}=NAME" for role in roles)
            raise InputError(f"{named('columns')} {text}: expected one or more of {expected}")
        columns[role] = name
    return columns


def expand_parts(columns: Columns, names: Sequence[str] | None) -> dict[str, str]:
    """Return a column for each part of the users and items (`dsgmcmc.ratings.names`), by role.

    A text ``A+B`` is one column if `names` has it. Raises InputError if it may be one column or
    two. The context is the second part of items.
    """
    expanded = {}
    for role, column in columns.items():
        if role == CONTEXT:
            continue
        parts = _parts_of(role, column, names or ())
        for k, part in enumerate(parts):
            expanded[part_role(role, k)] = part
    if CONTEXT in columns:
        context = _parts_of("item", columns[CONTEXT], names or ())
        _refuse_four_directions(context, expanded)
        expanded[part_role("item", 1)] = context[0]
    return expanded


def _expand(heading: Heading, columns: Columns) -> dict[str, str]:
    """Return a column for each part as `expand_parts` does.

    Raises InputError if there is no column of the context, and names those that may be it.
    """
    expanded = expand_parts(columns, heading.names)
    if CONTEXT not in columns or heading.names is None:
        return expanded
    context = expanded[part_role("item", 1)]
    if context in heading.names or context.isdecimal():
        return expanded
    others = [name for name in heading.names if name not in expanded.values()]
    others = [name for name in others if not usual_roles([name])]
    if others:
        choices = f"the context may be {shortened(others)}"
    else:
        choices = "a context needs a column beside those of users, items and ratings"
    raise InputError(
        f"{heading.where} has {heading}, but no column {context[:60]!r} for the context; {choices}"
    )


def _refuse_four_directions(context: Sequence[str], expanded: Mapping[str, str]) -> None:
    """Raise InputError if user, item and context are more than three columns."""
    users = of_parts(expanded, "user") or ["U"]
    items = of_parts(expanded, "item") or ["I"]
    if len(context) == len(users) == len(items) == 1:
        return
    on_users = "+".join([*users, *context])
    on_items = "+".join([*items, *context])
    raise InputError(
        f"{named('columns')} context={'+'.join(context)}: the sides of one context are compared,"
        f" with one column of users and one of items: say where each column is:"
        f" user={on_users},item={'+'.join(items)} or user={'+'.join(users)},item={on_items}"
        " (docs/three-way.md)"
    )


def _parts_of(role: str, column: str | tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a role."""
    if not isinstance(column, str):
        return column
    parts = tuple(part.strip() for part in column.split("+"))
    if role not in NAMED_ROLES or len(parts) == 1 or not all(parts):
        return (column,)
    if column not in names:
        return parts
    if set(parts) <= set(names):
        positions = "+".join(str(names.index(part) + 1) for part in parts)
        raise InputError(
            f"{role}={column} is the name of a column, and also names the columns"
            f" {joined(parts)}: give positions, {role}={names.index(column) + 1} or"
            f" {role}={positions}"
        )
    return (column,)


def locate(
    heading: Heading,
    columns: Columns,
    roles: Sequence[str],
    *,
    advice: str = "",
    optional: Collection[str] = (),
) -> dict[str, int]:
    """Return the position of every role's column: from `columns`, or else by usual names.

    Without a header and without `columns`, the columns are in the order of the roles. Roles in
    `optional` that have no column are left out of the result. `advice` tells users how to name
    columns. Raises InputError if a column named in `columns` does not exist, if a required role has
    no column, or several with the same usual name, or if two required roles have the same column.
    Each part of a name counts as a role (`dsgmcmc.ratings.names`).
    """
    expanded = _expand(heading, columns)
    return _locate(heading, expanded, roles, advice=advice, optional=optional)


def _locate(
    heading: Heading,
    columns: Mapping[str, str],
    roles: Sequence[str],
    *,
    advice: str,
    optional: Collection[str],
) -> dict[str, int]:
    """Return the position of every role's column, as `locate` does, with a column for each part."""
    positions = {role: find_named(heading, role, name) for role, name in columns.items()}
    if heading.names is None and not columns:
        positions = {role: k for k, role in enumerate(roles[: heading.width])}
    known = [simplified(name) for name in heading.names or ()]
    for role in roles:
        k = find_column(known, role)
        if role not in positions and k is not None and known.count(known[k]) == 1:
            positions[role] = k
    needed = [role for role in roles if role not in optional]
    needed += [role for role in columns if main_role(role) in needed and role not in needed]
    missing = [role for role in needed if role not in positions]
    if missing:
        raise InputError(
            f"{heading.where}: cannot tell which column is {', '.join(missing)} ({heading});"
            f" {advice}"
        )
    if len({positions[role] for role in needed}) < len(needed):
        raise InputError(
            f"{heading.where}: one column serves for two of {', '.join(needed)} ({heading});"
            f" {advice}"
        )
    return positions


def find_named(heading: Heading, role: str, name: str) -> int:
    """Return the position of the column that users name, or number from 1, for a role."""
    names = heading.names or ()
    if names.count(name) == 1:
        return names.index(name)
    if name.isdecimal() and len(name) < 10 and 1 <= int(name) <= heading.width:
        return int(name) - 1
    found = "several columns" if name in names else "no column"
    raise InputError(
        f"{heading.where} has {heading}, but {found} {name[:60]!r} for {main_role(role)}"
    )


def _matrix_advice(sample: Rows, names: Sequence[str] = ()) -> str:
    """Return advice if the first rows of a table may be those of a matrix.

    They may if four numbers or more follow a first column, whose values differ, and none of these
    has a usual name of an item, a rating or a time. The advice names codes for "not rated", and a
    first column with the number of ratings.
    """
    if not sample or not all(len(row) > 4 and all(map(_is_cell, row[1:])) for row in sample):
        return ""
    if usual_roles(names[1:]):
        return ""
    if names and len({row[0] for row in sample}) < len(sample):
        return ""
    text = f"; if each row is a user, and each column an item: {named('matrix')}"
    cells = [
        [float(cell.strip(" <>=≤≥")) for cell in row[1:] if re.search("[0-9]", cell)]
        for row in sample
    ]
    largest = sorted({cell for row in cells for cell in row}, key=abs)[-2:]
    codes = [
        code for code in largest[1:] if abs(code) in _CODES and abs(code) > 2 * abs(largest[0])
    ]
    if codes:
        text += f" and {named('missing')} {codes[0]:g}"
    counts = [str(sum(cell not in codes for cell in row)) for row in cells]
    if [row[0].strip() for row in sample] == counts:
        text += ", without the first column, which counts the ratings of a row"
    return text


def _is_cell(text: str) -> bool:
    return bool(_CELL.fullmatch(text.strip()))


def refuse_unnamed(where: object, sample: Rows, rated: bool = True) -> None:
    """Raise InputError if a table without a header is no user, item, rating and time.

    It is none if it has more than four columns or, if it is `rated`, four with text in most rows of
    the third one. `sample` are its first rows.
    """
    width = len(sample[0])
    numbers = [k + 1 for k in range(width) if _has_numbers(sample, k)]
    if width < 4 or (width == 4 and (3 in numbers or not rated)):
        return
    fields = [f"{k}: {text.strip()[:20]}" for k, text in enumerate(sample[0][:SHOWN], 1)]
    if width > SHOWN:
        fields.append("...")
    advice = f"say which columns count, by position: {named('columns')} user=1,item=2"
    if rated:
        others = [k for k in numbers if k > 2]
        rating = others[0] if len(others) == 1 else "R"
        advice += f",rating={rating}{_matrix_advice(sample)}"
    raise InputError(
        f"{where} has {width} columns without names ({'; '.join(fields)}), not user, item, rating"
        f" and time, and is in no other format of docs/files.md; {advice}"
    )


def _has_numbers(sample: Rows, k: int) -> bool:
    """Whether a column has numbers in most of the rows."""
    return 2 * sum(_is_cell(row[k]) for row in sample if len(row) > k) > len(sample)


def find_doubts(
    entities: Mapping[str, int], *, n: int, first: Sequence[float], low: float, high: float
) -> list[str]:
    """Return what speaks against the columns that were taken for users, items and ratings.

    Times are large and differ little, line numbers and other ids differ in every row, and whole
    numbers of ratings seldom do.

    Parameters
    ----------
    entities : dict of str to int
        Numbers of users and items by role.
    n : int
        Number of ratings.
    first : sequence of float
        Some of the ratings; none if they cannot be a column of ids.
    low, high : float
        The least and the largest rating.
    """
    doubts = []
    if low >= _EARLIEST and high < 2 * low:
        doubts.append(f"the ratings are from {low:.15g} to {high:.15g}, as times are")
    elif n >= _FEW and _may_be_ids(first):
        doubts.append(
            f"the ratings are whole numbers, all different, such as {first[0]:.15g}, as ids are"
        )
    for role, number in entities.items():
        if number == n >= _FEW:
            taken = f"as if a column of line numbers were taken for {role}s"
            doubts.append(f"each of the {n:,} ratings has another {role}, {taken}")
    return [
        f"{doubt}: if that is not meant, name the columns ({named('columns')})" for doubt in doubts
    ]


def _may_be_ids(numbers: Sequence[float]) -> bool:
    """Whether numbers are whole and all different, and not skewed, as measurements may be."""
    if not numbers or len(set(numbers)) < len(numbers):
        return False
    if any(number != int(number) for number in numbers):
        return False
    return max(numbers) <= _MOST_SKEWED * float(np.median(numbers))


def assign_columns(heading: Heading, columns: Columns, *, timed: bool) -> dict[str, int]:
    """Return the position of each role's column in a table of ratings; parameters as in `locate`.

    Without a column of ratings, they are clicks (`_has_clicks`). The timestamp is optional unless
    the table is `timed`.
    """
    expanded = _expand(heading, columns)
    names = heading.names or ()
    clicks = expanded.get("rating") == NO_COLUMN and NO_COLUMN not in names
    if clicks:
        del expanded["rating"]
    if _has_clicks(heading, expanded):
        clicks = True
    if heading.names is None and not expanded and heading.sample:
        refuse_unnamed(heading.where, heading.sample)
    roles = [role for role in ROLES if role != "rating" or not clicks]
    if "rating" in roles and "rating" not in expanded:
        _refuse_two_ratings(heading, expanded)
    advice = f"use {named('columns')} user=NAME,item=NAME,rating=NAME"
    if timed:
        advice += ",timestamp=NAME"
    if not clicks:
        advice += f", or {clicks_advice()}"
    positions = _locate(
        heading,
        expanded,
        roles,
        advice=advice + _matrix_advice(heading.sample, names),
        optional=() if timed else ("timestamp",),
    )
    needed = {position for role, position in positions.items() if role != "timestamp"}
    if not timed and positions.get("timestamp") in needed:
        del positions["timestamp"]
    order = (*roles, *MEASURES)
    in_order = sorted(positions, key=lambda role: order.index(main_role(role)))
    return {role: positions[role] for role in in_order}


def _refuse_two_ratings(heading: Heading, columns: Mapping[str, str]) -> None:
    """Raise InputError if two columns have usual names of ratings, unless one is called rating."""
    others = [name for name in heading.names or () if name not in columns.values()]
    known = {name: simplified(name) for name in others if simplified(name) in NAMES["rating"]}
    if len(known) < 2 or not set(_RATINGS).isdisjoint(known.values()):
        return
    choices = " or ".join(f"rating={name}" for name in known)
    raise InputError(
        f"{heading.where}: the columns {joined(list(known))} may all be the ratings ({heading});"
        f" use {named('columns')} {choices}"
    )


def _has_clicks(heading: Heading, columns: Mapping[str, str]) -> bool:
    """Whether a table has clicks, without a column of ratings.

    It has clicks unless a column has a usual name of ratings, in three cases: `columns` names user
    and item but no rating; the table has two columns and no header; every column that `columns`
    does not name has a usual name of another role. In the last case a first column without a name,
    in which pandas and R write the names of rows, does not count.
    """
    if "rating" in columns:
        return False
    names_both = {"user", "item"} <= columns.keys()
    if heading.names is None:
        return names_both or (not columns and heading.width == 2)
    others = [name for name in heading.names if name not in columns.values()]
    if names_both and find_column(others, "rating") is None:
        return True
    counted = heading.names[1:] if heading.names[:1] == [""] else heading.names
    unassigned = {simplified(name) for name in counted} - {
        simplified(name) for name in columns.values()
    }
    return unassigned <= _NOT_RATINGS
