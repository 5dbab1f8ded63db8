"""Reads tables and matrices that describe users or items into DuckDB tables of text.

`dsgmcmc.features.encoders` turns the columns of such a table into features. A sparse matrix is used
unchanged, as one group of features.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.encoding import KINDS, Kind, as_kind
from dsgmcmc.features.values import batches, select_cells
from dsgmcmc.input.detect import open_table
from dsgmcmc.input.roles import refuse_repeated
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.marks import mark_of, with_point_sql
from dsgmcmc.input.sources.matrix import read_matrix
from dsgmcmc.input.sources.tables import (
    SHOWN,
    distinct_names,
    first_column,
    scalar,
    trim_names,
)
from dsgmcmc.ratings.float32 import find_coarseness
from dsgmcmc.ratings.format import MAX_FEATURES
from dsgmcmc.ratings.names import join_sql, part_sql, split_name
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, is_integer, is_rounded, literal
from dsgmcmc.tables.usual import NAMES, find_column, shortened, simplified
from dsgmcmc.types import Array

#: Words that stand for a missing value in files of text, in lower case. In other formats a word is
#: a value, because they have missing values of their own; blanks are missing in all of them.
MISSING_WORDS = ("na", "n/a", "nan", "null", "\\n", "(no genres listed)")
_GENRES = [
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
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
]
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
    "u.item": {
        "item": "id",
        "year": "year",
        "released": "skip",
        "video": "skip",
        "url": "skip",
        **{f"genres={genre}": "flag" for genre in _GENRES},
    },
}


#: In place of a file: the names of users or items are their description.
OF_NAMES = "names"


class Description(NamedTuple):
    """A file, table or matrix that describes users or items.

    Attributes
    ----------
    source : Path, Source, scipy.sparse matrix or `OF_NAMES`
        A file is text, JSON, Parquet, or a matrix. Names are in the column `label` or with a usual
        name, or else in the first column; for a matrix, names are `names`, or row numbers.
    kinds : dict of str to Kind
        Kinds by column that users chose; the kinds of all other columns are known or guessed.
    known : dict of str to Kind
        Kinds by column that the types of a table tell.
    names : (n,) array, optional
        Names of the rows of a matrix in memory.
    categories : dict of str to list of str
        Categories by column that are values, also if they look like a missing one.
    separator : str
        Separator between the values of a list.
    label : str
        Name of the column of names, if it is none of the usual ones; other tables need not have it.
    parts : tuple of str
        Columns of the parts of names, if names have several parts; the table must have them.
    """

    source: Any
    kinds: Mapping[str, Kind] = MappingProxyType({})
    separator: str = "|"
    label: str = ""
    known: Mapping[str, Kind] = MappingProxyType({})
    names: Array | None = None
    categories: Mapping[str, Collection[str]] = MappingProxyType({})
    parts: tuple[str, ...] = ()


class DescriptionTable(NamedTuple):
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
        Kinds of columns by their names in the file: kinds that users chose, and kinds of known
        MovieLens files.
    table : Source or None
        The file; None for a matrix.
    matrix : scipy.sparse.csr_matrix or None
        The matrix without its empty rows, if the description is a matrix. The DuckDB table then has
        ``id`` and the row number ``r`` in this matrix.
    words : dict of str to list of str
        Words by column that stand for a missing value, in lower case.
    has_parts : bool
        Whether the columns are the parts of names (`dsgmcmc.features.of_parts`), as they are.
    of_names : bool
        Whether the column is the names themselves (`dsgmcmc.features.of_names`).
    """

    path: Path
    entity: str
    columns: dict[str, str]
    kinds: Mapping[str, Kind]
    table: Source | None = None
    matrix: Any = None
    words: Mapping[str, Sequence[str]] = MappingProxyType({})
    has_parts: bool = False
    of_names: bool = False

    @property
    def name(self) -> str:
        """Name of the table."""
        if self.has_parts:
            return f"parts_of_{self.entity}s"
        return f"described_{self.entity}s"

    def where(self, rows: list[int]) -> str:
        """Return the positions of rows in the file, for messages."""
        if self.table is None:
            return ", ".join(f"row {row + 1}" for row in rows)
        return ", ".join(self.table.where(row) for row in rows)


