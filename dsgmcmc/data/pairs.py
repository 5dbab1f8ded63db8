"""Reads files of pairs of users and items, whose ratings are to be predicted, into a DuckDB table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.columns import Heading, find_column, locate, refuse_unnamed
from dsgmcmc.data.session import Session, is_integer, is_rounded
from dsgmcmc.data.tables import SHOWN, TableFile, holds, open_table, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array

CHUNK = 1_000_000  # pairs in NumPy arrays at a time
ROLES = ("user", "item")


class PairsTable(NamedTuple):
    """A DuckDB table ``pairs`` with the rows of a file, and columns c0, c1, ...

    Attributes
    ----------
    file : TableFile
        The file that was read.
    users, items : int
        Positions of the columns that identify users and items.
    columns : list of str
        Names of all columns in the output; a column without a name gets one from its position.
    """

    file: TableFile
    users: int
    items: int
    columns: list[str]

    @property
    def hint(self) -> str:
        """Advice after unknown names: a header with unknown column names may have been read as a
        pair.
        """
        return (
            ""
            if self.file.header
            else "\n  If line 1 is a header, name its columns: --columns user=NAME,item=NAME"
        )


def load_pairs(db: Session, path: Path, given: Mapping[str, str]) -> PairsTable:
    """Read a file of pairs, in any format that `open_table` detects, into the table ``pairs``.

    `given` maps roles to columns, as `parse_columns` returns them. By default, the columns of users
    and items are found by their usual names in the header; without a header they are the first two
    columns. Raises InputError if the file is missing, empty or not a table, or has lines with a
    wrong number of columns.
    """
    named = bool(given) and not all(
        name.isdecimal() for name in given.values()
    )  # else the columns' positions

    def is_header(fields: list[str]) -> bool:
        usual = [find_column(fields, role) is not None for role in ROLES]
        return (
            all(usual)
            or (named and set(given.values()) <= set(fields))
            or (not given and any(usual))
        )

    file = open_table(db, path, is_header)
    if not file.header and not given and file.sample:
        refuse_unnamed(path, file.sample, rated=False)
    names = file.names if file.header else [*ROLES, *[""] * (file.width - 2)]
    positions = locate(
        Heading(path, names, len(names)),
        given,
        ROLES,
        advice="name them with --columns user=NAME,item=NAME",
    )
    names = [name or f"column{k}" for k, name in enumerate(names, 1)]
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"{path}: two columns have the same name ({', '.join(names)})")
    file.create(
        db,
        f"CREATE TABLE pairs AS SELECT {', '.join(f'c{k}' for k in range(file.width))} FROM"
        " {table}",
    )
    if scalar(db, "SELECT count(*) FROM pairs") == 0:
        raise InputError(f"{path} has no pairs")
    return PairsTable(file, positions["user"], positions["item"], names)


def chunks(db: Session, table: PairsTable, integers: tuple[bool, bool]) -> Iterator[list[Array]]:
    """Yield names of users and items, `CHUNK` pairs at a time.

    `integers` says whether the names of users, and of items, are integers in the run; then spaces
    around a name, and zeros after its decimal point, do not count. Spaces around text do not count
    if all names have them. Raises InputError before the first chunk if a name is missing, or is not
    an integer although the run's names are integers. The error lists the first five bad pairs.
    """
    given = [table.file.name(table.users), table.file.name(table.items)]
    columns = given.copy()
    faults = [
        f"coalesce(trim({name}), '') = '' OR coalesce({is_rounded(name)}, false)" for name in given
    ]
    for k in range(2):
        if integers[k]:
            columns[k] = f"regexp_replace(trim({columns[k]}), '[.]0+$', '')"
            faults.append(f"NOT {is_integer(columns[k])}")
        elif holds(db, f"trim({columns[k]}) != {columns[k]}", "pairs"):
            columns[k] = f"trim({columns[k]})"
    wrong = f"FROM pairs WHERE {' OR '.join(faults)}"
    if number := scalar(db, f"SELECT count(*) {wrong}"):
        rows = db.execute(
            f"SELECT rowid, {', '.join(given)} {wrong} ORDER BY rowid LIMIT {SHOWN}"
        ).fetchall()
        lines = "\n  ".join(
            f"{table.file.where(row)}: user {user}, item {item}" for row, user, item in rows
        )
        kinds = " and ".join(role for role, integer in zip(ROLES, integers, strict=True) if integer)
        needed = (
            f", or a name that is not an integer like the {kinds} names in the run" if kinds else ""
        )
        raise InputError(
            f"{table.file.path}: {number} pairs lack an exact name{needed}\n  {lines}{table.hint}"
        )
    types = ("BIGINT" if integer else "VARCHAR" for integer in integers)
    user, item = (f"({name})::{kind}" for name, kind in zip(columns, types, strict=True))
    picked = f"SELECT {user} AS user, {item} AS item FROM pairs WHERE rowid"
    for start in range(0, int(scalar(db, "SELECT count(*) FROM pairs")), CHUNK):
        names = db.execute(
            f"{picked} BETWEEN {start} AND {start + CHUNK - 1} ORDER BY rowid"
        ).fetchnumpy()
        yield [np.ma.getdata(names[role]) for role in ROLES]
