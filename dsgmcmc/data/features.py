"""Turns tables that describe users or items into features: one-hot, multi-hot and standardised
columns, in CSR.

`load_description` reads a file or arrays into a DuckDB table. Every column has a kind, which users
give or which is guessed. `learn` finds the encoding of the columns by their kinds. `apply` encodes
a table as features: `prepare` applies the encoding to the same table, and folding in applies it to
a table of new users or items. A sparse matrix is used unchanged, as one group of features.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args

import duckdb
import numpy as np
import pydantic
from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError

from dsgmcmc.data.columns import NAMES, find_column, simplified
from dsgmcmc.data.precision import find_coarseness
from dsgmcmc.data.ratings_format import MAX_FEATURES, MAX_ID_BYTES, Features
from dsgmcmc.data.session import Session, as_number, is_integer, is_rounded, literal
from dsgmcmc.data.tables import (
    SHOWN,
    TableFile,
    first_column,
    open_table,
    read_matrix,
    scalar,
    trim_names,
)
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array, Float64, Int64

MAX_CATEGORIES = 1000  # of one column
#: Texts that stand for a missing value, in lower case.
_MISSING = ("", "na", "n/a", "nan", "null", "\\n", "(no genres listed)")
_YEAR_AT_END = r"(1[5-9][0-9][0-9]|20[0-9][0-9])\)?$"
_GENRES = (
    *(
        "unknown",
        "Action",
        "Adventure",
        "Animation",
        "Children's",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
    ),
    *(
        "Fantasy",
        "Film-Noir",
        "Horror",
        "Musical",
        "Mystery",
        "Romance",
        "Sci-Fi",
        "Thriller",
        "War",
        "Western",
    ),
)
#: Column names and kinds of the MovieLens files without headers [Harper & Konstan 2015].
_MOVIELENS: dict[str, dict[str, str]] = {
    # ages in users.dat are codes of age ranges
    "users.dat": {
        "user": "id",
        "gender": "category",
        "age": "category",
        "occupation": "category",
        "zip": "skip",
    },
    "movies.dat": {"item": "id", "year": "year", "genres": "list"},
    "u.user": {
        "user": "id",
        "age": "number",
        "gender": "category",
        "occupation": "category",
        "zip": "skip",
    },
    "u.item": (
        {"item": "id", "year": "year", "released": "skip", "video": "skip", "url": "skip"}
        | {f"genres={genre}": "flag" for genre in _GENRES}
    ),
}

#: number: standardised. category: one feature per value. list: values with separators between them,
#: one feature per value. year: a year, or a text that ends with a year, as in `Heat (1995)`; one
#: feature per decade. flag: 0 or 1, unchanged; `genres=Comedy` is a feature of the group genres.
#: skip: left out.
Kind = Literal["number", "category", "list", "year", "flag", "skip"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@pydantic.dataclasses.dataclass(frozen=True)
class Code:
    """Encoding of one column as features.

    Attributes
    ----------
    name : str
        Name of the column in its file.
    kind : Kind
    atoms : tuple of str
        Categories in the order of their features, one feature each.
    mean, sd : float
        Mean and standard deviation by which numbers are standardised.
    """

    name: str
    kind: Kind
    atoms: tuple[str, ...] = ()
    mean: FiniteFloat = 0.0
    sd: Annotated[FiniteFloat, Field(gt=0)] = 1.0

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        return (
            [self.name]
            if self.kind in ("number", "flag")
            else [f"{self.name}={atom}" for atom in self.atoms]
        )


@pydantic.dataclasses.dataclass(frozen=True)
class Encoding:
    """Encoding of a table that describes users or items.

    Attributes
    ----------
    columns : tuple of Code
        Encodings of a table's columns, in the order of the features; empty for a matrix.
    separator : str
        Separator between the values of a list.
    width : int
        Number of columns of a matrix, which serve as features unchanged; 0 for a table.
    """

    columns: tuple[Code, ...] = ()
    separator: Annotated[str, Field(min_length=1)] = "|"
    width: NonNegativeInt = 0

    @property
    def names(self) -> list[str]:
        """Names of all features."""
        return [str(j) for j in range(self.width)] + [
            name for code in self.columns for name in code.features
        ]

    @property
    def groups(self) -> list[str]:
        """Group of each feature: its column's name up to the first equals sign; ``features`` for a
        matrix.
        """
        columns = [code.name.partition("=")[0] for code in self.columns for _ in code.features]
        return ["features"] * self.width + columns

    def dump(self) -> str:
        """Return the encoding as JSON."""
        return _ENCODING.dump_json(self).decode()

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read the JSON text of `dump`. Raises ValueError if the text is not a valid encoding."""
        try:
            encoding = _ENCODING.validate_json(text)
        except ValidationError as error:
            raise ValueError(
                f"not a valid encoding of features ({error.errors()[0]['msg']})"
            ) from error
        if bool(encoding.columns) == bool(encoding.width):
            raise ValueError(
                "not a valid encoding of features (expected columns of a table, or the width of a"
                " matrix)"
            )
        return encoding


