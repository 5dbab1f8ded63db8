"""Files that name items: MovieLens' movies.dat, u.item and movies.csv, or any delimited text with an id and a name."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from dsgmcmc.data.ingest.columns import find_column, plain
from dsgmcmc.data.ingest.sources import refuse_utf16
from dsgmcmc.errors import InputError

_TITLES = ("title", "name", "itemname", "movietitle", "label", "description")
_DELIMITERS = ("::", "\t", "|", ",", ";")


def read_titles(path: Path, matching: str | None = None) -> dict[str, str]:
    """Read what items are called: titles by the items' ids, as they are written there.

    Text is UTF-8 or Latin-1 (as MovieLens is). With a header, the columns are found by their names; without one they
    are the first two. Only items whose line matches the regular expression count, whatever the case. Raises InputError
    if it cannot be read, or has one column.
    """
    text = _text(path)
    lines = [line for line in text.splitlines() if line.strip()]
    delimiter = next((d for d in _DELIMITERS if lines and d in lines[0]), None)
    if delimiter is None or "\0" in text:
        raise InputError(
            f"{path} is not a file of items: expected lines such as 1::Toy Story (1995), or a CSV with a header"
        )
    try:
        rows = [line.split("::") for line in lines] if delimiter == "::" else [*csv.reader(lines, delimiter=delimiter)]
    except csv.Error as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    identifier, title = _columns(rows[0])
    if identifier is None:
        identifier, title = 0, 1
    elif title is None:
        raise InputError(f"{path} has no column with names of items: its header is {', '.join(rows[0])}")
    else:
        rows = rows[1:]
    try:
        wanted = re.compile(matching or "", re.IGNORECASE)
    except re.error as error:
        raise InputError(f"{matching!r} is not a regular expression: {error}") from error
    titles = {}
    for row in rows:
        if wanted.search(delimiter.join(row)) and len(row) > max(identifier, title):
            titles[row[identifier].strip()] = row[title].strip()
    return titles


def read_names(path: Path) -> list[str]:
    """Read names, one a line. Raises InputError if it cannot be read, or is empty."""
    names = [line.strip() for line in _text(path).splitlines() if line.strip()]
    if not names:
        raise InputError(f"{path} is empty: expected a name on every line")
    return names


def _text(path: Path) -> str:
    """Text of a file, in UTF-8 or Latin-1."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    refuse_utf16(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _columns(header: list[str]) -> tuple[int | None, int | None]:
    """Columns of the id and of the title, by their names in a header."""
    names = [plain(name) for name in header]
    identifier = find_column(names, "item")
    if identifier is None and "id" in names:
        identifier = names.index("id")
    return identifier, next((k for k, name in enumerate(names) if name in _TITLES), None)
