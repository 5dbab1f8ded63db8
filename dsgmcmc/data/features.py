"""Turns files that describe users or items into features: one-hot, multi-hot and standardised columns, in CSR.

`load_description` reads a file into a DuckDB table, whose columns have kinds, guessed or given. `learn` finds the
encoding of the columns. `apply` computes features from it: for `prepare` from the same table, for the folding in of new
users or items from another table. A sparse matrix is used unchanged, as one group of features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.columns import NAMES, find_column, plain
from dsgmcmc.data.encoding import KINDS, Code, Encoding
from dsgmcmc.data.ratings.format import MAX_FEATURES, Features
from dsgmcmc.data.session import literal, memory_of
from dsgmcmc.data.tables import TableFile, open_table, read_matrix, scalar
from dsgmcmc.data.titles import read_names
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array, Float64, Int64

MAX_CATEGORIES = 1000
FAR = 10.0  # standard deviations from the mean beyond which a number looks like a typing error
_MISSING = ("", "na", "n/a", "nan", "null", "\\n", "(no genres listed)")
_YEAR_AT_END = r"(1[5-9][0-9][0-9]|20[0-9][0-9])\)?$"
_WHOLE = "coalesce(try_cast(id AS BIGINT)::VARCHAR = id, false)"
_GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
#: Column names and kinds of the MovieLens files without headers [Harper & Konstan 2015].
_MOVIELENS: dict[str, dict[str, str]] = {
    # ages in users.dat are codes of age ranges
    "users.dat": {"user": "id", "gender": "category", "age": "category", "occupation": "category", "zip": "skip"},
    "movies.dat": {"item": "id", "year": "year", "genres": "list"},
    "u.user": {"user": "id", "age": "number", "gender": "category", "occupation": "category", "zip": "skip"},
    "u.item": {"item": "id", "year": "year", "released": "skip", "video": "skip", "url": "skip"}
    | {f"genres={genre}": "flag" for genre in _GENRES},
}


@dataclass(frozen=True)
class Description:
    """A file that describes users or items.

    Attributes
    ----------
    path : Path
        Text, Parquet, or a SciPy sparse matrix (.npz), whose row numbers are the names.
    id_column : str, optional
        For a table, the column of names; for a matrix, a file with the names of its rows, one per line.
    kinds : dict of str to str
        Kinds by column; the kinds of all other columns are guessed.
    separator : str
        Separator of the values in a list.
    """

    path: Path
    id_column: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    separator: str = "|"


@dataclass(frozen=True)
class Described:
    """A DuckDB table with ``id`` and the columns of a description as text; missing values are NULL.

    Attributes
    ----------
    path : Path
    entity : {"user", "item"}
        Whether a row describes a user or an item.
    columns : dict of str to str
        Maps column names in the file to column names in the table.
    kinds : dict of str to str
        Kinds of the columns of known MovieLens files, by the name in the file.
    table : TableFile or None
        The file; None for a matrix.
    matrix : scipy.sparse.csr_matrix or None
        The matrix, if the file is one. The DuckDB table then has ``id`` and the row number ``r`` in the matrix.
    """

    path: Path
    entity: str
    columns: dict[str, str]
    kinds: dict[str, str] = field(default_factory=dict)
    table: TableFile | None = None
    matrix: Any = None

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"described_{self.entity}s"

    def where(self, rows: list[int]) -> str:
        """Return the positions of rows in the file, for messages."""
        return ", ".join(self.table.where(row) if self.table else f"row {row + 1}" for row in rows)


@dataclass(frozen=True)
class Encoded:
    """The features of one side.

    Attributes
    ----------
    features : Features
    unknown, unrated : int
        Users (or items) without features, and with features but without ratings.
    notes : list of str
        Notes for users on columns left out and on suspicious values.
    """

    features: Features
    unknown: int
    unrated: int
    notes: list[str]

    def summary(self) -> dict[str, Any]:
        """Return numbers for `Summary.features`; ``groups`` has the number of features in each group."""
        groups = {group: self.features.groups.count(group) for group in dict.fromkeys(self.features.groups)}
        return {"groups": groups, "unknown": self.unknown, "unrated": self.unrated, "notes": self.notes}


def describe(
    files: Mapping[str, Path | None], names: Mapping[str, str | None], kinds: str | None, separator: str
) -> dict[str, Description]:
    """Make descriptions by "user" and "item" from command-line options.

    Raises InputError if options are invalid, or concern a file that is not given.
    """
    descriptions = {
        entity: Description(path, names[entity], _parse_kinds(kinds), separator)
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


def _parse_kinds(text: str | None) -> dict[str, str]:
    """Parse ``COLUMN=KIND,...``; the kind follows the last equals sign."""
    kinds = {}
    for part in text.split(",") if text else []:
        name, _, kind = part.strip().rpartition("=")
        if not name or kind not in KINDS:
            raise InputError(f"--feature-kinds {text}: expected COLUMN=KIND,... with KIND one of {', '.join(KINDS)}")
        kinds[name] = kind
    return kinds


# ------------------------------------------------------------------------------------------------ reading


def read_description(db: duckdb.DuckDBPyConnection, entity: str, given: Description) -> Described:
    """Read a file that describes users or items.

    Raises InputError if the file is invalid, or has two different rows for one name.
    """
    if given.path.suffix == ".npz":
        described = _read_matrix(db, given.path, entity, given.id_column)
    else:
        described = _read_table(db, given.path, entity, given.id_column, given.separator)
    _drop_duplicates(db, described)
    return described


def load_description(db: duckdb.DuckDBPyConnection, entity: str, given: Description) -> Described:
    """Read a file that describes users or items, and compare its names with the names in ``raw``.

    Raises InputError as `read_description`, and if none of the names has ratings.
    """
    described = read_description(db, entity, given)
    rated = f"(SELECT DISTINCT {entity}_id AS id FROM raw)"
    if not scalar(db, f"SELECT count(*) FROM {described.name} JOIN {rated} USING (id)"):
        theirs, ours = (
            ", ".join(str(name) for (name,) in db.execute(f"SELECT id FROM {source} ORDER BY id LIMIT 3").fetchall())
            for source in (described.name, rated)
        )
        raise InputError(
            f"{given.path} describes no {entity} of the ratings: its names are such as {theirs}, those of the ratings "
            f"{ours}. Is --{entity}-id the right column?"
        )
    if scalar(db, f"SELECT bool_and({_WHOLE}) FROM {rated}"):
        _refuse_text(db, described, "ratings")
    return described


def check_kinds(tables: Mapping[str, Described], descriptions: Mapping[str, Description]) -> None:
    """Raise InputError if a kind is given for a column that is in no table."""
    columns = [name for table in tables.values() for name in table.columns]
    for given in descriptions.values():
        for name in given.kinds:
            if name not in columns:
                raise InputError(f"--feature-kinds names {name!r}, and the columns are {', '.join(columns) or 'none'}")


def _read_table(
    db: duckdb.DuckDBPyConnection, path: Path, entity: str, id_column: str | None, separator: str
) -> Described:
    """Read a table with a header, or a MovieLens file without one.

    Names are taken from `id_column`; by default from a column with a usual name, or else from the first column. Lists
    in Parquet files are joined by the separator.
    """
    known = _MOVIELENS.get(path.name.removesuffix(".gz"), {})
    table = open_table(
        db, path, lambda fields: len(fields) != len(known) or plain(fields[0]) in NAMES[entity], latin1=True
    )
    names = table.names if table.header else list(known)
    if any(re.fullmatch(r"[+-]?[0-9.]+", name) for name in names):
        raise InputError(f"{path} has no header: its first line must name the columns, and has {', '.join(names)[:60]}")
    position = _id_position(path, names, entity, id_column)
    others = [k for k in range(len(names)) if k != position]
    kinds = {} if table.header else {name: kind for name, kind in known.items() if kind != "id"}
    described = Described(path, entity, {names[k]: f"c{k}" for k in others}, kinds, table)

    def text(k: int) -> str:
        name = table.column(k)
        if table.types[k].endswith("[]") and table.kind == "parquet":
            return f"array_to_string({name}, {literal(separator)})"
        if k == position and table.types[k] in ("DOUBLE", "FLOAT"):  # as pandas writes integers if one is missing
            return f"CASE WHEN {name} = floor({name}) THEN {name}::BIGINT::VARCHAR ELSE {name}::VARCHAR END"
        return f"{name}::VARCHAR"

    cleaned = [f"CASE WHEN NOT {_is_missing(text(k))} THEN trim({text(k)}) END AS c{k}" for k in others]
    columns = ", ".join([f"nullif(trim({text(position)}), '') AS id", *cleaned])
    table.create(db, f"CREATE TABLE {described.name} AS SELECT {columns} FROM {{table}}")
    if not scalar(db, f"SELECT count(*) FROM {described.name}"):
        raise InputError(f"{path} has no rows")
    nameless = db.execute(f"SELECT rowid FROM {described.name} WHERE id IS NULL LIMIT 5").fetchall()
    if nameless:
        raise InputError(f"{path}: the {entity} is missing in {described.where([row for (row,) in nameless])}")
    return described


def _is_missing(text: str) -> str:
    """Return SQL that is true for text that stands for a missing value.

    The SQL avoids ``IN``, which DuckDB turns into a join: some hundred columns would take minutes and gigabytes.
    """
    return f"regexp_full_match(trim({text}), {literal('|'.join(map(re.escape, _MISSING)))}, 'i')"


def _id_position(path: Path, names: list[str], entity: str, wanted: str | None) -> int:
    """Return the position of the column with the names of users or items."""
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"{path}: two columns have the same name ({', '.join(names)})")
    if len(names) < 2:
        raise InputError(f"{path} has one column: expected an id and its features")
    if wanted is None:
        return find_column(names, entity) or 0
    if wanted not in names:
        raise InputError(f"{path} has columns {', '.join(names)}, and no {wanted!r} that --{entity}-id names")
    return names.index(wanted)


def _read_matrix(db: duckdb.DuckDBPyConnection, path: Path, entity: str, names_file: str | None) -> Described:
    """Read a matrix. Rows are named by the lines of a file or by their numbers."""
    import scipy.sparse  # slow to import

    entries = read_matrix(path, memory_of(db))
    if not np.isfinite(entries.data).all():
        raise InputError(f"{path} has values that are not finite")
    n, width = entries.shape
    if width > MAX_FEATURES:
        raise InputError(f"{path} has {width} features, more than {MAX_FEATURES}")
    if names_file is None:
        present, rows = np.unique(entries.row, return_inverse=True)  # rows without entries have no features
        names = [str(row) for row in present]
    else:
        rows, names = entries.row, read_names(Path(names_file))
        if len(names) != n:
            raise InputError(f"{names_file} has {len(names)} names for the {n} rows of {path}")
    values = entries.data.astype(np.float64)
    matrix = scipy.sparse.csr_matrix((values, (rows, entries.col)), shape=(len(names), width))  # sums duplicates
    described = Described(path, entity, {}, matrix=matrix)
    db.register("matrix_rows", {"id": np.array(names, dtype=object), "r": np.arange(len(names))})
    db.execute(f"CREATE TABLE {described.name} AS SELECT trim(id) AS id, r FROM matrix_rows")
    db.unregister("matrix_rows")
    return described


def _drop_duplicates(db: duckdb.DuckDBPyConnection, described: Described) -> None:
    """Keep one of equal rows with the same name; raise InputError if rows with the same name differ."""
    columns = ", ".join(described.columns.values()) or "r"
    differ = db.execute(
        f"SELECT id FROM {described.name} GROUP BY id HAVING count(DISTINCT row({columns})) > 1 ORDER BY id"
    ).fetchall()
    if differ:
        shown = ", ".join(str(name) for (name,) in differ[:5])
        raise InputError(f"{described.path} describes {len(differ)} {described.entity}(s) more than once: {shown}")
    db.execute(f"DELETE FROM {described.name} WHERE rowid NOT IN (SELECT min(rowid) FROM {described.name} GROUP BY id)")


def _refuse_text(db: duckdb.DuckDBPyConnection, described: Described, whose: str) -> None:
    """Raise InputError for names that are not integers; called if the names in `whose`, ratings or run, are."""
    strange = db.execute(f"SELECT id FROM {described.name} WHERE NOT {_WHOLE} LIMIT 5").fetchall()
    if strange:
        shown = ", ".join(repr(name) for (name,) in strange)
        raise InputError(f"{described.path}: the {described.entity}s of the {whose} are integers, and {shown} is not")


# ------------------------------------------------------------------------------------------------ kinds


def _find_kind(db: duckdb.DuckDBPyConnection, described: Described, name: str, given: Description) -> tuple[str, str]:
    """Return the kind of a column, given or guessed; if it has fewer than two values, "skip" and the reason.

    Raises InputError if values do not fit the kind, such as text in a column of mostly numbers.
    """
    kind = given.kinds.get(name) or described.kinds.get(name)
    if kind == "skip":
        return kind, ""
    c = described.columns[name]
    filled, distinct, numbers, codes, lists, years = db.execute(
        f"SELECT count({c}), count(DISTINCT {c}), count(*) FILTER ({_is_number(c)}), "
        f"count(*) FILTER (regexp_matches({c}, '^0[0-9]')), "
        f"count(*) FILTER (contains({c}, {literal(given.separator)})), "
        f"count(*) FILTER (regexp_matches({c}, '{_YEAR_AT_END}')) FROM {described.name}"
    ).fetchall()[0]
    if distinct < 2:
        return "skip", "it is empty" if filled == 0 else "all its values are the same"
    if kind is None:
        if numbers > filled / 2 and not codes:
            kind = "number"
        elif years > filled / 2:
            kind = "year"
        else:
            kind = "list" if lists else "category"
    _check_values(
        db, described, name, kind, f"or say what the column is with --feature-kinds {name}=category (or skip)"
    )
    return kind, ""


def _is_number(sql: str) -> str:
    return f"(try_cast({sql} AS DOUBLE) IS NOT NULL AND isfinite(try_cast({sql} AS DOUBLE)))"


def _check_values(db: duckdb.DuckDBPyConnection, described: Described, name: str, kind: str, advice: str) -> None:
    """Raise InputError if a column of numbers or flags has other values; `advice` ends the message."""
    c = described.columns[name]
    wrong = {"number": f"NOT {_is_number(c)}", "flag": f"{c} NOT IN ('0', '1')"}.get(kind)
    if wrong is None:
        return
    rows = db.execute(f"SELECT rowid, {c} FROM {described.name} WHERE {c} IS NOT NULL AND {wrong} LIMIT 5").fetchall()
    if rows:
        where, texts = described.where([row for row, _ in rows]), ", ".join(repr(text) for _, text in rows)
        raise InputError(f"{described.path}, {where}: the {kind} {name} is {texts}; correct it, {advice}")


def _select_atoms(described: Described, name: str, kind: str, separator: str) -> str:
    """Return SQL for the distinct pairs (id, atom) of a user or item and its categories."""
    text = column = described.columns[name]
    if kind == "list":
        text = f"unnest(string_split({text}, {literal(separator)}))"
    elif kind == "year":
        year = f"nullif(regexp_extract({text}, '{_YEAR_AT_END}', 1), '')::INTEGER"
        text = f"({year} // 10 * 10)::VARCHAR || 's'"
    inner = f"SELECT id, {text} AS atom FROM {described.name} WHERE {column} IS NOT NULL"
    return f"SELECT DISTINCT id, trim(atom) AS atom FROM ({inner}) WHERE NOT {_is_missing('atom')}"


# ------------------------------------------------------------------------------------------------ encoding


def encode(db: duckdb.DuckDBPyConnection, described: Described, given: Description, n: int) -> Encoded:
    """Make features from a table of `load_description`, for a matrix of n users or items.

    `db` has the tables ``{entity}s`` (id, k) and ``raw``. Raises InputError if a column is invalid, or none is usable.
    """
    encoding, left_out = learn(db, described, given)
    number = len(encoding.names)
    if not 0 < number <= MAX_FEATURES:
        reason = f"{number} features, more than {MAX_FEATURES}" if number else "no column that can be used"
        raise InputError("\n  ".join([f"{described.path} has {reason}", *left_out]))
    features, doubts = apply(db, described, encoding, n)
    unrated = scalar(db, f"SELECT count(*) FROM {described.name} d ANTI JOIN raw ON raw.{described.entity}_id = d.id")
    unknown = int((np.diff(features.indptr) == 0).sum())
    return Encoded(features, unknown, int(unrated), [*left_out, *doubts])


def encode_new(
    entity: str, given: Description, encoding: Encoding, integers: bool
) -> tuple[Array, Features, list[str]]:
    """Make features from a file by an encoding learnt from another file; return names, features and notes.

    Kinds and separator in `given` are ignored; `integers` says whether names must be integers. Raises InputError if
    the file is invalid or lacks columns of the encoding.
    """
    with duckdb.connect() as db:
        described = read_description(db, entity, replace(given, separator=encoding.separator))
        _check_columns(described, encoding)
        if integers:
            _refuse_text(db, described, "run")
        for code in encoding.columns:
            if code.features:
                _check_values(db, described, code.name, code.kind, "or leave the cell empty")
        db.execute(
            f"CREATE TABLE {entity}s AS SELECT id, row_number() OVER (ORDER BY id) - 1 AS k FROM {described.name}"
        )
        names = np.array([name for (name,) in db.execute(f"SELECT id FROM {entity}s ORDER BY k").fetchall()], object)
        features, doubts = apply(db, described, encoding, len(names))
    return names, features, doubts


def _check_columns(described: Described, encoding: Encoding) -> None:
    """Raise InputError if a table lacks columns of the encoding, or a matrix has another width."""
    used = [code.name for code in encoding.columns if code.features]
    width = 0 if described.matrix is None else described.matrix.shape[1]
    missing = [name for name in used if name not in described.columns]
    if width == encoding.width and not missing:
        return
    has = f"is a matrix of {width} columns" if width else f"has the columns {', '.join(described.columns)}"
    needed = f"a matrix of {encoding.width} columns" if encoding.width else f"the columns {', '.join(used)}"
    raise InputError(
        f"{described.path} {has}, and the features of the run's {described.entity}s were made from {needed}. Is the "
        f"column of names called {described.entity}, or named by --{described.entity}-id?"
    )


def learn(db: duckdb.DuckDBPyConnection, described: Described, given: Description) -> tuple[Encoding, list[str]]:
    """Return the encoding of a table's columns, and notes on columns left out.

    Raises InputError if a column is invalid.
    """
    if described.matrix is not None:
        return Encoding(width=described.matrix.shape[1]), []
    codes, notes = [], []
    for name in described.columns:
        kind, note = _find_kind(db, described, name, given)
        code = Code(name, kind)
        if kind == "number":
            x = _numbers(db, described, name)[1]
            with np.errstate(over="ignore", invalid="ignore"):
                code = code._replace(mean=float(x.mean()), sd=float(x.std()))
            if not np.isfinite([code.mean, code.sd]).all() or code.sd == 0:
                raise _too_large(described, name)
        elif kind not in ("flag", "skip"):
            code, note = _learn_categories(db, described, code, given)
        if note:
            notes.append(f"{described.path.name}: {name} is left out: {note}")
        codes.append(code)
    return Encoding(tuple(codes), given.separator), notes


def _learn_categories(
    db: duckdb.DuckDBPyConnection, described: Described, code: Code, given: Description
) -> tuple[Code, str]:
    """Encode one feature per category; leave out a column with too many categories, such as names, with a note."""
    held = f"SELECT DISTINCT atom FROM ({_select_atoms(described, code.name, code.kind, given.separator)})"
    atoms = tuple(atom for (atom,) in db.execute(f"{held} ORDER BY atom LIMIT {MAX_CATEGORIES + 1}").fetchall())
    filled = scalar(db, f"SELECT count({described.columns[code.name]}) FROM {described.name}")
    note = ""
    if not atoms:
        note = f"it holds no {code.kind}"
    elif len(atoms) > MAX_CATEGORIES:
        note = f"it has more than {MAX_CATEGORIES:,} different values"
    elif code.name not in given.kinds and len(atoms) > max(20, filled / 2):
        note = (
            f"{len(atoms):,} different values in {filled:,} rows are no category; "
            f"say --feature-kinds {code.name}={code.kind} if it is one"
        )
    return (code._replace(kind="skip"), note) if note else (code._replace(atoms=atoms), "")


def _too_large(described: Described, name: str) -> InputError:
    return InputError(f"{described.path}: the numbers in {name} are too large or too close to each other")


def apply(
    db: duckdb.DuckDBPyConnection, described: Described, encoding: Encoding, n: int
) -> tuple[Features, list[str]]:
    """Make features from a table by an encoding; the table must have all columns that the encoding uses.

    `db` has the table ``{entity}s`` (id, k) of n users or items. Returns features, with row k for the user or item of
    number k, and notes on suspicious values. Raises InputError if numbers are too large.
    """
    first, notes = 0, []
    entries = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    if described.matrix is not None:
        entries.append(_matrix_entries(db, described))
    for code in encoding.columns:
        if not code.features:
            continue
        note = ""
        if code.kind in ("number", "flag"):
            k, x = _numbers(db, described, code.name)
            with np.errstate(over="ignore", invalid="ignore"):
                x = (x - code.mean) / code.sd
            if not (np.abs(x) <= np.finfo(np.float32).max).all():
                raise _too_large(described, code.name)
            if code.kind == "number" and len(x) and np.abs(x).max() > FAR:
                note = f" has a value {np.abs(x).max():.0f} sds from its mean: a typing error?"
            feature = np.zeros(len(k), np.int64)
        else:
            k, feature, note = _categories(db, described, code, encoding.separator)
            x = np.ones(len(k))
        if note:
            notes.append(f"{described.path.name}: {code.name}{note}")
        entries.append((k, feature + first, x))
        first += len(code.features)
    row, which, value = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
    order = np.lexsort((which, row))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=n))).astype(np.int64)
    indices, values = which[order].astype(np.int32), value[order].astype(np.float32)
    names, groups = tuple(encoding.names), tuple(encoding.groups)
    return Features(indptr, indices, values, names, groups, encoding.dump()), notes


def _matrix_entries(db: duckdb.DuckDBPyConnection, described: Described) -> tuple[Int64, Int64, Float64]:
    """Rows, features and values of all entries of a matrix."""
    places = db.execute(f"SELECT r, k FROM {described.name} JOIN {described.entity}s USING (id)").fetchnumpy()
    cells = described.matrix[places["r"]].tocoo()
    return places["k"][cells.row].astype(np.int64), cells.col.astype(np.int64), cells.data


def _numbers(db: duckdb.DuckDBPyConnection, described: Described, name: str) -> tuple[Int64, Float64]:
    """Rows that have a number, and the numbers."""
    column = described.columns[name]
    cells = db.execute(
        f"SELECT k, {column}::DOUBLE AS x FROM {described.name} JOIN {described.entity}s USING (id) "
        f"WHERE {column} IS NOT NULL ORDER BY k"
    ).fetchnumpy()
    return cells["k"], cells["x"].astype(np.float64)


def _categories(
    db: duckdb.DuckDBPyConnection, described: Described, code: Code, separator: str
) -> tuple[Int64, Int64, str]:
    """Rows and features of the entries, and a note on categories that are not in the encoding."""
    db.register("learnt", {"atom": np.array(code.atoms, object), "feature": np.arange(len(code.atoms))})
    held = _select_atoms(described, code.name, code.kind, separator)
    db.execute(f"CREATE OR REPLACE TEMP TABLE held AS {held}")
    cells = db.execute(
        f"SELECT k, feature FROM held JOIN learnt USING (atom) JOIN {described.entity}s USING (id)"
    ).fetchnumpy()
    strange = db.execute("SELECT DISTINCT atom FROM held ANTI JOIN learnt USING (atom) ORDER BY atom").fetchall()
    db.unregister("learnt")
    if not strange:
        return cells["k"], cells["feature"], ""
    shown = ", ".join(repr(atom) for (atom,) in strange[:5]) + (", ..." if len(strange) > 5 else "")
    return cells["k"], cells["feature"], f" has values that the run does not know, which are ignored: {shown}"