_ENCODING = TypeAdapter(Encoding)


class Description(NamedTuple):
    """A file, table or matrix that describes users or items.

    Attributes
    ----------
    given : Path, TableFile or scipy.sparse matrix
        A file is text, JSON, Parquet, or a matrix. Names are in the column `label` or with a usual
        name, or else in the first column; for a matrix, names are row numbers.
    kinds : dict of str to Kind
        Kinds by column; the kinds of all other columns are guessed.
    separator : str
        Separator between the values of a list.
    label : str
        Name of the column of names, if it is none of the usual ones; other tables need not have it.
    """

    given: Any
    kinds: Mapping[str, Kind] = MappingProxyType({})
    separator: str = "|"
    label: str = ""


class Described(NamedTuple):
    """A DuckDB table with ``id`` and the columns of a description as text; missing values are NULL.

    Attributes
    ----------
    path : Path
        The file, for messages.
    entity : {"user", "item"}
        Whether a row describes a user or an item.
    columns : dict of str to str
        Maps column names in the file to column names in the table.
    kinds : dict of str to Kind
        Kinds of columns by their names in the file: kinds given by users, and kinds of known
        MovieLens files.
    table : TableFile or None
        The file; None for a matrix.
    matrix : scipy.sparse.csr_matrix or None
        The matrix without its empty rows, if the description is a matrix. The DuckDB table then has
        ``id`` and the row number ``r`` in this matrix.
    """

    path: Path
    entity: str
    columns: dict[str, str]
    kinds: Mapping[str, Kind]
    table: TableFile | None = None
    matrix: Any = None

    @property
    def name(self) -> str:
        """Name of the table."""
        return f"described_{self.entity}s"

    def where(self, rows: list[int]) -> str:
        """Return the positions of rows in the file, for messages."""
        return ", ".join(self.table.where(row) if self.table else f"row {row + 1}" for row in rows)


def describe(
    files: Mapping[str, Path | None], kinds: str | None, separator: str
) -> dict[str, Description]:
    """Make descriptions by "user" and "item" from command-line options; `kinds` is
    ``COLUMN=KIND,...``.
    """
    parsed: dict[str, Kind] = {}
    for part in kinds.split(",") if kinds else []:
        name, _, text = part.strip().rpartition("=")  # the name of a column may have equals signs
        kind = next((kind for kind in KINDS if kind == text), None)
        if not name or kind is None:
            raise InputError(
                f"--feature-kinds {kinds}: expected COLUMN=KIND,... with KIND one of"
                f" {', '.join(KINDS)}"
            )
        parsed[name] = kind
    if not separator or (kinds and not any(files.values())):
        raise InputError(
            "--separator is empty, or --feature-kinds is given without --user-features or"
            " --item-features"
        )
    return {
        entity: Description(path, parsed, separator)
        for entity, path in files.items()
        if path is not None
    }


# ------------------------------------------------------------------------------------------ reading


