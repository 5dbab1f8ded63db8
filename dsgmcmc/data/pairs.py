"""Reads files of pairs of users and items, whose ratings are to be predicted, into a DuckDB table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from dsgmcmc.data.columns import find_column, locate
from dsgmcmc.data.session import identifier
from dsgmcmc.data.tables import SHOWN, TableFile, open_table, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array

CHUNK = 1_000_000  # pairs in NumPy arrays at a time
ROLES = ("user", "item")


class PairsTable(NamedTuple):
    """A DuckDB table ``pairs`` with the rows of a file.

    Attributes
    ----------
    file : TableFile
        The file that was read.
    user, item : str
        Names of the columns that identify users and items.
    columns : list of str
        Names of all columns.
    """

    file: TableFile
    user: str
    item: str
    columns: list[str]

    @property
    def hint(self) -> str:
        """Advice after unknown names: a header with unknown column names may have been read as a pair."""
        return "" if self.file.header else "\n  If line 1 is a header, name its columns: --columns user=NAME,item=NAME"


def load_pairs(db: duckdb.DuckDBPyConnection, path: Path, given: Mapping[str, str]) -> PairsTable:
    """Read a file of pairs, in any format that `open_table` detects, into the table ``pairs``.

    `given` maps roles to columns, as `parse_columns` returns them. By default, the columns of users and items are found
    by their usual names in the header; without a header they are the first two columns. Raises InputError if the file
    is missing, empty or not a table, or has lines with a wrong number of columns.
    """

    def is_header(fields: list[str]) -> bool:
        usual = [find_column(fields, role) is not None for role in ROLES]
        return all(usual) or (set(given.values()) <= set(fields) if given else any(usual))

    file = open_table(db, path, is_header)
    names = file.names if file.header else [*ROLES, *(f"column{k}" for k in range(3, file.width + 1))]
    places = locate(path, names, len(names), given, ROLES, "name them with --columns user=NAME,item=NAME")
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"{path}: two columns have the same name ({', '.join(names)})")
    selected = ", ".join(f"{file.column(k)} AS {identifier(name)}" for k, name in enumerate(names))
    file.create(db, f"CREATE TABLE pairs AS SELECT {selected} FROM {{table}}")
    if scalar(db, "SELECT count(*) FROM pairs") == 0:
        raise InputError(f"{path} has no pairs")
    return PairsTable(file, names[places["user"]], names[places["item"]], names)


def chunks(db: duckdb.DuckDBPyConnection, table: PairsTable, integers: tuple[bool, bool]) -> Iterator[list[Array]]:
    """Yield names of users and items, `CHUNK` pairs at a time.

    `integers` says whether the names of users, and of items, are integers in the run. Raises InputError before the
    first chunk if a name is missing, or is not an integer although the run's names are integers. The error lists the
    first five bad pairs.
    """
    columns = [identifier(table.user), identifier(table.item)]
    faults = []
    for name, integer in zip(columns, integers, strict=True):
        faults.append(f"{name} IS NULL OR {name}::VARCHAR = ''")
        if integer:
            faults.append(f"coalesce(try_cast({name} AS BIGINT)::DOUBLE <> try_cast({name} AS DOUBLE), true)")
    wrong = f"FROM pairs WHERE {' OR '.join(faults)}"
    if number := scalar(db, f"SELECT count(*) {wrong}"):
        rows = db.execute(f"SELECT rowid, {', '.join(columns)} {wrong} ORDER BY rowid LIMIT {SHOWN}").fetchall()
        lines = "\n  ".join(f"{table.file.where(row)}: user {user}, item {item}" for row, user, item in rows)
        kinds = " and ".join(role for role, integer in zip(ROLES, integers, strict=True) if integer)
        needed = f", or a name that is not an integer like the {kinds} names in the run" if kinds else ""
        raise InputError(f"{table.file.path}: {number} pairs have a missing name{needed}\n  {lines}{table.hint}")
    picked = ", ".join(
        f"{name}::{'BIGINT' if integer else 'VARCHAR'} AS {role}"
        for name, integer, role in zip(columns, integers, ROLES, strict=True)
    )
    for start in range(0, int(scalar(db, "SELECT count(*) FROM pairs")), CHUNK):
        names = db.execute(
            f"SELECT {picked} FROM pairs WHERE rowid >= {start} AND rowid < {start + CHUNK} ORDER BY rowid"
        ).fetchnumpy()
        yield [np.ma.getdata(names[role]) for role in ROLES]
