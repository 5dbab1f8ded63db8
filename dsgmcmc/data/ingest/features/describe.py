"""Read files that describe users or items, and refuse them if they are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from dsgmcmc.data.ingest.features.kinds import parse_kinds
from dsgmcmc.data.ingest.features.matrix import Matrix, load_matrix
from dsgmcmc.data.ingest.features.table import Table, read_table
from dsgmcmc.data.ingest.load import scalar
from dsgmcmc.errors import InputError

_WHOLE = "coalesce(try_cast(id AS BIGINT)::VARCHAR = id, false)"


@dataclass(frozen=True)
class Description:
    """A file that describes users or items.

    Attributes
    ----------
    path : Path
        Text, Parquet, or a SciPy sparse matrix (.npz), whose row numbers are the names.
    id_column : str, optional
        Of a table, the column of names; of a matrix, a file with the names of its rows, one per line.
    kinds : dict of str to str
        Kinds of columns that are not to be detected.
    separator : str
        Separator of the values of a list.
    """

    path: Path
    id_column: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    separator: str = "|"


def describe(
    files: Mapping[str, Path | None], names: Mapping[str, str | None], kinds: str | None, separator: str
) -> dict[str, Description]:
    """Make descriptions from the values of options, by "user" and "item".

    Raises InputError if they contradict each other, or belong to a file that is not given.
    """
    descriptions = {
        entity: Description(path, names[entity], parse_kinds(kinds), separator)
        for entity, path in files.items()
        if path is not None
    }
    for entity, name in names.items():
        if name is not None and entity not in descriptions:
            raise InputError(f"--{entity}-id {name} has no meaning without --{entity}-features")
    if kinds and not descriptions:
        raise InputError("--feature-kinds has no meaning without --user-features or --item-features")
    if not separator:
        raise InputError("--separator is empty")
    return descriptions


def read_description(db: duckdb.DuckDBPyConnection, entity: str, given: Description) -> Table:
    """Read a file that describes users or items.

    Raises InputError if the file is wrong, or describes someone twice and differently.
    """
    path = given.path
    if not path.is_file():
        raise InputError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    if path.suffix == ".npz":
        table: Table = load_matrix(db, path, entity, given.id_column)
    else:
        table = read_table(db, path, entity, given.id_column, given.separator)
    _drop_duplicates(db, table)
    return table


def load_description(db: duckdb.DuckDBPyConnection, entity: str, given: Description) -> Table:
    """Read a file, and check its names against those of the ratings, which are in ``raw``.

    Raises InputError if the file is wrong, describes someone twice and differently, or nobody who has ratings.
    """
    table, path = read_description(db, entity, given), given.path
    rated = f"(SELECT DISTINCT {entity}_id AS id FROM raw)"
    if not scalar(db, f"SELECT count(*) FROM {table.name} JOIN {rated} USING (id)"):
        theirs, ours = (
            ", ".join(str(name) for (name,) in db.execute(f"SELECT id FROM {source} ORDER BY id LIMIT 3").fetchall())
            for source in (table.name, rated)
        )
        raise InputError(
            f"{path} describes no {entity} of the ratings: its names are such as {theirs}, those of the ratings "
            f"{ours}. Is --{entity}-id the right column?"
        )
    if scalar(db, f"SELECT bool_and({_WHOLE}) FROM {rated}"):
        refuse_text(db, table, "ratings")
    return table


def refuse_text(db: duckdb.DuckDBPyConnection, table: Table, whose: str) -> None:
    """Refuse names that are not integers if those of the ratings, or of the run, are."""
    strange = db.execute(f"SELECT id FROM {table.name} WHERE NOT {_WHOLE} LIMIT 5").fetchall()
    if strange:
        shown = ", ".join(repr(name) for (name,) in strange)
        raise InputError(f"{table.path}: the {table.entity}s of the {whose} are integers, and {shown} is not")


def check_kinds(tables: Mapping[str, Table], described: Mapping[str, Description]) -> None:
    """Refuse kinds of columns that no table has; a column need not be in both."""
    columns = [name for table in tables.values() for name in table.columns]
    for name in (name for given in described.values() for name in given.kinds):
        if name not in columns:
            raise InputError(f"--feature-kinds names {name!r}, and the columns are {', '.join(columns) or 'none'}")


def _drop_duplicates(db: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Keep one of rows that are the same; refuse two that differ."""
    columns = ", ".join(table.columns.values()) or "id"
    groups = (
        f"SELECT id, count(*) AS times, count(DISTINCT row({columns})) AS different FROM {table.name} "
        "GROUP BY id HAVING count(*) > 1"
    )
    twice, differ = db.execute(f"SELECT count(*), count(*) FILTER (different > 1) FROM ({groups})").fetchall()[0]
    if not twice:
        return
    if differ or isinstance(table, Matrix):
        rows = db.execute(f"SELECT id FROM ({groups}) ORDER BY different DESC, id LIMIT 5").fetchall()
        shown = ", ".join(str(name) for (name,) in rows)
        raise InputError(f"{table.path} describes {differ or twice} {table.entity}(s) more than once: {shown}")
    db.execute(f"DELETE FROM {table.name} WHERE rowid NOT IN (SELECT min(rowid) FROM {table.name} GROUP BY id)")
    table.notes.append(f"{twice} {table.entity}(s) are in {table.path.name} more than once, with the same features")