def read_description(db: Session, entity: str, given: Description) -> Described:
    """Read a table or matrix that describes users or items into a DuckDB table.

    Equal rows of a name count once. Raises InputError if the table is invalid, or has different
    rows for one name.
    """
    source = given.given
    if isinstance(source, Path | TableFile):
        described = _read_table(db, source, entity, given)
    else:
        described = _read_matrix(db, Path(f"{entity}_features"), source.tocoo(), 0, entity)
    columns = ", ".join(described.columns.values()) or "r"
    query = (
        f"SELECT id FROM {described.name} GROUP BY id HAVING count(DISTINCT row({columns})) > 1"
        " ORDER BY id"
    )
    if repeated := first_column(db, query):
        shown = ", ".join(repeated[:SHOWN])
        raise InputError(
            f"{described.path} describes {len(repeated)} {entity}(s) in several ways: {shown}"
        )
    db.execute(
        f"DELETE FROM {described.name} WHERE rowid NOT IN (SELECT min(rowid) FROM {described.name}"
        " GROUP BY id)"
    )
    return described


def load_description(db: Session, entity: str, given: Description) -> Described:
    """Read a table or matrix that describes users or items, and compare its names with the names in
    ``raw``.

    Raises InputError as `read_description` does, and if no described user or item has ratings.
    """
    described = read_description(db, entity, given)
    rated = f"(SELECT DISTINCT {entity}_id AS id FROM raw)"
    if not scalar(db, f"SELECT count(*) FROM {described.name} JOIN {rated} USING (id)"):
        few = "SELECT id FROM {} ORDER BY id LIMIT 3"
        theirs, ours = (
            ", ".join(first_column(db, few.format(source))) for source in (described.name, rated)
        )
        found = f"it has names such as {theirs}, but the ratings have names such as {ours}"
        raise InputError(
            f"{described.path} describes no {entity} of the ratings: {found}."
            f" {_names_advice(entity)}"
        )
    if scalar(db, f"SELECT bool_and({is_integer()}) FROM {rated}"):
        _refuse_text(db, described, "ratings")
        _refuse_shift(db, described, rated)
    return described


def _refuse_shift(db: Session, described: Described, rated: str) -> None:
    """Raise InputError if names are numbered from 0 and rated ones from 1, or the reverse: both
    ends are left over.
    """
    ends = (
        f"SELECT min(id::BIGINT), max(id::BIGINT) FROM {source}"
        for source in (described.name, rated)
    )
    (low, high), (rated_low, rated_high) = (db.execute(end).fetchall()[0] for end in ends)
    if low - rated_low == high - rated_high in (-1, 1):
        found = f"describes {low} to {high}, but the ratings have {rated_low} to {rated_high}"
        advice = f"Give a table with a column {described.entity} of the same names"
        raise InputError(
            f"{described.path} {found}: one is numbered from 0 and the other from 1. {advice}"
        )


def check_kinds(tables: Mapping[str, Described], descriptions: Mapping[str, Description]) -> None:
    """Raise InputError if `descriptions` give a kind for a column that no table has."""
    columns = {name for table in tables.values() for name in table.columns}
    given = {name for description in descriptions.values() for name in description.kinds}
    if given - columns:
        known = ", ".join(sorted(columns))
        raise InputError(
            f"--feature-kinds names {min(given - columns)!r}, but the columns are {known}"
        )


