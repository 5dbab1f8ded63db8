"""Recognises files of other tools that are no plain table, and says how they become rows.

`find_layout` knows text: MatrixMarket [Boisvert et al. 1996], libFM and LIBSVM, the files of the
Netflix prize, and tables with any blanks between columns, as KONECT has them. DuckDB parses the
lines by a regular expression, in bounded memory. `read_smurff` reads the binary matrices of SMURFF.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.tables.session import literal
from dsgmcmc.types import Array

_BLANKS = "[ \\t]+"
# never ambiguous, so that RE2 reads a line once; Fortran writes exponents with D
_NUMBER = "[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eEdD][+-]?[0-9]+)?"
_INDEX = "([0-9]+)"
CLICK = "1"  # SQL of the value of an entry of a matrix that has no values
_VALUES = {
    "real": (_NUMBER, "a number"),
    "integer": ("[+-]?[0-9]+", "an integer"),
    "pattern": ("", "nothing else"),
}
_SYNONYMS = {"double": "real", "unsigned-integer": "integer"}
_LARGEST = 1 << 48  # rows or columns of a matrix of SMURFF; eight bytes of text are a larger number
_MEMORY_FACTOR = 4  # bytes of memory that reading one byte of a binary matrix takes
#: SQL of the value beyond the diagonal, by the symmetry of a matrix.
_MIRRORED = {"general": "", "symmetric": "c2", "skew-symmetric": "-c2"}

Cells = dict[str, Array]  # row, column and value of entries


class Layout(NamedTuple):
    """How the lines of a text file become rows.

    Attributes
    ----------
    pattern : str
        Regular expression of a line, without the blanks around it.
    columns : dict of str to str
        SQL of the columns of a line, by name; ``g.g0``, ``g.g1``, ... are the groups of `pattern`.
        Other queries name the columns c0, c1, ...
    valid : str
        SQL that is true for a line that can be read.
    expected : str
        What a line has, for messages.
    rows : str
        SQL of the rows, from the table ``lines`` of all lines; the columns of blank lines are NULL.
    fault : str
        SQL of what is wrong with all lines together, or NULL.
    skipped : int
        Lines before the first one that is parsed.
    shape : tuple of int
        Rows and columns of a matrix, otherwise 0.
    """

    pattern: str
    columns: dict[str, str]
    valid: str
    expected: str
    rows: str = "SELECT * EXCLUDE (bad) FROM lines WHERE c0 IS NOT NULL"
    fault: str = "NULL"
    skipped: int = 0
    shape: tuple[int, int] = (0, 0)

    @property
    def query(self) -> str:
        """SQL that parses the lines in column c0 of a table.

        ``bad`` is a line that cannot be read, or else NULL.
        """
        groups = [f"g{k}" for k in range(re.compile(self.pattern).groups)]
        pattern = literal(f"^[ \\t]*(?:{self.pattern})[ \\t]*$")
        columns = ", ".join(f"{column} AS c{k}" for k, column in enumerate(self.columns.values()))
        return (
            f"SELECT * EXCLUDE (line), CASE WHEN trim(line) != '' AND NOT coalesce({self.valid},"
            f" false) THEN line END AS bad FROM (SELECT {columns}, line FROM (SELECT c0 AS line,"
            f" regexp_extract(c0, {pattern}, {groups}) AS g FROM {{table}}))"
        )


def find_layout(path: Path, lines: Sequence[str]) -> Layout | None:
    """Return the layout of a file by its first lines, or None for a table with one delimiter.

    Raises InputError if the beginning of a MatrixMarket file is not valid, or has values that are
    not real numbers.
    """
    if lines[0].lower().startswith("%%matrixmarket"):
        return _matrix_market(path, lines)
    filled = [line.strip(" \t") for line in lines if line.strip()][:50]
    if all(re.fullmatch(f"{_NUMBER}({_BLANKS}[^ \\t:]+(:{_NUMBER})+)+", line) for line in filled):
        return _libfm()
    if re.fullmatch("[0-9]+:", filled[0]) and filled[1:]:
        return _netflix(filled[1])
    return None


def _matrix_market(path: Path, lines: Sequence[str]) -> Layout:
    """Return the layout of a MatrixMarket file: row and column, from 1, and value."""
    content, form, field, symmetry = [*lines[0].lower().split()[1:], *[""] * 4][:4]
    field = _SYNONYMS.get(field, field)
    dense = form == "array"
    known = (
        content == "matrix"
        and field in _VALUES
        and symmetry in _MIRRORED
        and form in ("coordinate", "array")
    )
    if not known or (dense and (field == "pattern" or symmetry != "general")):
        raise InputError(
            f"{path}, line 1: expected %%MatrixMarket matrix coordinate, with real, integer or"
            " pattern, and general, symmetric or skew-symmetric; or array, with real or integer,"
            f" and general; found {lines[0][:90]!r}"
        )
    at = next(
        (k for k, line in enumerate(lines) if line.strip() and line.lstrip()[0] != "%"),
        len(lines) - 1,
    )
    sizes = re.findall("(?<![^ \t])[0-9]{1,15}(?![^ \t])", lines[at])
    needed = ["rows", "columns"] if dense else ["rows", "columns", "entries"]
    if not len(sizes) == len(lines[at].split()) == len(needed):
        names = f"{', '.join(needed[:-1])} and {needed[-1]}"
        raise InputError(
            f"{path}, line {at + 1}: expected the numbers of {names}; found {lines[at][:60]!r}"
        )
    numbers = [int(size) for size in sizes]
    if dense:
        layout = _dense_market(field, numbers[0], numbers[1])
        n_entries = numbers[0] * numbers[1]
    else:
        layout = _sparse_market(field, symmetry, numbers[0], numbers[1])
        n_entries = numbers[2]
    fault = (
        f"CASE WHEN count(c0) != {n_entries} THEN concat('it has ', count(c0), ' entries instead"
        f" of {n_entries}') END"
    )
    return layout._replace(fault=fault, skipped=at + 1)


def _dense_market(field: str, n: int, m: int) -> Layout:
    """Return the layout of n times m values of a MatrixMarket array, column by column."""
    value, meaning = _VALUES[field]
    cells = "SELECT row_number() OVER (ORDER BY rowid) - 1 AS k, c0 FROM lines WHERE c0 IS NOT NULL"
    return Layout(
        f"({value})",
        columns={"value": _number(0)},
        valid="c0 IS NOT NULL",
        expected=meaning,
        rows=f"SELECT 1 + k % {n} AS c0, 1 + k // {n} AS c1, c0 AS c2 FROM ({cells})",
        shape=(n, m),
    )


def _sparse_market(field: str, symmetry: str, n: int, m: int) -> Layout:
    """Return the layout of the entries of an n times m MatrixMarket matrix."""
    value, meaning = _VALUES[field]
    columns = {"row": _index(0), "col": _index(1), "value": CLICK}
    groups = [_INDEX, _INDEX]
    if value:
        columns["value"] = _number(2)
        groups.append(f"({value})")
    rows = "SELECT c0, c1, c2 FROM lines WHERE c0 IS NOT NULL"
    if symmetry != "general":
        rows += f" UNION ALL SELECT c1, c0, {_MIRRORED[symmetry]} FROM lines WHERE c0 != c1"
    return Layout(
        _BLANKS.join(groups),
        columns=columns,
        valid=f"c0 BETWEEN 1 AND {n} AND c1 BETWEEN 1 AND {m} AND c2 IS NOT NULL",
        expected=f"a row from 1 to {n}, a column from 1 to {m} and {meaning} ({field} in line 1)",
        rows=rows,
        shape=(n, m),
    )


def _index(group: int) -> str:
    """Return SQL of a group that is an integer."""
    return f"try_cast(g.g{group} AS BIGINT)"


def _number(group: int) -> str:
    """Return SQL of a group that is a number."""
    return f"try_cast(translate(g.g{group}, 'dD', 'ee') AS DOUBLE)"


def _libfm() -> Layout:
    """Return the layout of libFM and LIBSVM: a rating, and two features of value 1.

    One feature is the user, the other one the item.
    """
    one = f"{_INDEX}:1(?:[.]0*)?"
    low = f"least({_index(1)}, {_index(2)})"
    high = f"greatest({_index(1)}, {_index(2)})"
    return Layout(
        _BLANKS.join([f"({_NUMBER})", one, one]),
        columns={"user": low, "item": high, "rating": _number(0)},
        valid="c0 < c1 AND c2 IS NOT NULL",
        expected=(
            "a rating, and features of value 1 for a user and an item; libFM's other features"
            " cannot be read"
        ),
        fault=(
            "CASE WHEN max(c0) >= min(c1) THEN concat('in libFM, users and items must have features"
            " in two ranges, but ', max(c0), ' is the lower feature of one line, and ', min(c1), '"
            " the higher one of another') END"
        ),
    )


def _netflix(after: str) -> Layout | None:
    """Return the layout of a file of the Netflix prize, by the line after an item.

    These are ratings, or the qualifying or probing pairs.
    """
    patterns = {
        "user": _INDEX,
        "rating": f"({_NUMBER})",
        "timestamp": "([0-9]{4}-[0-9]{2}-[0-9]{2})",
    }
    for names in (
        ("user", "rating", "timestamp"),
        ("user", "timestamp"),
        ("user", "rating"),
        ("user",),
    ):
        pattern = ",".join(patterns[name] for name in names)
        if not re.fullmatch(pattern, after):
            continue
        columns = {"user": _index(1), "item": _index(0)}
        for k, name in enumerate(names[1:], 2):
            columns[name] = _number(k) if name == "rating" else f"nullif(g.g{k}, '')"
        return Layout(
            f"{_INDEX}:|{pattern}",
            columns=columns,
            valid="c0 IS NOT NULL OR c1 IS NOT NULL",
            expected=f"an item and a colon, or {', '.join(names)}",
            rows=(
                "SELECT * EXCLUDE (bad) REPLACE (last_value(c1 IGNORE NULLS) OVER (ROWS UNBOUNDED"
                " PRECEDING) AS c1) FROM lines QUALIFY c0 IS NOT NULL"
            ),
        )
    return None


def blank_separated(width: int, skipped: int) -> Layout:
    """Return the layout of a table with any number of blanks between its columns."""
    return Layout(
        _BLANKS.join(['([^ \\t"]+)'] * width),
        columns={f"c{k}": f"nullif(g.g{k}, '')" for k in range(width)},
        valid="c0 IS NOT NULL",
        expected=f"{width} columns with blanks between them",
        skipped=skipped,
    )


# ------------------------------------------------------------------------------------------- binary


def read_smurff(
    path: Path, file: IO[bytes], head: bytes, limit: int
) -> tuple[tuple[int, int], Cells] | None:
    """Return sizes and entries of a matrix of SMURFF; None for other files.

    Entries have row and column, from 1, and value. A file has the numbers of rows and columns, and
    then the values of a dense matrix (.ddm) by columns, or the number of entries, their rows, their
    columns and, except for .sbm, their values; sizes are int64, rows and columns int32 from 1.
    `head` is the beginning of the file, and `limit` the memory that may be used, in bytes. Raises
    InputError if an entry is outside of the matrix, or if the file needs more memory.
    """
    rows, columns, n = np.frombuffer(head[:24].ljust(24, b"\0"), "<i8").tolist()
    if not (0 < rows < _LARGEST and 0 < columns < _LARGEST):
        return None
    dense_size = 16 + 8 * rows * columns
    binary_size = 24 + 8 * n
    size = file.seek(0, io.SEEK_END)
    if size not in (24 + 16 * n, binary_size, dense_size):
        return None
    refuse_size(path, size, limit)
    file.seek(0)
    content = file.read()
    if size == dense_size:
        cell = np.arange(rows * columns)
        value = np.frombuffer(content, "<f8", offset=16)
        return (rows, columns), {"row": 1 + cell % rows, "col": 1 + cell // rows, "value": value}
    row = np.frombuffer(content, "<i4", n, offset=24)
    col = np.frombuffer(content, "<i4", n, offset=24 + 4 * n)
    if size == binary_size:
        value = np.ones(n)
    else:
        value = np.frombuffer(content, "<f8", offset=24 + 8 * n)
    if n and not (1 <= row.min() <= row.max() <= rows and 1 <= col.min() <= col.max() <= columns):
        raise InputError(
            f"{path} has {rows} rows and {columns} columns, but entries in rows {row.min()} to"
            f" {row.max()} and columns {col.min()} to {col.max()}"
        )
    return (rows, columns), {"row": row, "col": col, "value": value}


def refuse_size(path: Path, size: int, limit: int) -> None:
    """Raise InputError if reading a binary matrix of `size` bytes needs more than the limit."""
    if _MEMORY_FACTOR * size > limit:
        raise InputError(
            f"{path} ({size / 1e6:,.0f} MB) needs {_MEMORY_FACTOR} times as much memory: raise"
            f" {named('memory')}"
        )
