"""Reads titles of items from MovieLens files (movies.dat, u.item, movies.csv) or from any table of
ids and names.
"""

from __future__ import annotations

import re
from pathlib import Path

from dsgmcmc.data.columns import find_column, simplified
from dsgmcmc.errors import InputError, refusing

_TITLES = ("title", "name", "itemname", "movietitle", "label", "description")


def read_titles(path: Path, matching: str | None = None) -> dict[str, str]:
    """Return the titles of items by their ids, both as written in the file.

    Text is UTF-8 or Latin-1 (as in MovieLens). With a header, the columns are found by their names;
    without a header, they are the first column and the first column of text after it. Only items
    whose line matches the regular expression `matching` are kept; case is ignored. Raises
    InputError if the file cannot be read, has a single column or a header without a column of
    titles, or if `matching` is not a regular expression.
    """
    import duckdb  # slow to import

    from dsgmcmc.data.tables import is_number, open_table

    with refusing(f"{matching!r} is not a regular expression", re.error):
        pattern = re.compile(matching or "", re.IGNORECASE)
    with duckdb.connect() as db:
        table = open_table(db, path, lambda fields: _find_id(fields) is not None, latin1=True)
        id_column = _find_id(table.names)
        title_column = next(
            (k for k, name in enumerate(table.names) if simplified(name) in _TITLES), None
        )
        if not table.header:  # years precede titles in the file of the Netflix prize
            columns = list(
                zip(*table.sample[:10], strict=False)
            )  # as many as the shortest line has
            words = (k for k, texts in enumerate(columns) if k and not all(map(is_number, texts)))
            id_column, title_column = 0, next(words, 1)
        if id_column is None or title_column is None:
            raise InputError(
                f"{path} needs a column item and a column title; it has {', '.join(table.names)}"
            )
        fields = ", ".join(f"c{k}::VARCHAR" for k in range(table.width))
        table.create(db, f"CREATE TABLE titles AS SELECT {fields} FROM {{table}}")
        rows = db.execute("SELECT * FROM titles ORDER BY rowid").fetchall()
    lines = (
        (table.delimiter.join(text or "" for text in row), row[id_column], row[title_column])
        for row in rows
    )
    return {
        name.strip(): (title or "").strip()
        for line, name, title in lines
        if name and pattern.search(line)
    }


def _find_id(header: list[str]) -> int | None:
    """Return the position of the column of ids, by its name in the header; None if there is no such
    column.
    """
    place = find_column(header, "item")
    names = [simplified(name) for name in header]
    return names.index("id") if place is None and "id" in names else place


def read_names(path: Path) -> list[str]:
    """Read names, one per line; blank lines are skipped.

    Raises InputError if the file cannot be read, or is empty.
    """
    with refusing(
        f"{path} cannot be read (text must be UTF-8: convert it with iconv)",
        OSError,
        UnicodeDecodeError,
    ):
        text = path.read_bytes().decode("utf-8-sig")
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if not names:
        raise InputError(f"{path} is empty: expected a name on every line")
    return names