def _read_table(
    db: Session, source: Path | TableFile, entity: str, given: Description
) -> Described:
    """Read a table with a header, or a MovieLens file without one; lists in Parquet are joined by
    the separator.
    """
    known: dict[str, Any] = {}
    if isinstance(source, Path):
        known = _MOVIELENS.get(source.name.removesuffix(".gz"), {})
        source = open_table(
            db,
            source,
            lambda fields: len(fields) != len(known) or simplified(fields[0]) in NAMES[entity],
            latin1=True,
        )
    if source.kind == "matrix":
        return _read_matrix(db, source.path, *read_matrix(db, source), entity)
    names, kinds = source.names, dict(given.kinds)
    if not source.header:
        names = list(known)
        kinds = {name: kind for name, kind in known.items() if kind != "id"} | kinds
    if any(re.fullmatch(r"[+-]?[0-9.]+", name) for name in names):
        raise InputError(
            f"{source.path} has no header: line 1 must name the columns; found"
            f" {', '.join(names)[:60]}"
        )
    if len({name.lower() for name in names}) < len(names):
        raise InputError(f"{source.path}: two columns have the same name ({', '.join(names)})")
    position = (
        names.index(given.label)
        if given.label and given.label in names
        else find_column(names, entity) or 0
    )
    others = [
        k for k in range(len(names)) if k != position and names[k]
    ]  # row names of pandas and R have no header
    if not others:
        raise InputError(
            f"{source.path} has one column: expected a column of names and columns of features"
        )
    described = Described(source.path, entity, {names[k]: f"c{k}" for k in others}, kinds, source)
    text = [_text(source, k, given.separator) for k in range(len(names))]
    text[position] = source.name(position)
    cleaned = [
        f"CASE WHEN NOT {_is_missing(text[k])} THEN trim({text[k]}) END AS c{k}" for k in others
    ]
    columns = ", ".join([f"nullif(trim({text[position]}), '') AS id", *cleaned])
    source.create(db, f"CREATE TABLE {described.name} AS SELECT {columns} FROM {{table}}")
    if not scalar(db, f"SELECT count(*) FROM {described.name}"):
        raise InputError(f"{source.path} has no rows")
    bad = f"SELECT rowid FROM {described.name} WHERE id IS NULL OR {is_rounded('id')} LIMIT {SHOWN}"
    if rows := first_column(db, bad):
        raise InputError(
            f"{source.path}: the {entity} is missing, or a rounded float, in"
            f" {described.where(rows)}"
        )
    trim_names(db, described.name, "id")
    return described


def _text(table: TableFile, k: int, separator: str) -> str:
    """Return SQL for a column as text."""
    if table.kind == "parquet" and table.types[k].endswith("[]"):
        return f"array_to_string(c{k}, {literal(separator)})"
    return f"c{k}::VARCHAR"


def _is_missing(text: str) -> str:
    """Return SQL that is true for text that stands for a missing value.

    The SQL avoids ``IN``, which DuckDB turns into a join: a few hundred columns would take minutes
    and gigabytes.
    """
    return f"regexp_full_match(trim({text}), {literal('|'.join(map(re.escape, _MISSING)))}, 'i')"


def _read_matrix(db: Session, path: Path, entries: Any, first: int, entity: str) -> Described:
    """Read a matrix, whose rows are named by their numbers, from `first`; rows without entries have
    no features.
    """
    import scipy.sparse  # slow to import

    if (
        entries.data.dtype.kind not in "fiub"
        or not (np.abs(entries.data) <= np.finfo(np.float32).max).all()
    ):
        raise InputError(f"{path} has values that are not finite numbers in single precision")
    width = entries.shape[1]
    if width > MAX_FEATURES or not len(entries.data):
        found = f"{width} features, more than {MAX_FEATURES}" if len(entries.data) else "no entries"
        raise InputError(f"{path} has {found}")
    present, rows = np.unique(entries.row, return_inverse=True)
    values = entries.data.astype(np.float64)
    matrix = scipy.sparse.csr_matrix(
        (values, (rows, entries.col)), shape=(len(present), width)
    )  # sums duplicates
    ranges = zip(
        *(extreme(axis=0).toarray()[0].tolist() for extreme in (matrix.min, matrix.max)),
        strict=True,
    )
    for column, (low, high) in enumerate(ranges):
        if bad := find_coarseness(f"{path}: the features in column {column}", low, high):
            raise InputError(bad)
    described = Described(path, entity, {}, {}, matrix=matrix)
    db.register("matrix_rows", {"id": present + np.int64(first), "r": np.arange(len(present))})
    db.execute(f"CREATE TABLE {described.name} AS SELECT id::VARCHAR AS id, r FROM matrix_rows")
    return described


