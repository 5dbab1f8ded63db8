"""Reads titles of items from MovieLens files or from any table of ids and names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.tables.usual import find_column, shortened, simplified

if TYPE_CHECKING:
    from dsgmcmc.input.sources.base import Source

_TITLES = ("title", "name", "itemname", "movietitle", "label", "description")


def read_titles(path: Path, matching: str | None = None) -> dict[str, str]:
    """Return the titles of items by their ids, both as written in the file.

    Text is UTF-8 or Latin-1 (as in MovieLens). With a header, the columns are found by their names;
    without a header, they are the first column and the first column of text after it. Only items
    whose line matches the regular expression `matching` are kept; case is ignored. Raises
    InputError if the file cannot be read, has a single column or a header without a column of
    titles, or if `matching` is not a regular expression.
    """
    from dsgmcmc.input.detect import open_table  # DuckDB is slow to import
    from dsgmcmc.tables.session import open_small_session

    with refusing(f"{matching!r} is not a regular expression", re.error):
        pattern = re.compile(matching or "", re.IGNORECASE)
    with open_small_session() as db:
        table = open_table(db, path, lambda fields, rows: _find_id(fields) is not None, latin1=True)
        id_column, title_column = _find_columns(table)
        fields = ", ".join(f"c{k}::VARCHAR" for k in range(table.width))
        table.create(db, f"CREATE TABLE titles AS SELECT {fields} FROM {{table}}")
        rows = db.execute("SELECT * FROM titles ORDER BY rowid").fetchall()
    titles = {}
    for row in rows:
        name = row[id_column]
        line = table.delimiter.join(text or "" for text in row)
        if name and pattern.search(line):
            titles[name.strip()] = (row[title_column] or "").strip()
    return titles


def _find_columns(table: Source) -> tuple[int, int]:
    """Return the positions of the columns of ids and titles; raise InputError without them."""
    if not table.header:
        return 0, _first_text(table.sample[:10])
    id_column = _find_id(table.names)
    for k, name in enumerate(table.names):
        if simplified(name) in _TITLES and id_column is not None:
            return id_column, k
    raise InputError(
        f"{table.path} needs a column item and a column title; it has {shortened(table.names)}"
    )


def _first_text(rows: Sequence[Sequence[str]]) -> int:
    """Return the position of the first column of text after the first column, 1 without one.

    Years precede titles in the file of the Netflix prize.
    """
    from dsgmcmc.input.sources.tables import is_number

    columns = list(zip(*rows, strict=False))  # as many as the shortest line has
    for k, texts in enumerate(columns[1:], 1):
        if not all(map(is_number, texts)):
            return k
    return 1


def _find_id(header: list[str]) -> int | None:
    """Return the position of the column of ids, by its name in the header, or None."""
    position = find_column(header, "item")
    if position is not None:
        return position
    names = [simplified(name) for name in header]
    return names.index("id") if "id" in names else None


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