def describe(
    sources: Mapping[str, Any], kinds: str | Mapping[Any, str] | None, separator: str = "|"
) -> dict[str, Description]:
    """Return descriptions by "user" and "item", with the kinds that a user chooses for columns.

    Parameters
    ----------
    sources : dict of str to path or Description
        Those that are None are left out.
    kinds : str or dict of str to str
        ``COLUMN=KIND,...``, or kinds by column.
    separator : str
        Separator between the values of a list in files.

    Raises
    ------
    InputError
        If there is no such kind, or no description with columns.
    """
    chosen = _parse_kinds(kinds)
    descriptions = {}
    for entity, source in sources.items():
        if source is None:
            continue
        description = source
        if is_of_names(source) and not isinstance(source, Description):
            description = described_by_names(entity)
        elif not isinstance(source, Description):
            description = Description(Path(source), separator=separator)
        descriptions[entity] = description._replace(kinds={**description.kinds, **chosen})
    if chosen and not descriptions:
        raise InputError(
            f"{named('feature_kinds')} is given without {named('user_features')} or"
            f" {named('item_features')}"
        )
    return descriptions


def _parse_kinds(kinds: str | Mapping[Any, str] | None) -> dict[str, Kind]:
    """Return kinds by column; raise InputError if `kinds` has another form, or another kind."""
    if not kinds:
        return {}
    option = named("feature_kinds")
    words: Mapping[Any, str] = kinds if isinstance(kinds, Mapping) else _split_kinds(kinds)
    chosen: dict[str, Kind] = {}
    for column, word in words.items():
        kind = as_kind(word)
        if kind is None:
            raise InputError(
                f"{option}: the kind of {column!r} is {word!r}, but expected is one of"
                f" {', '.join(KINDS)}"
            )
        chosen[str(column)] = kind
    return chosen


def _split_kinds(text: str) -> dict[str, str]:
    """Return words by column in ``COLUMN=KIND,...``; names of columns may have equals signs."""
    words = {}
    for part in text.split(","):
        column, _, word = part.strip().rpartition("=")
        if not column:
            raise InputError(
                f"{named('feature_kinds')} {text}: expected COLUMN=KIND,... with KIND one of"
                f" {', '.join(KINDS)}"
            )
        words[column] = word
    return words


def is_of_names(source: object) -> bool:
    """Whether a source, or the source of a description, are the names themselves."""
    if isinstance(source, Description):
        source = source.source
    return isinstance(source, str) and source == OF_NAMES


def described_by_names(entity: str) -> Description:
    """Return the description of users or items by their own names.

    Raises InputError if there is a file of this name.
    """
    if Path(OF_NAMES).exists():
        option = named(f"{entity}_features")
        raise InputError(
            f"{option} {OF_NAMES} may be the names of {entity}s, or the file {OF_NAMES}: write"
            f" ./{OF_NAMES} for the file, or rename it"
        )
    return Description(OF_NAMES)


def check_kinds(
    tables: Mapping[str, DescriptionTable], descriptions: Mapping[str, Description]
) -> None:
    """Raise InputError if a description has a kind for a column that no table has."""
    columns = {name for table in tables.values() for name in table.columns}
    columns |= {entity for entity, table in tables.items() if table.of_names}
    chosen = {name for description in descriptions.values() for name in description.kinds}
    if unknown := chosen - columns:
        known = shortened(sorted(columns))
        raise InputError(
            f"{named('feature_kinds')} names {min(unknown)!r}, but the columns are {known}"
        )


def kind_option(column: str, kind: Kind) -> str:
    """Return the option, or the argument in Python, that gives a column a kind."""
    option = named("feature_kinds")
    if option.startswith("--"):
        return f"{option} {shlex.quote(f'{column}={kind}')}"
    return f"{option}={ {column: kind} }"


# ------------------------------------------------------------------------------------------ reading


def read_description(db: Session, entity: str, description: Description) -> DescriptionTable:
    """Read a table or matrix that describes users or items into a DuckDB table.

    Equal rows of a name count once. Raises InputError if the table is invalid, or has different
    rows for one name.
    """
    source = description.source
    if isinstance(source, Path | Source):
        described = _read_table(db, source, entity, description)
    else:
        path = Path(f"{entity}_features")
        described = _read_matrix(db, path, source.tocoo(), entity=entity, names=description.names)
    _merge_equal_rows(db, described)
    return described


