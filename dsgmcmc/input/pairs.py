"""Reads files of pairs of users and items, whose ratings are to be predicted, into a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.detect import open_table
from dsgmcmc.input.roles import (
    NAMED_ROLES,
    Heading,
    expand_parts,
    locate,
    refuse_repeated,
    refuse_unnamed,
)
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.tables import SHOWN, holds, scalar
from dsgmcmc.ratings.names import names_of, of_parts, part_role
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, identifier, is_integer, is_rounded
from dsgmcmc.tables.usual import Columns, usual_roles
from dsgmcmc.types import Array

CHUNK = 1_000_000  # pairs in NumPy arrays at a time


class PairsTable(NamedTuple):
    """A DuckDB table ``pairs`` with the rows of a file, and columns c0, c1, ...

    Attributes
    ----------
    file : Source
        The file that was read.
    positions : dict of str to int
        Positions of the columns that identify users and items, by role; further parts of names have
        roles of their own (`dsgmcmc.ratings.names`).
    columns : list of str
        Names of all columns in the output; a column without a name gets one from its position.
    """

    file: Source
    positions: dict[str, int]
    columns: list[str]

    @property
    def hint(self) -> str:
        """Advice after unknown names: the first line may be a header with unknown names."""
        if self.file.header:
            return ""
        advice = f"{named('columns')} user=NAME,item=NAME"
        return f"\n  If line 1 is a header, name its columns: {advice}"

    def stored(self, role: str) -> list[str]:
        """Return SQL of the parts of the names of a role, as they are stored."""
        return [self.file.name(k) for k in of_parts(self.positions, role)]


def load_pairs(
    db: Session,
    path: Path,
    chosen: Columns,
    labels: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    *,
    directions: Sequence[str] = (),
    said: Columns = MappingProxyType({}),
) -> PairsTable:
    """Read a file of pairs, in any format that `open_table` detects, into the table ``pairs``.

    `chosen` maps roles to columns, as `parse_columns` returns them. By default, users and items are
    in columns with the names of `labels`, which the run's names had, or with usual names; without a
    header they are the first columns, or the `directions` of a table of three directions, unless
    users have `said` that the run's ratings had them elsewhere. Raises InputError if the file is
    missing, empty or not a table, lacks a part, or has lines with a wrong number of columns.
    """
    parts = {role: of_role for role, of_role in labels.items() if len(of_role) > 1}

    def is_header(fields: list[str], rows: list[list[str]]) -> bool:
        usual = usual_roles(fields, NAMED_ROLES)
        if len(usual) == len(NAMED_ROLES):
            return True
        named_columns = set(expand_parts(chosen, fields).values())
        if any(not name.isdecimal() for name in named_columns):  # else positions of columns
            return named_columns <= set(fields)
        has_label = any(set(fields) & set(of_role) for of_role in labels.values())
        return has_label or (not chosen and bool(usual))

    file = open_table(db, path, is_header)
    if not file.header and not chosen:
        _refuse_other_order(file, said, has_parts=bool(parts))
    names = file.names
    wanted: dict[str, str | tuple[str, ...]] = dict(chosen)
    if file.header:
        for role, of_role in labels.items():
            if role in parts or set(of_role) & set(names):
                wanted.setdefault(role, of_role)
    else:
        in_order = {role: labels[role] if parts else (role,) for role in NAMED_ROLES}
        first = directions or [part for role in NAMED_ROLES for part in in_order[role]]
        names = [*first, *[""] * (file.width - len(first))][: file.width]
        for role in NAMED_ROLES:
            wanted.setdefault(role, in_order[role])
    advice = f"name them with {named('columns')} user=NAME,item=NAME"
    positions = locate(Heading(path, names, len(names)), wanted, NAMED_ROLES, advice=advice)
    _refuse_other_parts(path, positions, parts)
    names = [name or f"column{k}" for k, name in enumerate(names, 1)]
    refuse_repeated(path, names)
    columns = ", ".join(f"c{k}" for k in range(file.width))
    file.create(db, f"CREATE TABLE pairs AS SELECT {columns} FROM {{table}}")
    if scalar(db, "SELECT count(*) FROM pairs") == 0:
        raise InputError(f"{path} has no pairs")
    return PairsTable(file, positions, names)


def _refuse_other_order(file: Source, said: Columns, *, has_parts: bool) -> None:
    """Raise InputError if the first columns of a file without a header may not have the names.

    Users may have said that other columns of the run's ratings have them.
    """
    positions = [str(said.get(role, k)) for k, role in enumerate(NAMED_ROLES, 1)]
    if all(position.isdecimal() for position in positions) and positions != ["1", "2"]:
        user, item = positions
        raise InputError(
            f"{file.path} has no header, and the run's ratings had users in column {user} and items"
            f" in column {item}: say which columns have them here, {named('columns')}"
            f" user={user},item={item}, or write user,item above them"
        )
    if file.sample and not has_parts:
        refuse_unnamed(file.path, file.sample, rated=False)


def _refuse_other_parts(
    path: Path, positions: Mapping[str, int], parts: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise InputError if names do not have the parts of the run's names."""
    for role in NAMED_ROLES:
        found = len(of_parts(positions, role))
        expected = parts.get(role, (role,))
        if found != len(expected):
            raise InputError(
                f"{path}: the run's {role}s are named by {' and '.join(expected)}, and not by"
                f" {found} column(s): {named('columns')} {role}={'+'.join(expected)}"
            )


