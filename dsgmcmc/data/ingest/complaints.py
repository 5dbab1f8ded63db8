"""Errors in input files: the number of bad rows, and the first five with line numbers.

DuckDB counts bad rows at full speed; only where there are some is the file read again in Python, up to the
fifth, because DuckDB knows no line numbers of values.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.ingest.sources import RatingsInput
from dsgmcmc.errors import InputError

SHOWN = 5
MANY = 1000  # most lines that are counted if DuckDB cannot read the file
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def bad_row(source: RatingsInput) -> str:
    """Return SQL that is true for rows of ``raw`` with values that no file may have."""
    condition = "coalesce(user_id, '') = '' OR coalesce(item_id, '') = '' OR rating IS NULL OR NOT isfinite(rating)"
    condition += " OR contains(user_id, chr(0)) OR contains(item_id, chr(0))"  # a name ends there where it is stored
    if "timestamp" in source.columns:
        condition += " OR time IS NULL OR NOT isfinite(time)"
    return f"({condition})"


def explain_text(source: RatingsInput, reason: str) -> str:
    """Say why a file cannot be read at all; `reason` is DuckDB's, of many lines.

    Raises InputError if there are lines that are wrong. DuckDB could gather them, and took kilobytes for each: there
    may be millions.
    """
    if source.kind == "text" and (bad := list(islice(_bad_lines(source), MANY))):
        raise _complaint(source, len(bad), [f"line {line}: {what}" for line, what in bad[:SHOWN]])
    if "state machine reached an invalid state" in reason:
        reason = "its quotes or line ends are inconsistent (lines that end in \\r\\n among others in \\n?)"
    return reason.splitlines()[0]


def complain_of_rows(connection: duckdb.DuckDBPyConnection, source: RatingsInput, count: int, start: int) -> InputError:
    """List the first bad rows of a file whose rows in ``raw`` begin at `start`."""
    if source.kind == "text":
        shown = [f"line {line}: {what}" for line, what in islice(_bad_lines(source), SHOWN)]
    else:
        shown = [f"row {row}: {what}" for row, what in _bad_rows(connection, source, start)]
    return _complaint(source, count, shown)


def _complaint(source: RatingsInput, count: int, shown: list[str]) -> InputError:
    number = f"{count} rows have" if count > 1 else "1 row has"
    if count == MANY:
        number = f"{count} rows or more have"
    return InputError(
        f"{source.path}: {number} missing, non-numeric, infinite or NaN values, or a wrong number "
        f"of columns; correct or remove them." + "".join(f"\n  {row}" for row in shown)
    )


def _records(source: RatingsInput) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line's number and the fields of every record of a text file, without its header."""
    lines = source.lines()
    if source.delimiter == "::":
        rows: Iterator[tuple[int, list[str]]] = (
            (k, line.rstrip("\r\n").split("::")) for k, line in enumerate(lines, 1)
        )
    else:
        rows = _csv_records(csv.reader(lines, delimiter=source.delimiter))
    for line, fields in rows:
        if line > source.skip and fields not in ([], [""]):
            yield line, fields


def _csv_records(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield records with the line in which each begins: a quoted name may go over several."""
    end = 0
    for fields in reader:
        yield end + 1, fields
        end = reader.line_num


def _bad_lines(source: RatingsInput) -> Iterator[tuple[int, str]]:
    """Yield the line number of every bad record, and what is wrong with it."""
    with contextlib.suppress(csv.Error):
        for line, fields in _records(source):
            what = _fault(source, fields)
            if what:
                yield line, what


def _fault(source: RatingsInput, fields: list[str]) -> str | None:
    if len(fields) != source.width:
        note = " (a quote that is not closed?)" if any("\n" in field for field in fields) else ""
        return f"{len(fields)} column{'s' * (len(fields) != 1)} instead of {source.width}{note}"
    if any("\ufffd" in field for field in fields):
        return "not UTF-8 text"
    for role, position in source.columns.items():
        field = fields[position]
        if "\0" in field:
            return f"the {role} has zero bytes"
        if not field:
            return f"the {role} is missing"
        if (role == "rating" and not _is_number(field)) or (role == "timestamp" and not _is_time(field)):
            return f"the {role} is {field!r}{_note(field.strip())}"
    return None


def _note(field: str) -> str:
    """What is to be said of a number that is written as in some countries."""
    return " (a decimal comma: write a point)" if re.fullmatch(r"-?\d+,\d+", field) else ""


def _is_number(field: str) -> bool:
    """Whether a field is a finite float32."""
    try:
        value = float(field)
    except ValueError:
        return False
    return field.isascii() and math.isfinite(value) and abs(value) <= _FLOAT32_MAX


def _is_time(field: str) -> bool:
    try:
        datetime.fromisoformat(field.strip())
    except ValueError:
        return _is_number(field)
    return True


def _bad_rows(connection: duckdb.DuckDBPyConnection, source: RatingsInput, start: int) -> list[tuple[int, str]]:
    rows = connection.execute(
        f"SELECT rowid - {start} + 1, user_id, item_id, rating FROM raw "
        f"WHERE rowid >= {start} AND {bad_row(source)} ORDER BY rowid LIMIT {SHOWN}"
    ).fetchall()
    return [(row, f"user {user}, item {item}, rating {rating}") for row, user, item, rating in rows]