def _merge_equal_rows(db: Session, described: DescriptionTable) -> None:
    """Keep one row of each name; raise InputError if the rows of a name differ."""
    columns = ", ".join(described.columns.values()) or "r"
    repeated = first_column(
        db,
        f"SELECT id FROM {described.name} GROUP BY id HAVING count(DISTINCT row({columns})) > 1"
        " ORDER BY id",
    )
    if repeated:
        shown = "; ".join(map(split_name, repeated[:SHOWN]))
        raise InputError(
            f"{described.path} describes {len(repeated)} {described.entity}(s) in several ways:"
            f" {shown}"
        )
    first_rows = f"SELECT min(rowid) FROM {described.name} GROUP BY id"
    db.execute(f"DELETE FROM {described.name} WHERE rowid NOT IN ({first_rows})")


def load_description(db: Session, entity: str, description: Description) -> DescriptionTable:
    """Read a table or matrix that describes users or items of the ratings in the table ``raw``.

    Raises InputError as `read_description` does, and if no described user or item has ratings.
    """
    described = read_description(db, entity, description)
    rated = distinct_names(entity)
    if not scalar(db, f"SELECT count(*) FROM {described.name} JOIN {rated} USING (id)"):
        theirs = _first_names(db, described.name)
        ours = _first_names(db, rated)
        advice = names_advice(entity)
        if described.matrix is not None:
            advice = f"In Python, names stand beside a matrix: {entity}_features=(names, matrix)"
        raise InputError(
            f"{described.path} describes no {entity} of the ratings: it has names such as {theirs},"
            f" but the ratings have names such as {ours}. {advice}"
        )
    if scalar(db, f"SELECT bool_and({is_integer()}) FROM {rated}"):
        refuse_text(db, described, "ratings")
        _refuse_shift(db, described, rated)
    return described


def _first_names(db: Session, table: str) -> str:
    """Return the first three names in a table, for messages."""
    names = first_column(db, f"SELECT id FROM {table} ORDER BY id LIMIT 3")
    if any("\0" in name for name in names):
        return " and ".join(f"({split_name(name)})" for name in names)
    return ", ".join(names)


def _refuse_shift(db: Session, described: DescriptionTable, rated: str) -> None:
    """Raise InputError if names are numbered from 0 and rated ones from 1, or the reverse.

    They are if they are as many, and both ends of the two ranges are left over.
    """
    low, high = _range_of_names(db, described.name)
    rated_low, rated_high = _range_of_names(db, rated)
    if low - rated_low == high - rated_high in (-1, 1):
        raise InputError(
            f"{described.path} describes {low} to {high}, but the ratings have {rated_low} to"
            f" {rated_high}: one is numbered from 0 and the other from 1. Give a table with a"
            f" column {described.entity} of the same names"
        )


def _range_of_names(db: Session, table: str) -> tuple[int, int]:
    """Return the smallest and the largest of names that are integers."""
    low, high = db.execute(f"SELECT min(id::BIGINT), max(id::BIGINT) FROM {table}").fetchall()[0]
    return low, high


def refuse_text(db: Session, described: DescriptionTable, source: str) -> None:
    """Raise InputError if names are not integers, as those in `source`, "ratings" or "run", are."""
    texts = first_column(
        db, f"SELECT id FROM {described.name} WHERE NOT {is_integer()} LIMIT {SHOWN}"
    )
    if texts:
        shown = ", ".join(map(repr, texts))
        raise InputError(
            f"{described.path}: the {described.entity}s of the {source} are integers, unlike"
            f" {shown}"
        )


def names_advice(entity: str) -> str:
    """Say which column of a description has the names."""
    return f"The column of names must be called {entity}, or be the first"


# ------------------------------------------------------------------------------------------- tables


