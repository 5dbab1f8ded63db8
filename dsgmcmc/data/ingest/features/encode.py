"""From tables that describe users or items to features: one-hot, multi-hot and standardised columns, in CSR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.ingest.features.kinds import Column, find_kinds, parse_kinds, select_atoms
from dsgmcmc.data.ingest.features.matrix import Matrix, load_matrix, matrix_entries
from dsgmcmc.data.ingest.features.table import Entries, Table, read_table
from dsgmcmc.data.ingest.load import scalar
from dsgmcmc.data.ratings.features import MAX_FEATURES, Features
from dsgmcmc.errors import InputError

FAR = 10.0  # sds from the mean at which a number looks like a typing error


@dataclass(frozen=True)
class Description:
    """A file that describes users or items.

    Attributes
    ----------
    path : Path
        Text, Parquet, or a SciPy sparse matrix (.npz), whose row numbers are the names.
    id_column : str, optional
        Of a table the column of names, of a matrix a file with the names of its rows, one a line.
    kinds : dict of str to str
        What columns are, where it is to be said.
    separator : str
        Between the values of a list.
    """

    path: Path
    id_column: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    separator: str = "|"


def describe(
    files: Mapping[str, Path | None], names: Mapping[str, str | None], kinds: str | None, separator: str
) -> dict[str, Description]:
    """Descriptions from the values of options, by "user" and "item".

    Raises
    ------
    InputError
        If they make no sense, or are about a file that is not given.
    """
    found = {
        entity: Description(path, names[entity], parse_kinds(kinds), separator)
        for entity, path in files.items()
        if path is not None
    }
    for entity, name in names.items():
        if name is not None and entity not in found:
            raise InputError(f"--{entity}-id {name} has no meaning without --{entity}-features")
    if kinds and not found:
        raise InputError("--feature-kinds has no meaning without --user-features or --item-features")
    if not separator:
        raise InputError("--separator is empty")
    return found


@dataclass(frozen=True)
class Encoded:
    """The features of one side.

    Attributes
    ----------
    features : Features
    unknown, unrated : int
        Users (or items) without features, and with features but without ratings.
    notes : list of str
        What was left out or looks wrong.
    """

    features: Features
    unknown: int
    unrated: int
    notes: list[str]

    def summary(self) -> dict[str, Any]:
        """What there is to say of them, by name; of ``groups`` the number of features in each."""
        groups = {group: self.features.groups.count(group) for group in dict.fromkeys(self.features.groups)}
        return {"groups": groups, "unknown": self.unknown, "unrated": self.unrated, "notes": self.notes}


def load_description(db: duckdb.DuckDBPyConnection, entity: str, given: Description) -> Table:
    """Read a file, and check its names against those of the ratings, which are in ``raw``.

    Returns
    -------
    Table
        Whose names are users or items of the matrix, with ratings or without.

    Raises
    ------
    InputError
        If the file is wrong, describes someone twice and differently, or nobody who has ratings.
    """
    path = given.path
    if not path.is_file():
        raise InputError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    if path.suffix == ".npz":
        table: Table = load_matrix(db, path, entity, given.id_column)
    else:
        table = read_table(db, path, entity, given.id_column, given.separator)
    _drop_duplicates(db, table)
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
    whole = "coalesce(try_cast(id AS BIGINT)::VARCHAR = id, false)"
    if scalar(db, f"SELECT bool_and({whole}) FROM {rated}"):
        strange = db.execute(f"SELECT id FROM {table.name} WHERE NOT {whole} LIMIT 5").fetchall()
        if strange:
            shown = ", ".join(repr(name) for (name,) in strange)
            raise InputError(f"{path}: the {entity}s of the ratings are integers, and {shown} is not")
    return table


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
    table.notes.append(f"{twice} {table.entity}(s) stand in {table.path.name} more than once, with the same features")


def encode(db: duckdb.DuckDBPyConnection, table: Table, given: Description, n: int) -> Encoded:
    """Make features of a table.

    Parameters
    ----------
    db : DuckDB connection
        With the table ``{entity}s`` (id, k), and ``raw``.
    table : Table
        From `load_description`.
    given : Description
    n : int
        Number of users or items.

    Raises
    ------
    InputError
        If a column is wrong, or none can be used.
    """
    entity, name = table.entity, table.path.name
    notes, groups = list(table.notes), []
    rows, which, values, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)], list[str]()
    for group, found, note in _parts(db, table, given):
        if note:
            notes.append(f"{name}: {group}{note}")
        if found is None:
            continue
        k, feature, value, own = found
        rows, which, values = [*rows, k], [*which, feature + len(names)], [*values, value]
        names += own
        groups += [group.partition("=")[0]] * len(own)
    if not 0 < len(names) <= MAX_FEATURES:
        what = "no column that can be used" if not names else f"{len(names)} features, more than {MAX_FEATURES}"
        raise InputError(f"{table.path} has {what}" + "".join(f"\n  {note}" for note in notes))
    twice = {each for each in names if names.count(each) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise InputError(f"{table.path}: two features are called {', '.join(sorted(twice)[:5])}; rename a column")
    row, column, x = np.concatenate(rows), np.concatenate(which), np.concatenate(values)
    order = np.lexsort((column, row))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=n))).astype(np.int64)
    features = Features(
        indptr, column[order].astype(np.int32), x[order].astype(np.float32), tuple(names), tuple(groups)
    )
    unrated = scalar(db, f"SELECT count(*) FROM {table.name} ANTI JOIN raw ON raw.{entity}_id = {table.name}.id")
    return Encoded(features, int((np.diff(indptr) == 0).sum()), int(unrated), notes)


def _parts(db: duckdb.DuckDBPyConnection, table: Table, given: Description) -> Any:
    """Yield the name of every group, its entries or None, and what there is to say."""
    if isinstance(table, Matrix):
        yield "features", matrix_entries(db, table), ""
        return
    for column in find_kinds(db, table, given.kinds, given.separator):
        if column.kind == "skip":
            yield column.name, None, f" is left out: {column.note}" if column.note else ""
        elif column.kind in ("number", "flag"):
            yield column.name, *_number(db, table, column)
        else:
            yield column.name, *_categories(db, table, column, given.separator)


def _number(db: duckdb.DuckDBPyConnection, table: Table, column: Column) -> tuple[Entries, str]:
    found = db.execute(
        f"SELECT k, {column.sql}::DOUBLE AS x FROM {table.name} JOIN {table.entity}s USING (id) "
        f"WHERE {column.sql} IS NOT NULL ORDER BY k"
    ).fetchnumpy()
    k, x, note = found["k"], found["x"].astype(np.float64), ""
    if column.kind == "number":
        with np.errstate(over="ignore", invalid="ignore"):
            x = (x - x.mean()) / x.std()
        if not np.isfinite(x).all():
            raise InputError(f"{table.path}: the numbers in {column.name} are too large or too close to each other")
        if np.abs(x).max() > FAR:
            note = f" has a value {np.abs(x).max():.0f} sds from its mean: a typing error?"
    return (k, np.zeros(len(k), np.int64), x, [column.name]), note


def _categories(
    db: duckdb.DuckDBPyConnection, table: Table, column: Column, separator: str
) -> tuple[Entries | None, str]:
    """One feature for every category, but for those that all have."""
    db.execute(f"CREATE OR REPLACE TEMP TABLE held AS {select_atoms(table, column, separator)}")
    described = scalar(db, f"SELECT count(*) FROM {table.name}")
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE numbered AS SELECT atom, row_number() OVER (ORDER BY atom) - 1 AS feature "
        f"FROM held GROUP BY atom HAVING count(*) < {described}"
    )
    names = [f"{column.name}={atom}" for (atom,) in db.execute("SELECT atom FROM numbered ORDER BY atom").fetchall()]
    if not names:
        return None, " is left out: it is the same everywhere"
    found = db.execute(
        f"SELECT k, feature FROM held JOIN numbered USING (atom) JOIN {table.entity}s USING (id)"
    ).fetchnumpy()
    return (found["k"], found["feature"], np.ones(len(found["k"])), names), ""
