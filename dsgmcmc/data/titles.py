"""Files that name items: MovieLens' movies.dat, u.item and movies.csv, or any table with an id and a name."""

from __future__ import annotations

import re
from pathlib import Path

from dsgmcmc.data.columns import find_column, plain
from dsgmcmc.errors import InputError

_TITLES = ("title", "name", "itemname", "movietitle", "label", "description")


def read_titles(path: Path, matching: str | None = None) -> dict[str, str]:
    """Read what items are called: titles by the items' ids, as they are written there.

    Text is UTF-8 or Latin-1 (as MovieLens is). With a header, the columns are found by their names; without one they
    are the first two. Only items whose line matches the regular expression count, whatever the case. Raises InputError
    if the file cannot be read, or has one column.
    """
    import duckdb  # takes its time to import

    from dsgmcmc.data.tables import open_table

    try:
        wanted = re.compile(matching or "", re.IGNORECASE)
    except re.error as error:
        raise InputError(f"{matching!r} is not a regular expression: {error}") from error
    with duckdb.connect() as db:
        table = open_table(db, path, lambda fields: _find_id(fields) is not None, latin1=True)
        identifier, title = 0, 1
        if table.header:
            identifier, title = _find_columns(path, table.names)
        fields = ", ".join(f"{table.column(k)}::VARCHAR" for k in range(table.width))
        table.create(db, f"CREATE TABLE titles AS SELECT {fields} FROM {{table}}")
        rows = db.execute("SELECT * FROM titles ORDER BY rowid").fetchall()
    titles = {}
    for row in rows:
        texts = [text or "" for text in row]
        if wanted.search(table.delimiter.join(texts)) and texts[identifier]:
            titles[texts[identifier].strip()] = texts[title].strip()
    return titles


def read_names(path: Path) -> list[str]:
    """Read names, one a line. Raises InputError if it cannot be read, or is empty."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: convert it with iconv") from error
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if not names:
        raise InputError(f"{path} is empty: expected a name on every line")
    return names


def _find_id(header: list[str]) -> int | None:
    """Column of the ids, by its name in a header."""
    names = [plain(name) for name in header]
    place = find_column(names, "item")
    if place is None and "id" in names:
        place = names.index("id")
    return place


def _find_columns(path: Path, header: list[str]) -> tuple[int, int]:
    """Columns of the ids and of the titles, by their names in a header."""
    identifier = _find_id(header)
    title = next((k for k, name in enumerate(header) if plain(name) in _TITLES), None)
    if identifier is None or title is None:
        raise InputError(f"{path} has no column with names of items: its columns are {', '.join(header)}")
    return identifier, title
