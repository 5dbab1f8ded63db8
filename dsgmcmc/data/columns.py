"""Finds the columns of users, items, ratings and timestamps in a file or a data frame."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Array

# usual names of columns by role, in order of preference, in the form that `simplified` returns
NAMES: dict[str, tuple[str, ...]] = {
    role: tuple(names.split())
    for role, names in {
        "user": (
            "user userid username uid reviewer reviewerid customer customerid member memberid"
            " student studentid row rowid"
        ),
        "item": (
            "item itemid iid movie movieid product productid asin parentasin isbn book bookid film"
            " filmid joke jokeid venue venueid songid trackid artistid businessid gameid animeid"
            " question questionid problem problemid col column"
        ),
        "rating": (
            "rating ratings score star stars value overall grade bookrating count counts clicks"
            " plays playcount purchases quantity visits checkins weight hours correct bought label"
        ),
        "timestamp": "timestamp time date datetime unixreviewtime ts",
    }.items()
}
ROLES = tuple(NAMES)
_CELL = re.compile(
    r"(?i)[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|NA|N/A|NaN|null|[.]?"
)  # of a matrix
_CODES = (99, 999, 9999)  # usual codes for "not rated", with either sign
_EARLIEST = 1e8  # seconds from 1970 to 1973
_FEW = 50  # with fewer ratings, all may differ by chance
Rows = Sequence[Sequence[str]]  # fields of rows
_SHOWN = 8  # columns that a message shows
NO_COLUMN = "none"  # as the column of ratings: every row is a click


def simplified(name: object) -> str:
    """Return the name of a column in lower case, with only the characters a-z and 0-9."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def find_column(names: Iterable[object], role: str) -> int | None:
    """Return the position of the column whose name is the most preferred usual name of a role, or
    None.
    """
    known = [simplified(name) for name in names]
    return next((known.index(name) for name in NAMES[role] if name in known), None)


def names_recur(names: Sequence[str], sample: Rows) -> bool:
    """Whether what may be names of columns recurs in the rows below, and is no usual name of users
    or items.
    """
    usual = any(find_column(names, role) is not None for role in ("user", "item"))
    pairs = (pair for row in sample for pair in zip(names, row, strict=False))
    return not usual and any(name and name == text.strip() for name, text in pairs)


def clicks_advice() -> str:
    """Return advice for clicks in a table that has other columns."""
    return f"for clicks, give {named('columns')} rating={NO_COLUMN}"


def refuse_rounded(floats: Array | list[float], role: str) -> None:
    """Raise InputError if floats, names of a role, are so large that integers between them have
    been rounded.
    """
    bits = np.finfo(np.asarray(floats, None if len(floats) else float).dtype).nmant + 1
    if len(rows := np.flatnonzero(np.abs(floats) >= 2.0**bits)):
        found = (
            f"floats of 2^{bits} or more, which are rounded integers: row {rows[0]} has"
            f" {floats[rows[0]]}"
        )
        raise InputError(
            f"names of {role}s are {found}; pass X and y, or a data frame with integer ids"
        )


def parse_columns(text: str | None, roles: Sequence[str] = ROLES) -> dict[str, str]:
    """Parse text such as ``user=U,item=I`` into columns by role; no text gives an empty dict.

    The text may name any of the roles, in any order; U is a name in the header, or a position
    counted from 1. Raises InputError if the text has another form.
    """
    if text is None:
        return {}
    pairs = [
        (role.strip(), name.strip())
        for role, _, name in (part.partition("=") for part in text.split(","))
    ]
    given = {role for role, name in pairs if name}
    if len(given) < len(pairs) or not given <= set(roles):
        expected = ",".join(f"{role}=NAME" for role in roles)
        raise InputError(f"{named('columns')} {text}: expected one or more of {expected}")
    return dict(pairs)


def locate(
    where: object,
    names: Sequence[str] | None,
    width: int,
    columns: Mapping[str, str],
    roles: Sequence[str],
    advice: str,
    optional: Collection[str] = (),
) -> dict[str, int]:
    """Return the column position of every role: from `columns`, or else by the usual names of
    columns.

    Without a header (`names` is None) and without `columns`, the columns are taken in the order of
    the roles. Roles in `optional` that have no column are left out of the result. `where` names the
    table in messages; `width` is its number of columns; `advice` tells users how to name columns.
    Raises InputError if a column named in `columns` does not exist, if a required role has no
    column, or several with the same usual name, or if two required roles have the same column.
    """
    layout = (
        f"{width} columns without a header" if names is None else f"columns {_shortened(names)}"
    )
    places = (
        {role: k for k, role in enumerate(roles[:width])} if names is None and not columns else {}
    )
    for role, name in columns.items():
        if names and names.count(name) == 1:
            places[role] = names.index(name)
        elif name.isdecimal() and len(name) < 10 and 1 <= int(name) <= width:
            places[role] = int(name) - 1
        else:
            found = "several columns" if names and name in names else "no column"
            raise InputError(f"{where} has {layout}, but {found} {name[:60]!r} for {role}")
    known = [simplified(name) for name in names or ()]
    for role in roles:
        place = find_column(known, role)
        if role not in places and place is not None and known.count(known[place]) == 1:
            places[role] = place
    needed = [role for role in roles if role not in optional]
    missing = [role for role in needed if role not in places]
    if missing:
        raise InputError(
            f"{where}: cannot tell which column is {', '.join(missing)} ({layout}); {advice}"
        )
    if len({places[role] for role in needed}) < len(needed):
        raise InputError(
            f"{where}: one column serves for two of {', '.join(needed)} ({layout}); {advice}"
        )
    return places


