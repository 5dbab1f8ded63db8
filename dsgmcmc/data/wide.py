"""Reads matrices that are tables, with a row a user and a column an item, as one rating for each
cell that is filled.

Rows are read a few at a time, so that memory depends neither on their number nor on their width.
DuckDB's UNPIVOT would need a scan of the whole file for every few hundred columns to keep within
its memory.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.data.columns import find_column, locate
from dsgmcmc.data.session import Session, memory_of
from dsgmcmc.data.tables import SHOWN, TableFile, is_number, open_table
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float64

Reporter = Callable[[str], None]
#: Texts that stand for a cell without a rating, in lower case.
_EMPTY = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", ".")
_NAMELESS = (
    "",
    "Unnamed: 0",
    "__index_level_0__",
)  # columns in which R and pandas write the names of rows
_SAMPLE = 100  # rows from which the first column is judged
_FEW = 5  # rows or names whose order says little
_CELLS = 250_000  # that are in memory at a time
_REMEMBERED = 100_000  # contents of cells whose numbers are remembered


class _Numbers(dict[str | None, float]):
    """The number in a cell, by its text: NaN if the cell is not rated, and infinity if the text is
    no number.
    """

    def __init__(self, missing: Sequence[str]) -> None:
        self._empty = {None, *_EMPTY, *map(str.lower, missing)}
        self._codes = {float(code) for code in missing if is_number(code)}

    def __missing__(self, text: str | None) -> float:
        number = np.inf
        if text is None or text.strip().lower() in self._empty:
            number = np.nan
        elif is_number(text):
            number = np.nan if float(text) in self._codes else float(text)
        if len(self) < _REMEMBERED:  # texts recur in most files
            self[text] = number
        return number

    def of(self, rows: Sequence[Sequence[str | None]], width: int) -> Float64:
        """Return the numbers in rows of a table as an array (n, width)."""
        numbers = map(self.__getitem__, chain.from_iterable(rows))
        return np.fromiter(numbers, np.float64, len(rows) * width).reshape(len(rows), width)


def parse_missing(given: Any, matrix: bool) -> list[str]:
    """Return the values that mean "not rated" as texts; `given` is text with commas, a number, a
    sequence, or None.

    Raises InputError if a value is empty, or is no number and the ratings are no `matrix`.
    """
    values = (
        []
        if given is None
        else given.split(",")
        if isinstance(given, str)
        else np.atleast_1d(given).tolist()
    )
    texts = [str(value).strip() for value in values]
    if not all(texts if matrix else map(is_number, texts)):
        raise InputError(
            f"{named('missing')} {given}: expected numbers with commas between them, such as 0,99"
        )
    return texts


def inspect_wide(
    db: Session, path: Path, columns: Mapping[str, str], missing: Sequence[str]
) -> tuple[TableFile, dict[str, int]] | None:
    """Return the table in a file, and the positions of its columns that are no items, by role:
    "user" and "count".

    The array in an .npz file of NumPy is a table of "user", "item" and "rating"; files that DuckDB
    or SciPy read as a matrix give None. Names of rows are in the column that `columns` has for
    "user"; or else in a column without a name, or with a usual name; or else in the first column,
    unless it has numbers. The column "count" has the number of ratings of each row. Raises
    InputError if the file is no table, or the first column may have names or ratings.
    """
    table = open_table(db, path, lambda fields: _is_header(fields, missing))
    if table.kind == "matrix":
        dense = _read_dense(db, path)
        return None if dense is None else (dense, {"user": 0, "item": 1, "rating": 2})
    if table.kind == "lines" or table.delimiter == "::":
        raise InputError(f"{path} has a line for each rating: leave out {named('matrix')}")
    names, searched = (
        table.names if table.header else None,
        table.width if table.kind == "parquet" else 1,
    )
    if columns:
        return table, locate(path, names, table.width, columns, ("user",), "")
    known = names[:searched] if names else []
    place = next(
        (k for k, name in enumerate(known) if name in _NAMELESS), find_column(known, "user")
    )
    if place is not None:
        return table, {"user": place}
    first = next((k for k, kind in enumerate(table.types) if kind == "VARCHAR"), 0)
    rows = list(islice(table.rows(db), _SAMPLE))
    cells = np.roll(_Numbers(missing).of(rows, table.width), -first, axis=1)
    if np.isinf(cells[:, 0]).any():
        return table, {"user": first}
    if counts_cells(cells):
        return table, {"count": first}
    refuse_names(
        cells,
        f"{path}: {table.names[first]}",
        f"{named('columns')} user={names[first] if names else 1}",
    )
    return table, {}


def counts_cells(cells: Float64) -> bool:
    """Whether the first column of a matrix has the number of filled cells of each row, and not all
    are equal.
    """
    return bool(
        np.ptp(cells[:, 0]) and (cells[:, 0] == np.isfinite(cells[:, 1:]).sum(axis=1)).all()
    )


def refuse_names(cells: Float64, what: str, advice: str) -> None:
    """Raise InputError if the first column of a matrix, given some of its rows with NaN for empty
    cells, may be names.

    It may if all its values are different whole numbers, and those of no other column are.
    """

    def may_be_names(column: Float64) -> bool:
        whole = np.isfinite(column).all() and not np.any(column % 1)
        return bool(whole and len(np.unique(column)) == len(column))

    if (
        len(cells) >= _FEW
        and may_be_names(cells[:, 0])
        and not any(map(may_be_names, cells[:, 1:].T))
    ):
        advice = f"if they name the users, {advice}; if they are ratings, put another column first"
        raise InputError(
            f"{what} has a different whole number in every row, as no other column has: {advice}"
        )


def _is_header(fields: list[str], missing: Sequence[str]) -> bool:
    """Whether the first line of a file has names of items: texts, or numbers that ascend; decimals
    are ratings.
    """
    if find_column(fields[:1], "user") is not None:
        return True
    cells = _Numbers(missing).of([fields[1:]], len(fields) - 1)[0]
    numbers = cells[np.isfinite(cells)]
    if np.isinf(cells).any():
        return not np.any(numbers % 1)
    steps = np.diff(numbers)
    ascend = bool((steps == 1).all() if len(steps) < _FEW else (steps > 0).all())
    return ascend and len(steps) > 0 and len(numbers) == len(cells) and not np.any(numbers % 1)


def load_wide(
    db: Session,
    table: TableFile,
    roles: Mapping[str, int],
    test: bool,
    missing: Sequence[str],
    report: Reporter,
) -> None:
    """Append the filled cells of a table to the table ``raw``; parameters as for `inspect_wide` and
    `load`.

    Rows without names have the numbers 1, 2, ..., and so have items without names. Raises
    InputError if cells have text or infinity, or names are missing. The error gives their number,
    and the first five with line and column.
    """
    others = [k for k in range(table.width) if k not in roles.values()]
    items = np.array(
        [table.names[k] if table.header else str(number) for number, k in enumerate(others, 1)],
        object,
    )
    nameless_items, numbers = (
        _nameless(items),
        _Numbers([text for text in missing if not is_number(text)]),
    )
    rows, n_read, n_bad, shown = table.rows(db), 0, 0, ""
    while piece := list(islice(rows, max(1, _CELLS // table.width))):
        cells = numbers.of(piece, table.width)[:, others]
        names = [
            row[roles["user"]] if "user" in roles else str(n_read + k)
            for k, row in enumerate(piece, 1)
        ]
        users, filled = np.array(names, object), ~np.isnan(cells)
        bad = np.isinf(cells) | (filled & (_nameless(users)[:, None] | nameless_items))
        for k, j in np.argwhere(bad)[: max(0, SHOWN - n_bad)].tolist():
            shown += (
                f"\n  {table.where(n_read + k)}, item {items[j]}: {piece[k][others[j]]!r} (user"
                f" {users[k]})"
            )
        n_bad += int(bad.sum())
        row, col = np.nonzero(filled)
        db.register("arrays", {"u": users[row], "i": items[col], "x": cells[row, col]})
        db.execute(f"INSERT INTO raw SELECT u, i, x, NULL, {test} FROM arrays")
        n_read += len(piece)
        report(f"reading {table.path.name}: {n_read:,} rows")
    if n_bad:
        advice = f"correct them, or give {named('missing')} VALUE,... if they mean not rated"
        found = f"{n_bad:,} cell(s) have no number, or no name of a user or an item"
        raise InputError(f"{table.path}: {found}; {advice}{shown}")


def _nameless(names: Iterable[str | None]) -> Array:
    """Return a mask of names that are empty, or would end at a NUL byte."""
    return np.array([not name or not name.strip() or "\0" in name for name in names], bool)


def _read_dense(db: Session, path: Path) -> TableFile | None:
    """Return the cells that are not NaN of the array (I, J) in an .npz file of NumPy; None for
    other files.
    """
    if path.suffix.lower() != ".npz":
        return None
    try:
        with np.load(path) as archive:
            size = sum(info.file_size for info in archive.zip.infolist())
            array = (
                archive[archive.files[0]]
                if len(archive.files) == 1 and 4 * size < memory_of(db)
                else np.zeros(0)
            )
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        return None
    row, col = np.nonzero(~np.isnan(array))
    return TableFile.of_arrays(
        path, {"row": row, "col": col, "value": array[row, col].astype(np.float64)}
    )


def describe_wide(table: TableFile, roles: Mapping[str, int]) -> str:
    """Describe how a matrix was read, so that users can check it."""
    others = [name for k, name in enumerate(table.names) if k not in roles.values()]
    users = (
        f"named by {table.names[roles['user']] or 'the first column'}"
        if "user" in roles
        else "numbered"
    )
    items = (
        f"named {others[0]}, {others[1]}, ..." if table.header and len(others) > 1 else "numbered"
    )
    counted = (
        f"; {table.names[roles['count']]} counts the ratings of a row: left out"
        if "count" in roles
        else ""
    )
    return f"a row a user ({users}), {len(others):,} columns the items ({items}){counted}"
