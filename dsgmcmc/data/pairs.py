"""Reads files of pairs of users and items, whose ratings are to be predicted, into a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.columns import Heading, find_column, locate, refuse_repeated, refuse_unnamed
from dsgmcmc.data.session import Session, is_integer, is_rounded
from dsgmcmc.data.table_format import open_table
from dsgmcmc.data.tables import SHOWN, TableFile, holds, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
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
        """Advice after unknown names: the first line may be a header with unknown names."""
        if self.file.header:
            return ""
        advice = f"{named('columns')} user=NAME,item=NAME"
        return f"\n  If line 1 is a header, name its columns: {advice}"


def load_pairs(db: Session, path: Path, chosen: Mapping[str, str]) -> PairsTable:
    """Read a file of pairs, in any format that `open_table` detects, into the table ``pairs``.

    `chosen` maps roles to columns, as `parse_columns` returns them. By default, the columns of
    users and items are found by their usual names in the header; without a header they are the
    first two columns. Raises InputError if the file is missing, empty or not a table, or has lines
    with a wrong number of columns.
    """
    has_names = any(not name.isdecimal() for name in chosen.values())  # else positions of columns

    def is_header(fields: list[str]) -> bool:
        has_usual_name = [find_column(fields, role) is not None for role in ROLES]
        if all(has_usual_name):
            return True
        if has_names:
            return set(chosen.values()) <= set(fields)
        return not chosen and any(has_usual_name)

    file = open_table(db, path, is_header)
    if not file.header and not chosen and file.sample:
        refuse_unnamed(path, file.sample, rated=False)
    names = file.names
    if not file.header:
        names = [*ROLES, *[""] * (file.width - 2)]
    advice = f"name them with {named('columns')} user=NAME,item=NAME"
    positions = locate(Heading(path, names, len(names)), chosen, ROLES, advice=advice)
    names = [name or f"column{k}" for k, name in enumerate(names, 1)]
    refuse_repeated(path, names)
    columns = ", ".join(f"c{k}" for k in range(file.width))
    file.create(db, f"CREATE TABLE pairs AS SELECT {columns} FROM {{table}}")
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
    selected = []
    faults = []
    for role, k, integer in zip(ROLES, (table.users, table.items), integers, strict=True):
        stored = table.file.name(k)
        faults.append(f"coalesce(trim({stored}), '') = '' OR coalesce({is_rounded(stored)}, false)")
        name = stored
        if integer:
            name = f"regexp_replace(trim({stored}), '[.]0+$', '')"
            faults.append(f"NOT {is_integer(name)}")
        elif holds(db, f"trim({stored}) != {stored}", "pairs"):
            name = f"trim({stored})"
        selected.append(f"({name})::{'BIGINT' if integer else 'VARCHAR'} AS {role}")
    _refuse_names(db, table, " OR ".join(faults), integers)
    query = f"SELECT {', '.join(selected)} FROM pairs WHERE rowid"
    n_pairs = int(scalar(db, "SELECT count(*) FROM pairs"))
    for start in range(0, n_pairs, CHUNK):
        names = db.execute(
            f"{query} BETWEEN {start} AND {start + CHUNK - 1} ORDER BY rowid"
        ).fetchnumpy()
        yield [np.ma.getdata(names[role]) for role in ROLES]


def _refuse_names(
    db: Session, table: PairsTable, is_wrong: str, integers: tuple[bool, bool]
) -> None:
    """Raise InputError, with the first pairs, if pairs meet the condition `is_wrong`."""
    n_wrong = scalar(db, f"SELECT count(*) FROM pairs WHERE {is_wrong}")
    if not n_wrong:
        return
    user = table.file.name(table.users)
    item = table.file.name(table.items)
    rows = db.execute(
        f"SELECT rowid, {user}, {item} FROM pairs WHERE {is_wrong} ORDER BY rowid LIMIT {SHOWN}"
    ).fetchall()
    message = f"{table.file.path}: {n_wrong} pairs lack an exact name"
    if any(integers):
        roles = " and ".join(role for role, integer in zip(ROLES, integers, strict=True) if integer)
        message += f", or a name that is not an integer like the {roles} names in the run"
    for row, user_name, item_name in rows:
        message += f"\n  {table.file.where(row)}: user {user_name}, item {item_name}"
    raise InputError(message + table.hint)