def _read_table(
    db: Session, source: Path | Source, entity: str, description: Description
) -> DescriptionTable:
    """Read a table with a header, or a MovieLens file without one."""
    known: dict[str, Any] = {}
    if isinstance(source, Path):
        known = _MOVIELENS.get(source.name.removesuffix(".gz"), {})
        source = _open_description(db, source, entity, n_known=len(known))
    if source.is_labelled:
        raise InputError(
            f"{source.path} has a matrix, and no table of features: give it in Python, as"
            f" {entity}_features=(names, matrix)"
        )
    if source.is_matrix:
        entries, first = read_matrix(db, source)
        return _read_matrix(db, source.path, entries, entity=entity, first=first)
    names = source.names
    kinds: dict[str, Any] = {}
    if not source.header:
        names = list(known)
        kinds |= {name: kind for name, kind in known.items() if kind != "id"}
    kinds |= {name: "list" for k, name in enumerate(names) if _has_lists(source, k)}
    kinds |= description.known
    kinds |= description.kinds
    _check_header(source, names)
    positions = _positions_of_names(source, names, entity, description)
    # row names of pandas and R have no header
    others = [k for k, name in enumerate(names) if k not in positions and name]
    if not others:
        raise InputError(
            f"{source.path} has one column: expected a column of names and columns of features"
        )
    described = DescriptionTable(
        source.path,
        entity,
        columns={names[k]: f"c{k}" for k in others},
        kinds=kinds,
        table=source,
        words={names[k]: _missing_words(source, names[k], description) for k in others},
    )
    parts = [f"nullif(trim({source.name(k)}), '')" for k in positions]
    columns = [f"{join_sql(parts)} AS id"]
    for k in others:
        text = with_point_sql(_text(source, k, description.separator), _mark_of(source, k))
        is_empty = is_missing(text, described.words[names[k]])
        columns.append(f"CASE WHEN NOT {is_empty} THEN trim({text}) END AS c{k}")
    source.create(
        db, f"CREATE TABLE {described.name} AS SELECT {', '.join(columns)} FROM {{table}}"
    )
    if not scalar(db, f"SELECT count(*) FROM {described.name}"):
        raise InputError(f"{source.path} has no rows")
    n_parts = len(positions)
    rounded = " OR ".join(is_rounded(part_sql("id", k, n_parts)) for k in range(n_parts))
    bad = f"SELECT rowid FROM {described.name} WHERE id IS NULL OR {rounded} LIMIT {SHOWN}"
    if rows := first_column(db, bad):
        raise InputError(
            f"{source.path}: the {entity} is missing, or a rounded float, in"
            f" {described.where(rows)}"
        )
    trim_names(db, described.name, "id", n_parts=n_parts)
    return described


def _mark_of(source: Source, k: int) -> str:
    """Return the mark of decimals in a column of a file, if its first rows tell; else "".

    Where commas delimit columns, a text such as 1,2 may be a list.
    """
    if source.delimiter == ",":
        return ""
    return mark_of(None, (row[k] for row in source.sample if k < len(row)))


def _open_description(db: Session, path: Path, entity: str, n_known: int) -> Source:
    """Open a file; it has a header unless it is a MovieLens file of `n_known` columns."""

    def is_header(fields: list[str], rows: list[list[str]]) -> bool:
        return len(fields) != n_known or simplified(fields[0]) in NAMES[entity]

    return open_table(db, path, is_header, latin1=True, choice=Reading(entity=entity))


def _check_header(source: Source, names: list[str]) -> None:
    """Raise InputError if the names of columns repeat, or if a text has numbers for names."""
    if source.is_text and any(re.fullmatch(r"[+-]?[0-9.]+", name) for name in names):
        raise InputError(
            f"{source.path} has no header: line 1 must name the columns; found"
            f" {', '.join(names)[:60]}"
        )
    refuse_repeated(source.path, names)


def _positions_of_names(
    source: Source, names: list[str], entity: str, description: Description
) -> list[int]:
    """Return the positions of the columns of names, one for each part.

    The column of names of one part is `description.label`, else one with a usual name, else the
    first. Raises InputError if a part has no column.
    """
    if description.parts:
        lacking = [part for part in description.parts if part not in names]
        if lacking:
            raise InputError(
                f"{source.path} has the columns {shortened(names)}, but not {shortened(lacking)}:"
                f" names of {entity}s are in the columns {shortened(description.parts)}"
            )
        return [names.index(part) for part in description.parts]
    if description.label and description.label in names:
        return [names.index(description.label)]
    return [find_column(names, entity) or 0]


