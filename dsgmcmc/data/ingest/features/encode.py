"""Encode tables that describe users or items as features: one-hot, multi-hot and standardised columns, in CSR.

`learn` determines the encoding of a table's columns, and `apply` makes the features: of the same table for `prepare`,
of other tables for a fold-in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.ingest.features.describe import Description, read_description, refuse_text
from dsgmcmc.data.ingest.features.encoding import Code, Encoding
from dsgmcmc.data.ingest.features.kinds import Column, check_values, find_kinds, select_atoms
from dsgmcmc.data.ingest.features.matrix import Matrix, matrix_entries
from dsgmcmc.data.ingest.features.table import Table
from dsgmcmc.data.ingest.load import scalar
from dsgmcmc.data.ratings.features import MAX_FEATURES, Features
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array, Float64, Int64

FAR = 10.0  # sds from the mean at which a number looks like a typing error


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
        """Summary of the features, by name; ``groups`` has the number of features in each."""
        groups = {group: self.features.groups.count(group) for group in dict.fromkeys(self.features.groups)}
        return {"groups": groups, "unknown": self.unknown, "unrated": self.unrated, "notes": self.notes}


def encode(db: duckdb.DuckDBPyConnection, table: Table, given: Description, n: int) -> Encoded:
    """Make features of a table of `load_description`, for a matrix of n users or items.

    `db` has the table ``{entity}s`` (id, k), and ``raw``. Raises InputError if a column is wrong, or none can be used.
    """
    encoding, left_out = learn(db, table, given)
    names = encoding.names
    if not 0 < len(names) <= MAX_FEATURES:
        what = "no column that can be used" if not names else f"{len(names)} features, more than {MAX_FEATURES}"
        raise InputError(f"{table.path} has {what}" + "".join(f"\n  {note}" for note in [*table.notes, *left_out]))
    twice = {each for each in names if names.count(each) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise InputError(f"{table.path}: two features are called {', '.join(sorted(twice)[:5])}; rename a column")
    features, doubts = apply(db, table, encoding, n)
    unrated = scalar(db, f"SELECT count(*) FROM {table.name} ANTI JOIN raw ON raw.{table.entity}_id = {table.name}.id")
    notes = [*table.notes, *left_out, *doubts]
    return Encoded(features, int((np.diff(features.indptr) == 0).sum()), int(unrated), notes)


def encode_new(
    entity: str, given: Description, encoding: Encoding, integers: bool
) -> tuple[Array, Features, list[str]]:
    """Make features of a file by an encoding that was learnt from another one: names, features, notes.

    Kinds and separator in `given` are ignored; `integers`: whether names must be integers. Raises InputError if the
    file is wrong, or has other columns.
    """
    with duckdb.connect() as db:
        table = read_description(db, entity, replace(given, separator=encoding.separator))
        _check_columns(table, encoding)
        if integers:
            refuse_text(db, table, "run")
        for code in encoding.columns:
            if code.features:
                column = Column(code.name, table.columns[code.name], code.kind)
                check_values(db, table, column, "or leave the cell empty")
        db.execute(f"CREATE TABLE {entity}s AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS k FROM {table.name}")
        names = np.array([name for (name,) in db.execute(f"SELECT id FROM {entity}s ORDER BY k").fetchall()], object)
        features, doubts = apply(db, table, encoding, len(names))
    return names, features, [*table.notes, *doubts]


def _check_columns(table: Table, encoding: Encoding) -> None:
    """Refuse a table that has not the columns that an encoding was learnt from."""
    used = ", ".join(code.name for code in encoding.columns if code.features)
    ours = f"of a matrix of {encoding.width} columns" if encoding.width else f"of {used}"
    if isinstance(table, Matrix) or encoding.width:
        width = table.matrix.shape[1] if isinstance(table, Matrix) else 0
        if width != encoding.width:
            what = f"is a matrix of {width} columns" if width else "is a table"
            raise InputError(f"{table.path} {what}, and the features of the run's {table.entity}s were made {ours}")
        return
    known = {code.name for code in encoding.columns}
    strange = [repr(name) for name in table.columns if name not in known]
    missing = [repr(code.name) for code in encoding.columns if code.features and code.name not in table.columns]
    if strange or missing:
        parts = [("has not the column", missing), ("has a strange column", strange)]
        faults = ", and ".join(f"{what}{'s' * (len(names) > 1)} {', '.join(names)}" for what, names in parts if names)
        raise InputError(
            f"{table.path} {faults}: the features of the run's {table.entity}s were made of {used}. Give these "
            f"columns and no others; is the column of names called {table.entity}, or named by --{table.entity}-id?"
        )


def learn(db: duckdb.DuckDBPyConnection, table: Table, given: Description) -> tuple[Encoding, list[str]]:
    """Find out what becomes of the columns of a table: their encoding, and notes on what is left out, and why.

    Raises InputError if a column is wrong.
    """
    if isinstance(table, Matrix):
        return Encoding(width=table.matrix.shape[1]), []
    codes, notes = [], []
    for column in find_kinds(db, table, given.kinds, given.separator):
        code, note = Code(column.name, column.kind), column.note
        if column.kind == "number":
            x = _numbers(db, table, column)[1]
            with np.errstate(over="ignore", invalid="ignore"):
                code = code._replace(mean=float(x.mean()), sd=float(x.std()))
            if not np.isfinite([code.mean, code.sd]).all() or code.sd == 0:
                raise _too_large(table, column)
        elif column.kind not in ("flag", "skip"):
            code = _learn_categories(db, table, column, given.separator)
            note = "" if code.atoms else "all its values are the same"
        if note:
            notes.append(f"{table.path.name}: {column.name} is left out: {note}")
        codes.append(code)
    return Encoding(tuple(codes), given.separator), notes


def _too_large(table: Table, column: Column) -> InputError:
    return InputError(f"{table.path}: the numbers in {column.name} are too large or too close to each other")


def _learn_categories(db: duckdb.DuckDBPyConnection, table: Table, column: Column, separator: str) -> Code:
    """One feature for every category, but for those that all have."""
    described = scalar(db, f"SELECT count(*) FROM {table.name}")
    atoms_of = select_atoms(table, column, separator)
    held = db.execute(f"SELECT atom, count(*) < {described} FROM ({atoms_of}) GROUP BY atom ORDER BY atom").fetchall()
    atoms, everywhere = (tuple(atom for atom, differs in held if differs == wanted) for wanted in (True, False))
    return Code(column.name, column.kind if atoms else "skip", atoms, everywhere)


def apply(db: duckdb.DuckDBPyConnection, table: Table, encoding: Encoding, n: int) -> tuple[Features, list[str]]:
    """Make features of a table, which has all columns that have some, by an encoding.

    `db` has the table ``{entity}s`` (id, k) of n users or items. Returns features, whose row k has those of the user or
    item of number k, and notes on what looks wrong. Raises InputError if numbers are too large.
    """
    first, notes = 0, []
    entries = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    if isinstance(table, Matrix):
        entries.append(matrix_entries(db, table))
    for code in encoding.columns:
        if not code.features:
            continue
        column, note = Column(code.name, table.columns[code.name], code.kind), ""
        if code.kind in ("number", "flag"):
            k, x = _numbers(db, table, column)
            with np.errstate(over="ignore", invalid="ignore"):
                feature, x = np.zeros(len(k), np.int64), (x - code.mean) / code.sd
            if not (np.abs(x) <= np.finfo(np.float32).max).all():
                raise _too_large(table, column)
            if code.kind == "number" and len(x) and np.abs(x).max() > FAR:
                note = f" has a value {np.abs(x).max():.0f} sds from its mean: a typing error?"
        else:
            k, feature, note = _categories(db, table, code, encoding.separator)
            x = np.ones(len(k))
        if note:
            notes.append(f"{table.path.name}: {code.name}{note}")
        entries.append((k, feature + first, x))
        first += len(code.features)
    row, which, value = (np.concatenate(each) for each in zip(*entries, strict=True))
    order = np.lexsort((which, row))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=n))).astype(np.int64)
    return Features(
        indptr,
        which[order].astype(np.int32),
        value[order].astype(np.float32),
        tuple(encoding.names),
        tuple(encoding.groups),
        encoding.dump(),
    ), notes


def _numbers(db: duckdb.DuckDBPyConnection, table: Table, column: Column) -> tuple[Int64, Float64]:
    cells = db.execute(
        f"SELECT k, {column.sql}::DOUBLE AS x FROM {table.name} JOIN {table.entity}s USING (id) "
        f"WHERE {column.sql} IS NOT NULL ORDER BY k"
    ).fetchnumpy()
    return cells["k"], cells["x"].astype(np.float64)


def _categories(db: duckdb.DuckDBPyConnection, table: Table, code: Code, separator: str) -> tuple[Int64, Int64, str]:
    """Rows and features of the entries, and a note on categories that were not learnt."""
    column = Column(code.name, table.columns[code.name], code.kind)
    db.register("learnt", {"atom": np.array(code.atoms, object), "feature": np.arange(len(code.atoms))})
    db.execute(f"CREATE OR REPLACE TEMP TABLE held AS {select_atoms(table, column, separator)}")
    cells = db.execute(
        f"SELECT k, feature FROM held JOIN learnt USING (atom) JOIN {table.entity}s USING (id)"
    ).fetchnumpy()
    atoms = [atom for (atom,) in db.execute("SELECT DISTINCT atom FROM held ORDER BY atom").fetchall()]
    db.unregister("learnt")
    strange, note = sorted(set(atoms) - {*code.atoms, *code.everywhere}), ""
    if strange:
        shown = ", ".join(map(repr, strange[:5])) + (", ..." if len(strange) > 5 else "")
        note = f" has values that the run does not know, which are ignored: {shown}"
    return cells["k"], cells["feature"], note