def chunks(
    db: Session, table: PairsTable, integers: Mapping[str, Sequence[bool]]
) -> Iterator[list[Array]]:
    """Yield names of users and items, `CHUNK` pairs at a time; those of several parts are tuples.

    `integers` says by role which parts of the run's names are integers; then spaces around a name,
    and zeros after its decimal point, do not count. Spaces around text do not count if all names
    have them. Raises InputError before the first chunk if a name is missing, or is not an integer
    although the run's names are integers. The error lists the first five bad pairs.
    """
    selected = {}
    faults = []
    for role in NAMED_ROLES:
        for k, (stored, integer) in enumerate(zip(table.stored(role), integers[role], strict=True)):
            faults.append(
                f"coalesce(trim({stored}), '') = '' OR coalesce({is_rounded(stored)}, false)"
            )
            name = stored
            if integer:
                name = f"regexp_replace(trim({stored}), '[.]0+$', '')"
                faults.append(f"NOT {is_integer(name)}")
            elif holds(db, f"trim({stored}) != {stored}", "pairs"):
                name = f"trim({stored})"
            sql_type = "BIGINT" if integer else "VARCHAR"
            selected[part_role(role, k)] = f"({name})::{sql_type}"
    _refuse_names(db, table, " OR ".join(faults), integers)
    columns = ", ".join(f"{sql} AS {identifier(role)}" for role, sql in selected.items())
    query = f"SELECT {columns} FROM pairs WHERE rowid"
    n_pairs = int(scalar(db, "SELECT count(*) FROM pairs"))
    for start in range(0, n_pairs, CHUNK):
        arrays = db.execute(
            f"{query} BETWEEN {start} AND {start + CHUNK - 1} ORDER BY rowid"
        ).fetchnumpy()
        names = {role: np.ma.getdata(array) for role, array in arrays.items()}
        yield [names_of(names, role) for role in NAMED_ROLES]


def _refuse_names(
    db: Session, table: PairsTable, is_wrong: str, integers: Mapping[str, Sequence[bool]]
) -> None:
    """Raise InputError, with the first pairs, if pairs meet the condition `is_wrong`."""
    n_wrong = scalar(db, f"SELECT count(*) FROM pairs WHERE {is_wrong}")
    if not n_wrong:
        return
    by_role = {role: f"concat_ws(', ', {', '.join(table.stored(role))})" for role in NAMED_ROLES}
    rows = db.execute(
        f"SELECT rowid, {by_role['user']}, {by_role['item']} FROM pairs WHERE {is_wrong}"
        f" ORDER BY rowid LIMIT {SHOWN}"
    ).fetchall()
    message = f"{table.file.path}: {n_wrong} pairs lack an exact name"
    with_integers = [role for role in NAMED_ROLES if any(integers[role])]
    if with_integers:
        roles = " and ".join(with_integers)
        message += f", or a name that is not an integer like the {roles} names in the run"
    for row, user_name, item_name in rows:
        message += f"\n  {table.file.where(row)}: user {user_name}, item {item_name}"
    raise InputError(message + table.hint)