def _text(table: Source, k: int, separator: str) -> str:
    """Return SQL for a column as text; lists in Parquet are joined by the separator."""
    if _has_lists(table, k):
        return f"array_to_string(c{k}, {literal(separator)})"
    return f"c{k}::VARCHAR"


def _has_lists(table: Source, k: int) -> bool:
    """Whether the type of a column is a list."""
    return any(sql_type.endswith("[]") for sql_type in table.types[k : k + 1])


def _missing_words(source: Source, column: str, description: Description) -> list[str]:
    """Return the words that stand for a missing value in a column of a table."""
    if not source.is_text:
        return []
    categories = {category.lower() for category in description.categories.get(column, ())}
    return [word for word in MISSING_WORDS if word not in categories]


def is_missing(text: str, words: Sequence[str]) -> str:
    """Return SQL that is true for blanks, and for words that stand for a missing value.

    The SQL avoids ``IN``, which DuckDB turns into a join: a few hundred columns would take minutes
    and gigabytes.
    """
    pattern = "|".join(["", *map(re.escape, words)])
    return f"regexp_full_match(trim({text}), {literal(pattern)}, 'i')"


def count_missing_words(db: Session, described: DescriptionTable) -> dict[str, dict[str, int]]:
    """Count the words that were taken for missing values, by column; none in most of them."""
    table = described.table
    counts: dict[str, dict[str, int]] = {}
    if table is None or not any(described.words.values()):
        return counts
    words = ", ".join(map(literal, MISSING_WORDS))
    columns = [name for name in described.columns if described.kinds.get(name) != "skip"]
    for names in batches(columns):
        cells = select_cells("{table}", [described.columns[name] for name in names])
        table.create(
            db,
            "CREATE TABLE words AS SELECT position, trim(value) AS word, count(*) AS n"
            f" FROM ({cells}) WHERE lower(trim(value)) IN ({words}) GROUP BY ALL",
        )
        for position, word, number in db.execute("FROM words ORDER BY ALL").fetchall():
            name = names[position]
            if word.lower() in described.words[name]:
                counts.setdefault(name, {})[word] = number
        db.execute("DROP TABLE words")
    return counts


# ----------------------------------------------------------------------------------------- matrices


def _read_matrix(
    db: Session,
    path: Path,
    entries: Any,
    *,
    entity: str,
    names: Array | None = None,
    first: int = 0,
) -> DescriptionTable:
    """Read a matrix; its rows are named by `names`, or else by their numbers, from `first`.

    Rows without entries have no features, and without `names` they are left out.
    """
    import scipy.sparse  # slow to import

    _check_entries(path, entries)
    if names is None:
        present, rows = np.unique(entries.row, return_inverse=True)
        ids = present + np.int64(first)
    else:
        present = np.arange(entries.shape[0])
        rows = entries.row
        ids = np.array([str(name) for name in names.tolist()], object)
    if len(ids) != len(present):
        raise InputError(f"{path}: {len(ids)} names for a matrix of {len(present)} rows")
    values = entries.data.astype(np.float64)
    # sums duplicates
    matrix = scipy.sparse.csr_matrix(
        (values, (rows, entries.col)), shape=(len(present), entries.shape[1])
    )
    lows = matrix.min(axis=0).toarray()[0].tolist()
    highs = matrix.max(axis=0).toarray()[0].tolist()
    for column, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if bad := find_coarseness(f"{path}: the features in column {column}", low, high):
            raise InputError(bad)
    described = DescriptionTable(path, entity, {}, {}, matrix=matrix)
    db.register("matrix_rows", {"id": ids, "r": np.arange(len(present))})
    db.execute(f"CREATE TABLE {described.name} AS SELECT id::VARCHAR AS id, r FROM matrix_rows")
    return described


def _check_entries(path: Path, entries: Any) -> None:
    """Raise InputError if a matrix has no entries, too many columns, or values that do not fit."""
    largest = np.finfo(np.float32).max
    if entries.data.dtype.kind not in "fiub" or not (np.abs(entries.data) <= largest).all():
        raise InputError(f"{path} has values that are not finite numbers in single precision")
    if not len(entries.data):
        raise InputError(f"{path} has no entries")
    width = entries.shape[1]
    if width > MAX_FEATURES:
        raise InputError(f"{path} has {width} features, more than {MAX_FEATURES}")