def _refuse_text(db: Session, described: Described, source: str) -> None:
    """Raise InputError if names are not integers, although the names in `source`, "ratings" or
    "run", are integers.
    """
    if texts := first_column(
        db, f"SELECT id FROM {described.name} WHERE NOT {is_integer()} LIMIT {SHOWN}"
    ):
        shown = ", ".join(map(repr, texts))
        raise InputError(
            f"{described.path}: the {described.entity}s of the {source} are integers, unlike"
            f" {shown}"
        )


# ----------------------------------------------------------------------------------------- encoding


def encode(
    db: Session, described: Described, given: Description, n: int
) -> tuple[Features, dict[str, Any]]:
    """Make features of n users or items from a table of `load_description`; return the features and
    a report.

    The report has ``groups``, the number of features in each group; ``unknown``, the number of
    users (or items) without features; ``unrated``, the number of users (or items) with a row and no
    ratings; ``notes``, texts on matched names and on columns left out; and ``doubts``, a text if
    less than half of the names match. `db` has the tables ``{entity}s`` (id, k) and ``raw``. Raises
    InputError if a column is invalid, or none is usable.
    """
    encoding, notes = learn(db, described, given)
    width = len(encoding.names)
    if not 0 < width <= MAX_FEATURES:
        reason = (
            f"{width} features, more than {MAX_FEATURES}" if width else "no column that can be used"
        )
        raise InputError("\n  ".join([f"{described.path} has {reason}", *notes]))
    if too_long := [name for name in encoding.names if len(name.encode()) > MAX_ID_BYTES]:
        start = f"begins with {too_long[0][:60]!r}"
        raise InputError(
            f"{described.path} has a feature whose name {start}, and has more than {MAX_ID_BYTES}"
            " bytes"
        )
    features = apply(db, described, encoding, n)
    rated = f"(SELECT DISTINCT {described.entity}_id AS id FROM raw)"
    query = (
        f"SELECT count(d.id), count(r.id), count(*) FROM {described.name} d FULL JOIN {rated} r ON"
        " d.id = r.id"
    )
    n_rows, n_rated, either = db.execute(query).fetchall()[0]
    matched, who = n_rows + n_rated - either, f"{described.entity}s with ratings"
    match = (
        f"{matched:,} of {n_rated:,} {who} have a row; {n_rows - matched:,} rows have no ratings"
    )
    doubt = (
        f"{match}: are features and ratings named alike?"
        if 2 * matched < min(n_rows, n_rated)
        else ""
    )
    return features, {
        "groups": dict(Counter(features.groups)),
        "unknown": int((np.diff(features.indptr) == 0).sum()),
        "unrated": n_rows - matched,
        "notes": [match, *notes],
        "doubts": [doubt] * bool(doubt),
    }


def encode_new(
    entity: str, given: Description, encoding: Encoding, integers: bool
) -> tuple[Array, Features]:
    """Make features by an encoding that was learnt from another table; return names and features.

    Kinds and separator in `given` are ignored; `integers` says whether names must be integers.
    Values that are not in the encoding are ignored. Raises InputError if the table is invalid or
    lacks columns of the encoding.
    """
    with duckdb.connect() as db:
        described = read_description(db, entity, given._replace(separator=encoding.separator))
        _check_columns(described, encoding)
        if integers:
            _refuse_text(db, described, "run")
        for code in encoding.columns:
            _check_values(db, described, code.name, code.kind)
        numbered = f"SELECT id, row_number() OVER (ORDER BY id) - 1 AS k FROM {described.name}"
        db.execute(f"CREATE TABLE {entity}s AS {numbered}")
        names = np.array(first_column(db, f"SELECT id FROM {entity}s ORDER BY k"), object)
        return names, apply(db, described, encoding, len(names))


def _check_columns(described: Described, encoding: Encoding) -> None:
    """Raise InputError if a table lacks columns of the encoding, or a matrix has another width."""
    used = [code.name for code in encoding.columns if code.features]
    width = 0 if described.matrix is None else described.matrix.shape[1]
    if width == encoding.width and described.columns.keys() >= set(used):
        return
    has = (
        f"is a matrix of {width} columns"
        if width
        else f"has the columns {', '.join(described.columns)}"
    )
    needed = (
        f"a matrix of {encoding.width} columns"
        if encoding.width
        else f"the columns {', '.join(used)}"
    )
    made = f"the features of the run's {described.entity}s were made from {needed}"
    raise InputError(f"{described.path} {has}, but {made}. {_names_advice(described.entity)}")


