"""Which column of a file is the user, the item, the rating and the timestamp."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dsgmcmc.errors import InputError
from dsgmcmc.settings import named

# what other people call the columns, compared in lower case without punctuation
NAMES: dict[str, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "reviewerid", "customerid", "row", "rowid"),
    "item": (
        *("item", "itemid", "iid", "movie", "movieid", "product", "productid", "asin", "parentasin", "isbn"),
        *("bookid", "songid", "trackid", "artistid", "businessid", "gameid", "animeid", "col", "column"),
    ),
    "rating": (
        *("rating", "ratings", "score", "stars", "value", "overall", "bookrating"),
        *("count", "counts", "clicks", "plays", "purchases", "quantity"),
    ),
    "timestamp": ("timestamp", "time", "date", "datetime", "unixreviewtime", "ts"),
}
ROLES = tuple(NAMES)


def plain(name: object) -> str:
    """Name of a column in lower case, without punctuation."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def find_column(names: Iterable[object], role: str) -> int | None:
    """Position of the column that is called as other people call a role; None if there is none."""
    known = [plain(name) for name in names]
    return next((known.index(name) for name in NAMES[role] if name in known), None)


def position_of(name: str, names: list[str], width: int) -> int | None:
    """Position of a column that is given by its name, or by its number from 1; None if there is none."""
    if name in names:
        return names.index(name)
    return int(name) - 1 if name.isdecimal() and 1 <= int(name) <= width else None


def of_clicks() -> str:
    """Advice for files of clicks."""
    return f"for clicks, leave the rating column out: {named('columns')} user=NAME,item=NAME"


def parse_columns(text: str | None) -> dict[str, str]:
    """Parse ``user=U,item=I[,rating=R][,timestamp=T]``; U is a name in the header or a position from 1."""
    if text is None:
        return {}
    pairs = [(role.strip(), name.strip()) for role, _, name in (part.partition("=") for part in text.split(","))]
    roles = {role for role, name in pairs if name}
    if len(roles) < len(pairs) or not {"user", "item"} <= roles <= set(ROLES):
        raise InputError(f"{named('columns')} {text}: expected user=NAME,item=NAME[,rating=NAME][,timestamp=NAME]")
    return dict(pairs)


def assign_columns(
    path: Path, names: list[str] | None, width: int, columns: dict[str, str], timestamp: bool
) -> dict[str, int]:
    """Find the position of each role among the columns `names` (None: the file has no header)."""
    roles = ROLES if timestamp else ROLES[:3]
    clicks = "rating" not in columns if columns else names is None and width == 2
    places: dict[str, int] = {}
    for role, name in columns.items():
        position = position_of(name, names or [], width)
        if position is None:
            have = f"columns {', '.join(names)}" if names else f"{width} columns without a header"
            raise InputError(f"{path} has {have}, and no {name!r} that {named('columns')} names as {role}")
        places[role] = position
    if names is not None:
        if not columns and not set(map(plain, names)) - {
            name for role in ROLES if role != "rating" for name in NAMES[role]
        }:
            clicks = True  # there is nothing else that could be a rating
        for role in roles:
            match = find_column(names, role)
            if role not in places and match is not None and not (clicks and role == "rating"):
                places[role] = match
    elif not columns:
        places = {role: k for k, role in enumerate(roles) if k < width}
    have = f"columns {', '.join(names)}" if names is not None else f"{width} columns, no header"
    roles = tuple(role for role in roles if not (clicks and role == "rating"))
    missing = [role for role in roles if role not in places]
    options = f"{named('columns')} user=NAME,item=NAME,rating=NAME" + (",timestamp=NAME" if timestamp else "")
    if missing == ["rating"]:
        raise InputError(f"{path} has no rating column ({have}); name it with {options}, or {of_clicks()}")
    if missing:
        raise InputError(f"{path}: cannot tell which column is {', '.join(missing)} ({have}); use {options}")
    if len({places[role] for role in roles}) < len(roles):
        raise InputError(f"{path}: {named('columns')} names one column twice")
    return {role: places[role] for role in roles}