def _shortened(texts: Sequence[str]) -> str:
    """Join texts, of which the first are shown."""
    shown = [text if len(text) < 24 else f"{text[:20]}..." for text in texts[:_SHOWN]]
    return ", ".join(shown) + f", ... ({len(texts)} columns)" * (len(texts) > _SHOWN)


def _matrix_advice(sample: Rows) -> str:
    """Return advice if the first rows of a table may be those of a matrix: four numbers or more
    after a first column.

    It names codes for "not rated", and a first column with the number of ratings.
    """
    if not sample or not all(len(row) > 4 and all(map(_is_cell, row[1:])) for row in sample):
        return ""
    text = f"; if each row is a user, and each column an item: {named('matrix')}"
    cells = [[float(cell) for cell in row[1:] if re.search("[0-9]", cell)] for row in sample]
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


def refuse_unnamed(path: object, sample: Rows, rated: bool = True) -> None:
    """Raise InputError if a table without a header is no user, item, rating and time; `sample` are
    its first rows.

    It is none if it has more than four columns or, if it is `rated`, four with text in most rows of
    the third one.
    """
    width = len(sample[0])
    numbers = [
        k + 1
        for k in range(width)
        if 2 * sum(_is_cell(row[k]) for row in sample if len(row) > k) > len(sample)
    ]
    if width < 4 or (width == 4 and (3 in numbers or not rated)):
        return
    others = [k for k in numbers if k > 2]
    rating = f",rating={others[0] if len(others) == 1 else 'R'}" if rated else ""
    matrix = _matrix_advice(sample) if rated else ""
    shown = "; ".join(f"{k}: {text.strip()[:20]}" for k, text in enumerate(sample[0][:_SHOWN], 1))
    found = (
        f"{width} columns without names ({shown}{'; ...' * (width > _SHOWN)}), not user, item,"
        " rating and time"
    )
    advice = (
        f"say which columns count, by position: {named('columns')} user=1,item=2{rating}{matrix}"
    )
    raise InputError(f"{path} has {found}, and is in no other format of docs/files.md; {advice}")


def find_doubts(
    entities: Mapping[str, int], n: int, first: Sequence[float], low: float, high: float
) -> list[str]:
    """Return what speaks against the columns that were taken, for `n` ratings of `entities` by
    role.

    `first` are some of the ratings, and `low` and `high` the least and the largest one. Times are
    large and differ little, line numbers and other ids differ in every row, and whole numbers of
    ratings seldom do.
    """
    doubts = []
    if low >= _EARLIEST and high < 2 * low:
        doubts.append(f"the ratings are from {low:.15g} to {high:.15g}, as times are")
    elif (
        n >= _FEW
        and len(set(first)) == len(first)
        and all(rating == int(rating) for rating in first)
    ):
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


def assign_columns(
    where: object,
    names: list[str] | None,
    width: int,
    columns: Mapping[str, str],
    timestamp: bool,
    sample: Rows = (),
) -> dict[str, int]:
    """Return the column position of each role in a file or data frame; parameters as in `locate`.

    `sample` are the first rows of a text file.

    The table has clicks, without a rating column, if `columns` says ``rating=none``. Unless a
    column has a usual name of ratings, it also has clicks in three cases: `columns` names user and
    item but no rating; the table has two columns and no header; every column that `columns` does
    not name has a usual name of another role. In the last case a first column without a name, in
    which pandas and R write the names of rows, does not count. The timestamp is optional unless
    `timestamp` is true.
    """
    asked = columns.get("rating") == NO_COLUMN and NO_COLUMN not in (names or ())
    if asked:
        columns = {role: name for role, name in columns.items() if role != "rating"}
    others = [name for name in names or () if name not in columns.values()]
    few = (
        {"user", "item"} <= columns.keys() and "rating" not in columns
        if columns
        else names is None and width == 2
    )
    clicks = asked or (few and find_column(others, "rating") is None)
    if names is not None and "rating" not in columns:
        counted = names[1:] if names[:1] == [""] else names
        unassigned = set(map(simplified, counted)) - set(map(simplified, columns.values()))
        clicks = clicks or not unassigned - {
            name for role in ROLES if role != "rating" for name in NAMES[role]
        }
    if names is None and not columns and sample:
        refuse_unnamed(where, sample)
    roles = tuple(role for role in ROLES if not (clicks and role == "rating"))
    optional = () if timestamp else ("timestamp",)
    option = f"{named('columns')} user=NAME,item=NAME,rating=NAME" + (
        ",timestamp=NAME" if timestamp else ""
    )
    advice = f"use {option}" + ("" if clicks else f", or {clicks_advice()}")
    advice += _matrix_advice(sample)
    places = locate(where, names, width, columns, roles, advice, optional)
    if not timestamp and places.get("timestamp") in {
        places[role] for role in roles if role != "timestamp"
    }:
        del places["timestamp"]
    return {role: places[role] for role in roles if role in places}
