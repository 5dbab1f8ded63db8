"""Usual names of columns by their roles, usual texts of empty cells, and lists of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

#: Usual names of columns by role, in order of preference, in the form that `simplified` returns.
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
#: Columns that users name, by role: a text, which may be ``A+B``, or the columns of parts.
Columns = Mapping[str, str | tuple[str, ...]]
#: Texts that stand for a cell without a rating, in lower case.
EMPTY = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", ".")
#: Columns that a message shows.
SHOWN = 8


def simplified(name: object) -> str:
    """Return the name of a column in lower case, with only the characters a-z and 0-9."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def find_column(names: Iterable[object], role: str) -> int | None:
    """Return the position of the column with the most preferred usual name of a role, or None."""
    known = [simplified(name) for name in names]
    return next((known.index(name) for name in NAMES.get(role, ()) if name in known), None)


def usual_roles(names: Iterable[object], roles: Sequence[str] = ROLES) -> list[str]:
    """Return those of the roles of which a column has a usual name."""
    names = list(names)
    return [role for role in roles if find_column(names, role) is not None]


def joined(texts: Sequence[str]) -> str:
    """Join texts by commas, and by "and" before the last one."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def shortened(texts: Sequence[str]) -> str:
    """Join texts, of which the first are shown."""
    shown = [text if len(text) < 24 else f"{text[:20]}..." for text in texts[:SHOWN]]
    if len(texts) > SHOWN:
        shown.append(f"... ({len(texts)} columns)")
    return ", ".join(shown)