def learn(db: Session, described: Described, given: Description) -> tuple[Encoding, list[str]]:
    """Return the encoding of a table's columns, and notes on columns left out.

    Raises InputError if a column is invalid.
    """
    if described.matrix is not None:
        return Encoding(width=described.matrix.shape[1]), []
    learnt = {name: _learn_column(db, described, name, given) for name in described.columns}
    notes = [
        f"{described.path.name}: {name} is left out: {note}"
        for name, (_, note) in learnt.items()
        if note
    ]
    return Encoding(tuple(code for code, _ in learnt.values()), given.separator), notes


def _learn_column(
    db: Session, described: Described, name: str, given: Description
) -> tuple[Code, str]:
    """Return the encoding of a column, by its given or guessed kind, and the reason if the column
    is left out.
    """
    c, kind = described.columns[name], described.kinds.get(name)
    filled, distinct, numbers, zero_led, lists, years = db.execute(
        f"SELECT count({c}), count(DISTINCT {c}), count(*) FILTER ({_is_number(c)}), "
        f"count(*) FILTER (regexp_matches({c}, '^0[0-9]')), "
        f"count(*) FILTER (contains({c}, {literal(given.separator)})), "
        f"count(*) FILTER (regexp_matches({c}, '{_YEAR_AT_END}')) FROM {described.name}"
    ).fetchall()[0]
    left_out = Code(name, "skip")
    if kind == "skip" or distinct < 2:
        return left_out, "" if kind == "skip" else "all its values are the same, or missing"
    if kind is None and numbers > filled / 2 and not zero_led:
        kind = "number"
    elif kind is None and years > filled / 2:
        kind = "year"
    elif kind is None:
        kind = "list" if lists else "category"
    _check_values(db, described, name, kind)
    if kind == "flag":
        return Code(name, kind), ""
    if kind == "number":
        x = _numbers(db, described, name)[1]
        with np.errstate(over="ignore", invalid="ignore"):
            mean, sd = float(x.mean()), float(x.std())
        if not np.isfinite([mean, sd]).all() or sd == 0:
            raise _too_large(described, name)
        return Code(name, kind, (), mean, sd), ""
    atoms_sql = _select_atoms(described, name, kind, given.separator)
    atoms = first_column(
        db, f"SELECT DISTINCT atom FROM ({atoms_sql}) ORDER BY atom LIMIT {MAX_CATEGORIES + 1}"
    )
    limit = MAX_CATEGORIES if name in given.kinds else min(MAX_CATEGORIES, max(20, filled / 2))
    if 0 < len(atoms) <= limit:
        return Code(name, kind, tuple(atoms)), ""
    advice = (
        f"with at most {MAX_CATEGORIES:,} values, give --feature-kinds"
        f" {shlex.quote(f'{name}={kind}')}"
    )
    found = f"{len(atoms):,} or more different values in {filled:,} rows are too many for a {kind}"
    return left_out, f"{found}; if it is a {kind} {advice}"


def _names_advice(entity: str) -> str:
    return f"The column of names must be called {entity}, or be the first"


def _is_number(sql: str) -> str:
    return f"coalesce(isfinite({as_number(sql)}), false)"


def _check_values(db: Session, described: Described, name: str, kind: Kind) -> None:
    """Raise InputError if a column of numbers or flags has other values."""
    if kind not in ("number", "flag"):
        return
    c = described.columns[name]
    wrong = f"NOT {_is_number(c)}" if kind == "number" else f"{c} NOT IN ('0', '1')"
    query = (
        f"SELECT rowid, {c} FROM {described.name} WHERE {c} IS NOT NULL AND {wrong} LIMIT {SHOWN}"
    )
    if rows := db.execute(query).fetchall():
        where, texts = (
            described.where([row for row, _ in rows]),
            ", ".join(repr(text) for _, text in rows),
        )
        option = f"--feature-kinds {shlex.quote(f'{name}=category')} (or skip)"
        advice = f"correct it, leave the cell empty, or prepare with {option}"
        raise InputError(f"{described.path}, {where}: the {kind} {name} is {texts}; {advice}")


