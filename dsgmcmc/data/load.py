"""Reads ratings from files or arrays into one DuckDB table, ``raw``, and assigns roles to their columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from dsgmcmc.data.columns import assign_columns
from dsgmcmc.data.session import memory_of
from dsgmcmc.data.tables import SHOWN, TableFile, is_matrix, is_number, open_table, read_matrix, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named


@dataclass(frozen=True)
class RatingsFile:
    """A file with ratings.

    Attributes
    ----------
    path : Path
    table : TableFile or None
        None for a sparse matrix.
    columns : dict of str to int
        Position, from 0, of the columns "user", "item", "rating" and, if there is one, "timestamp". Without "rating"
        all ratings are 1.
    timed : bool
        Whether every rating must have a time.
    """

    path: Path
    table: TableFile | None
    columns: dict[str, int]
    timed: bool

    @property
    def roles(self) -> str:
        """Roles of the columns, for users to check."""
        if self.table is None:
            return "user row, item column"
        shown = [role for role in self.columns if self.timed or role != "timestamp"]
        text = ", ".join(f"{role} {self.table.names[self.columns[role]]}" for role in shown)
        return text if "rating" in self.columns else f"{text}, no rating column: treated as clicks"


def inspect(
    db: duckdb.DuckDBPyConnection, given: Path | TableFile, columns: dict[str, str], timed: bool
) -> RatingsFile:
    """Detect the format of a file and the roles of its columns; `columns` are from `parse_columns`.

    Raises InputError if the file is empty, is no table, or lacks a required column (the timestamp too, if `timed`).
    """
    if isinstance(given, Path) and is_matrix(given):
        if columns or timed:
            raise InputError(f"{given} is a matrix: it has neither {named('columns')} nor timestamps")
        return RatingsFile(given, None, {}, timed)
    table = (
        given if isinstance(given, TableFile) else open_table(db, given, lambda fields: not any(map(is_number, fields)))
    )
    roles = assign_columns(table.path, table.names if table.header else None, table.width, columns, timed)
    return RatingsFile(table.path, table, roles, timed)


def create_raw(db: duckdb.DuckDBPyConnection) -> None:
    """Create the empty table ``raw``; times are in seconds or NULL."""
    db.execute("CREATE TABLE raw (user_id VARCHAR, item_id VARCHAR, rating FLOAT, time DOUBLE, test BOOLEAN)")


def load(db: duckdb.DuckDBPyConnection, file: RatingsFile, test: bool) -> None:
    """Append a file's ratings to ``raw``, in their order.

    Raises InputError if the file cannot be read, holds no ratings, or has rows with missing, non-numeric, infinite or
    NaN values. The error gives the number of bad rows and the first five.
    """
    before = scalar(db, "SELECT count(*) FROM raw")
    insert = "INSERT INTO raw SELECT {user}, {item}, {rating}, {time}, " + f"{test} FROM {{table}}"
    if file.table is None:
        matrix = read_matrix(file.path, memory_of(db))
        first = 0 if file.path.suffix.lower() == ".npz" else 1  # MatrixMarket counts from 1
        arrays = {"row": matrix.row + np.int64(first), "col": matrix.col + np.int64(first), "value": matrix.data}
        table, columns = TableFile.of_arrays(file.path, arrays), {"user": 0, "item": 1, "rating": 2}
    else:
        table, columns = file.table, file.columns
    text = {role: f"{table.column(position)}::VARCHAR" for role, position in columns.items()}
    rating, time, numbers = "1", "NULL", {}
    if "rating" in columns:
        rating = f"try_cast({table.column(columns['rating'])} AS FLOAT)"
        numbers = {columns["rating"]: "FLOAT"}
    if "timestamp" in columns:
        time = f"coalesce(try_cast({text['timestamp']} AS DOUBLE), epoch(try_cast({text['timestamp']} AS TIMESTAMPTZ)))"
    table.create(
        db, insert.format(user=text["user"], item=text["item"], rating=rating, time=time, table="{table}"), numbers
    )
    _refuse_bad_rows(db, file, before)
    if scalar(db, "SELECT count(*) FROM raw") == before:
        raise InputError(f"{file.path} has no ratings")


def _refuse_bad_rows(db: duckdb.DuckDBPyConnection, file: RatingsFile, before: int) -> None:
    """Raise InputError if a file has invalid values; its rows in ``raw`` begin at row `before`."""
    wrong = {
        "the user is missing": "coalesce(user_id, '') = ''",
        "the item is missing": "coalesce(item_id, '') = ''",
        "the rating is missing, or no number": "rating IS NULL",
        "the rating is not finite": "NOT isfinite(rating)",
        # a stored name would end at its first zero byte
        "a name has zero bytes": "contains(user_id, chr(0)) OR contains(item_id, chr(0))",
    }
    if file.timed:
        wrong["the timestamp is missing, or no time"] = "time IS NULL OR NOT isfinite(time)"
    bad = f"rowid >= {before} AND ({' OR '.join(wrong.values())})"
    number = scalar(db, f"SELECT count(*) FROM raw WHERE {bad}")
    if not number:
        return
    cases = " ".join(f"WHEN {condition} THEN '{what}'" for what, condition in wrong.items())
    rows = db.execute(
        f"SELECT rowid - {before}, CASE {cases} END, user_id, item_id, rating FROM raw WHERE {bad} "
        f"ORDER BY rowid LIMIT {SHOWN}"
    ).fetchall()
    shown = ""
    for row, what, user, item, rating in rows:
        where = file.table.where(row) if file.table else f"entry {row + 1}"
        shown += f"\n  {where}: {what} (user {user}, item {item}, rating {rating})"
    many = f"{number} rows have" if number > 1 else "1 row has"
    raise InputError(f"{file.path}: {many} missing, non-numeric, infinite or NaN values; correct or remove them{shown}")
