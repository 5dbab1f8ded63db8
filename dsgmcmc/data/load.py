"""Finds rating files, assigns roles to their columns, and reads their rows into one DuckDB table, ``raw``."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from dsgmcmc.data.columns import assign_columns
from dsgmcmc.data.session import memory_of
from dsgmcmc.data.tables import SHOWN, TableFile, is_matrix, is_number, open_table, read_matrix, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named

_SUFFIXES = (
    *(".csv", ".tsv", ".txt", ".dat", ".data", ".base", ".test", ".json", ".jsonl", ".ndjson"),
    *(".parquet", ".pq", ".mtx", ".npz"),
)
_MOVIELENS = ("ratings.csv", "ratings.dat", "u.data")  # in a folder with one of these files, the others are ignored
_FIELDS = {"user": "user_id", "item": "item_id", "rating": "rating", "timestamp": "time"}
_ENTRIES = 2_000_000  # matrix entries that are inserted at a time


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


def find_files(inputs: Sequence[str]) -> list[Path]:
    """Turn files, folders and globs into a list of files.

    From a folder with a MovieLens rating file only this file is taken; from any other folder, every file with a known
    suffix. Raises InputError if a file does not exist or is named twice, or a folder or glob yields no files.
    """
    files: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            files += _files_of(path)
        elif path.exists():
            files.append(path)
        elif glob.has_magic(name):
            matches = sorted(Path(p) for p in glob.glob(name, recursive=True))  # noqa: PTH207 (absolute patterns)
            files += [p for p in matches if p.is_file()]
            if not files:
                raise InputError(f"no file matches {name}")
        else:
            raise InputError(f"{name} does not exist")
    seen: set[Path] = set()
    for path in files:
        if path.resolve() in seen:
            raise InputError(f"{path} is given twice")
        seen.add(path.resolve())
    return files


def _files_of(folder: Path) -> list[Path]:
    present = sorted(p for p in folder.iterdir() if p.is_file())
    for name in _MOVIELENS:
        match = [p for p in present if p.name in (name, name + ".gz")]
        if match:
            return match[:1]
    files = [p for p in present if p.name.lower().removesuffix(".gz").endswith(_SUFFIXES) and p.name[0] != "."]
    if not files:
        raise InputError(f"{folder} holds no rating files (known suffixes: {', '.join(_SUFFIXES)})")
    return files


def inspect(db: duckdb.DuckDBPyConnection, path: Path, columns: dict[str, str], timed: bool) -> RatingsFile:
    """Detect the format of a file and the roles of its columns; `columns` are from `parse_columns`.

    Raises InputError if the file is empty, is no table, or lacks a required column (the timestamp too, if `timed`).
    """
    if is_matrix(path):
        if columns:
            raise InputError(f"{path} is a matrix: {named('columns')} has no meaning for it")
        if timed:
            raise InputError(f"{path} is a matrix, without the times that --split temporal needs")
        return RatingsFile(path, None, {}, timed)
    table = open_table(db, path, lambda fields: not any(map(is_number, fields)), least=3)
    roles = assign_columns(path, table.names if table.header else None, table.width, columns, timed)
    return RatingsFile(path, table, roles, timed)


def create_raw(db: duckdb.DuckDBPyConnection) -> None:
    """Create the empty table ``raw``; times are in seconds or NULL."""
    db.execute(
        "CREATE OR REPLACE TABLE raw (user_id VARCHAR, item_id VARCHAR, rating FLOAT, time DOUBLE, test BOOLEAN)"
    )


def load(db: duckdb.DuckDBPyConnection, file: RatingsFile, test: bool) -> None:
    """Append a file's ratings to ``raw``, in their order.

    Raises InputError if the file cannot be read, holds no ratings, or has rows with missing, non-numeric, infinite or
    NaN values. The error gives the number of bad rows and the first five.
    """
    before = scalar(db, "SELECT count(*) FROM raw")
    if file.table is None:
        _load_matrix(db, file.path, test)
    else:
        _load_table(db, file.table, file.columns, test)
    _refuse_bad_rows(db, file, before)
    if scalar(db, "SELECT count(*) FROM raw") == before:
        has_header = file.table is not None and file.table.first_line and file.table.header
        raise InputError(f"{file.path} has {'a header but ' if has_header else ''}no ratings")


def _load_table(db: duckdb.DuckDBPyConnection, table: TableFile, columns: dict[str, int], test: bool) -> None:
    field = {role: f"{table.column(position)}::VARCHAR" for role, position in columns.items()}
    time = "NULL"
    if "timestamp" in columns:
        time = (
            f"coalesce(try_cast({field['timestamp']} AS DOUBLE), epoch(try_cast({field['timestamp']} AS TIMESTAMPTZ)))"
        )
    rating, numbers = "1", {}
    if "rating" in columns:
        rating = f"try_cast({table.column(columns['rating'])} AS FLOAT)"
        numbers = {columns["rating"]: "FLOAT"}
    table.create(
        db, f"INSERT INTO raw SELECT {field['user']}, {field['item']}, {rating}, {time}, {test} FROM {{table}}", numbers
    )


def _load_matrix(db: duckdb.DuckDBPyConnection, path: Path, test: bool) -> None:
    """Append the entries of a matrix, which must fit into memory; row and column numbers serve as names."""
    matrix = read_matrix(path, memory_of(db))
    first = 0 if path.suffix.lower() == ".npz" else 1  # MatrixMarket counts from 1
    for start in range(0, matrix.nnz, _ENTRIES):
        part = slice(start, start + _ENTRIES)
        entries = {
            "row": matrix.row[part].astype(np.int64) + first,
            "col": matrix.col[part].astype(np.int64) + first,
            "value": matrix.data[part].astype(np.float64),
        }
        db.register("entries", entries)
        db.execute(
            f"INSERT INTO raw SELECT row::VARCHAR, col::VARCHAR, try_cast(value AS FLOAT), NULL, {test} FROM entries"
        )
        db.unregister("entries")


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


def whole_names(db: duckdb.DuckDBPyConnection) -> None:
    """Strip ``.0`` from the names of a column if all are whole numbers that end so.

    Pandas writes integers as floats where one is missing.
    """
    for column in ("user_id", "item_id"):
        whole = f"regexp_full_match({column}, '-?[0-9]+[.]0')"
        first = scalar(db, f"SELECT {whole} FROM raw LIMIT 1")
        if first and scalar(db, f"SELECT bool_and({whole}) FROM raw"):
            db.execute(f"UPDATE raw SET {column} = left({column}, -2)")