def _select_atoms(described: Described, name: str, kind: Kind, separator: str) -> str:
    """Return SQL for the distinct pairs (id, atom) of a name of a user or item and one of its
    categories.
    """
    text = column = described.columns[name]
    if kind == "list":
        text = f"unnest(string_split({text}, {literal(separator)}))"
    elif kind == "year":
        year = f"nullif(regexp_extract({text}, '{_YEAR_AT_END}', 1), '')::INTEGER"
        text = f"({year} // 10 * 10)::VARCHAR || 's'"
    inner = f"SELECT id, {text} AS atom FROM {described.name} WHERE {column} IS NOT NULL"
    return f"SELECT DISTINCT id, trim(atom) AS atom FROM ({inner}) WHERE NOT {_is_missing('atom')}"


def _too_large(described: Described, name: str) -> InputError:
    return InputError(
        f"{described.path}: the numbers in {name} are too large or too close to each other"
    )


def apply(db: Session, described: Described, encoding: Encoding, n: int) -> Features:
    """Make features from a table by an encoding; the table must have all columns of the encoding.

    `db` has the table ``{entity}s`` (id, k) of n users or items; row k of the features belongs to
    the user or item with number k. Raises InputError if numbers are too large.
    """
    first, entries = 0, [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    if described.matrix is not None:
        row_numbers = db.execute(
            f"SELECT r, k FROM {described.name} JOIN {described.entity}s USING (id)"
        ).fetchnumpy()
        cells = described.matrix[row_numbers["r"]].tocoo()
        entries.append(
            (row_numbers["k"][cells.row].astype(np.int64), cells.col.astype(np.int64), cells.data)
        )
    for code in encoding.columns:
        if code.kind in ("number", "flag"):
            k, x = _numbers(db, described, code.name)
            with np.errstate(over="ignore", invalid="ignore"):
                x = (x - code.mean) / code.sd
            if not (np.abs(x) <= np.finfo(np.float32).max).all():
                raise _too_large(described, code.name)
            entries.append((k, np.full(len(k), first), x))
        elif code.features:
            k, feature = _categories(db, described, code, encoding.separator)
            entries.append((k, feature + first, np.ones(len(k))))
        first += len(code.features)
    row, column, value = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
    order = np.lexsort((column, row))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=n))).astype(np.int64)
    indices, values = column[order].astype(np.int32), value[order].astype(np.float32)
    return Features(
        indptr, indices, values, tuple(encoding.names), tuple(encoding.groups), encoding.dump()
    )


def _numbers(db: Session, described: Described, name: str) -> tuple[Int64, Float64]:
    """Return the rows of the features that have a number in a column, and the numbers."""
    column = described.columns[name]
    numbered = f"{described.name} JOIN {described.entity}s USING (id) WHERE {column} IS NOT NULL"
    k, x = (
        db.execute(f"SELECT k, {column}::DOUBLE AS x FROM {numbered} ORDER BY k")
        .fetchnumpy()
        .values()
    )
    return k, x.astype(np.float64)


def _categories(
    db: Session, described: Described, code: Code, separator: str
) -> tuple[Int64, Int64]:
    """Return the row and the feature's position in `code` of every known category of every row."""
    db.register(
        "learnt", {"atom": np.array(code.atoms, object), "feature": np.arange(len(code.atoms))}
    )
    atoms_sql = _select_atoms(described, code.name, code.kind, separator)
    query = (
        f"SELECT k, feature FROM ({atoms_sql}) JOIN learnt USING (atom) JOIN {described.entity}s"
        " USING (id)"
    )
    k, feature = db.execute(query).fetchnumpy().values()
    return k, feature
