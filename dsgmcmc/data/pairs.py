"""Files of pairs to predict, CSV or Parquet, read into a DuckDB table."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from dsgmcmc.data.ingest.columnar import is_parquet, open_columns
from dsgmcmc.data.ingest.columns import find_column, locate, parse_columns, require
from dsgmcmc.data.ingest.load import read_csv, scalar
from dsgmcmc.data.ingest.packed import check, is_packed
from dsgmcmc.data.ingest.sources import decode_head, detect_delimiter, split_line, whole_lines
from dsgmcmc.data.session import identifier, reading
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array

CHUNK = 1_000_000  # pairs in NumPy arrays at a time
SHOWN = 5
ROLES = ("user", "item")


@dataclass(frozen=True)
class PairsTable:
    """A table ``pairs`` in DuckDB, whose rows are the file's.

    Attributes
    ----------
    path : Path
        What it was read from.
    user, item : str
        The columns with the names of users and items.
    columns : list of str
        All columns.
    first_line : int
        Line of the file that the first row stands in; 0 where there are no lines.
    option : str
        The option of the command line that names the columns, for messages.
    """

    path: Path
    user: str
    item: str
    columns: list[str]
    first_line: int
    option: str

    @property
    def hint(self) -> str:
        """Advice for unknown names: a header without known column names was read as a pair."""
        if self.first_line != 1:
            return ""
        return f"\n  If line 1 is a header, say which columns hold them: {self.option} user=NAME,item=NAME"

    def where(self, row: int) -> str:
        """Where a row stands in the file, for messages."""
        return f"line {row + self.first_line}" if self.first_line else f"row {row + 1}"


@dataclass(frozen=True)
class PairColumns:
    """Which columns of a file of pairs are the users and the items.

    Attributes
    ----------
    user, item : str or None
        Name in the header, or position from 1; None where they are to be detected.
    option : str
        The option of the command line that says so, for messages.
    """

    user: str | None = None
    item: str | None = None
    option: str = "--columns"


def parse_pair_columns(text: str | None, option: str = "--columns") -> PairColumns:
    """Parse the value of an option; see `dsgmcmc.data.ingest.columns.parse_columns`."""
    return PairColumns(option=option, **parse_columns(text, ROLES, option))


def load_pairs(db: duckdb.DuckDBPyConnection, path: Path, columns: PairColumns) -> PairsTable:
    """Read a file of pairs, CSV (or any delimited text) or Parquet, into the table ``pairs``.

    By default a header tells which columns are user and item, by the names that ``prepare`` knows, too; a file with
    neither name in its first line has them as its first two columns. Raises InputError if it is not there, empty, or
    not such a file, or has lines with a wrong number of columns.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    load = _load_columnar if is_parquet(path) else _load_text
    with reading(path):
        table = load(db, path, columns)
    if scalar(db, "SELECT count(*) FROM pairs") == 0:
        raise InputError(f"{path} has no pairs")
    return table


def _load_columnar(db: duckdb.DuckDBPyConnection, path: Path, columns: PairColumns) -> PairsTable:
    given = open_columns(db, path)
    names = given.columns
    user, item = _assign(path, names, columns)
    given.create("pairs")
    return PairsTable(path, names[user], names[item], names, 0, columns.option)


def _load_text(db: duckdb.DuckDBPyConnection, path: Path, columns: PairColumns) -> PairsTable:
    lines = whole_lines(decode_head(path))
    delimiter = detect_delimiter(lines, 2)
    first = [field.strip() for field in split_line(lines[0], delimiter)]
    if len(first) < 2:
        raise InputError(f"{path} has one column: expected a user and an item in every line")
    given = {columns.user, columns.item} - {None}
    usual = [find_column(first, role) is not None for role in ROLES]
    header = all(usual) or (given <= set(first) if given else any(usual))
    names = first if header else ["user", "item", *(f"column{k}" for k in range(3, len(first) + 1))]
    user, item = _assign(path, names, columns)
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"{path}: two columns have the same name ({', '.join(names)})")
    table = read_csv(names, delimiter, int(header), is_packed(path), ", store_rejects = true")
    check(path)
    db.execute(f"CREATE TABLE pairs AS SELECT * FROM {table}", [glob.escape(str(path.absolute()))])
    bad = db.execute("SELECT line, any_value(csv_line) FROM reject_errors GROUP BY line ORDER BY line").fetchall()
    if bad:
        shown_lines = "\n  ".join(f"line {line}: {str(content).strip()[:80]!r}" for line, content in bad[:SHOWN])
        raise InputError(
            f"{path}: {len(bad)} line(s) do not have the {len(names)} columns of the first; correct or remove "
            f"them\n  {shown_lines}"
        )
    return PairsTable(path, names[user], names[item], names, 1 + int(header), columns.option)


def _assign(path: Path, names: list[str], columns: PairColumns) -> tuple[int, int]:
    given = {role: name for role in ROLES if (name := getattr(columns, role)) is not None}
    places = locate(path, names, len(names), given, ROLES)
    require(path, names, len(names), places, ROLES, f"name them with {columns.option} user=NAME,item=NAME")
    return places["user"], places["item"]


def chunk_count(pairs: int) -> int:
    """Number of chunks of so many pairs."""
    return -(-pairs // CHUNK)


def chunks(db: duckdb.DuckDBPyConnection, table: PairsTable, integers: tuple[bool, bool]) -> Iterator[list[Array]]:
    """Names of users and items, `CHUNK` pairs at a time; `integers`: whether those of the run are such.

    Raises InputError before the first chunk, if a name is missing, or no integer where it has to be one: the first
    five.
    """
    expressions, wrong = [], []
    for role, column, whole in zip(ROLES, (table.user, table.item), integers, strict=True):
        name = identifier(column)
        bad = f"{name} IS NULL OR {name}::VARCHAR = ''"
        if whole:
            bad += f" OR coalesce(try_cast({name} AS BIGINT)::DOUBLE <> try_cast({name} AS DOUBLE), true)"
        wrong.append((role, name, bad))
        expressions.append(f"{name}::{'BIGINT' if whole else 'VARCHAR'} AS {role}")
    anything = " OR ".join(f"({bad})" for _, _, bad in wrong)
    number = scalar(db, f"SELECT count(*) FROM pairs WHERE {anything}")
    if number:
        cases = " ".join(
            f"WHEN {name} IS NULL OR {name}::VARCHAR = '' THEN 'the {role} is missing' "
            f"WHEN {bad} THEN 'the {role} ' || {name}::VARCHAR || ' is no integer, as the {role}s of the run are'"
            for role, name, bad in wrong
        )
        rows = db.execute(
            f"SELECT rowid, CASE {cases} END FROM pairs WHERE {anything} ORDER BY rowid LIMIT {SHOWN}"
        ).fetchall()
        lines = "\n  ".join(f"{table.where(row)}: {what}" for row, what in rows)
        raise InputError(f"{table.path}: {number} of the pairs cannot be looked up\n  {lines}{table.hint}")
    total = int(scalar(db, "SELECT count(*) FROM pairs"))
    for start in range(0, total, CHUNK):
        names = db.execute(
            f"SELECT {', '.join(expressions)} FROM pairs WHERE rowid >= {start} AND rowid < {start + CHUNK} "
            "ORDER BY rowid"
        ).fetchnumpy()
        yield [np.ma.getdata(names[role]) for role in ROLES]
