"""Makes features of described users or items: one-hot, multi-hot and standardised columns in CSR.

Every column of a description (`dsgmcmc.features.described`) has a kind, which users choose or which
is guessed. `learn` finds the encoding of the columns by their kinds. `apply` encodes a table as
features: `prepare` applies the encoding to the same table, and folding in applies it to a table of
new users or items.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypedDict

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import (
    Description,
    DescriptionTable,
    count_missing_words,
    is_missing,
    is_of_names,
    kind_option,
    names_advice,
    read_description,
    refuse_text,
)
from dsgmcmc.features.encoding import ColumnEncoding, Encoding, Kind
from dsgmcmc.features.time_columns import learn_time_column, time_entries
from dsgmcmc.features.times import Entries, describe_families
from dsgmcmc.features.values import (
    YEAR_AT_END,
    ColumnCounts,
    Numbers,
    as_flag,
    count_values,
    is_number,
    read_numbers,
)
from dsgmcmc.input.sources.tables import SHOWN, distinct_names, first_column, scalar
from dsgmcmc.ratings.format import (
    MAX_FEATURES,
    MAX_ID_BYTES,
    MAX_SAMPLED_FEATURES,
    Features,
)
from dsgmcmc.ratings.pairs import join, select
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, literal, open_small_session
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Array, Float64, Int64

MAX_CATEGORIES = 1000  # of one column
MAX_LIST_VALUES = 100_000  # different values in the lists of one column
_FEW = 20  # different values that every column of categories may have
_MANY_FLAGS = 20  # columns; if there are more, their features share a group


class FeaturesReport(TypedDict):
    """What the summary of ``prepare`` says about features of users, or of items.

    Attributes
    ----------
    groups : dict of str to int
        Number of features in each group.
    kinds : dict of str to Kind
        Kinds of the columns that are used; empty for a matrix.
    unknown : int
        Number of users (or items) without features.
    unrated : int
        Number of users (or items) with a row and no ratings.
    times : dict of str to str
        Functions of time, by column.
    groups_of_times : list of str
        Groups of these functions.
    parts : list of str
        Parts of the names that are features.
    notes, doubts : list of str
        On matched names, and on columns that are left out; a warning if few names match.
    """

    groups: dict[str, int]
    kinds: dict[str, Kind]
    unknown: int
    unrated: int
    times: dict[str, str]
    groups_of_times: list[str]
    parts: list[str]
    notes: list[str]
    doubts: list[str]


def encode(
    db: Session, described: DescriptionTable, description: Description, n: int
) -> tuple[Features, FeaturesReport]:
    """Make features of n users or items from a table of `load_description`.

    `db` has the tables ``{entity}s`` (id, k) and ``raw``. Raises InputError if a column is invalid,
    or none is usable.
    """
    encoding, left_out = learn(db, described, description)
    _check_names(described, encoding.names, left_out)
    missing = _describe_missing(db, described, encoding)
    features = apply(db, described, encoding, n)
    match = _count_matches(db, described)
    doubts = []
    if 2 * match.matched < min(match.described, match.rated):
        doubts.append(f"{match}: are features and ratings named alike?")
    if len(encoding.names) > MAX_SAMPLED_FEATURES:
        doubts.append(
            f"{len(encoding.names):,} features of {described.entity}s are more than the"
            f" {MAX_SAMPLED_FEATURES:,} that a model may have: leave columns out"
            f" ({kind_option('COLUMN', 'skip')}), or sample with {named('features')} no"
        )
    report = describe_encoded(features, encoding, notes=[str(match), *left_out, *missing])
    report["unrated"] = match.described - match.matched
    report["doubts"] = doubts
    return features, report


def describe_encoded(
    features: Features | None, encoding: Encoding, *, notes: list[str]
) -> FeaturesReport:
    """Return what the summary says about features; they are None if no column could be used."""
    groups: dict[str, int] = {}
    unknown = 0
    if features is not None:
        groups = dict(Counter(features.groups))
        unknown = int((np.diff(features.indptr) == 0).sum())
    times = [column for column in encoding.columns if column.kind == "time"]
    return FeaturesReport(
        groups=groups,
        kinds={column.name: column.kind for column in encoding.columns if column.features},
        unknown=unknown,
        unrated=0,
        times={column.name: describe_families(column.families) for column in times},
        groups_of_times=[group for column in times for group in dict.fromkeys(column.groups)],
        parts=[],
        notes=notes,
        doubts=[],
    )


def _check_names(described: DescriptionTable, names: list[str], left_out: list[str]) -> None:
    """Raise InputError if there are no features or too many, or if a name is too long."""
    if not names:
        notes = "".join(f"\n  {note}" for note in left_out)
        raise InputError(f"{described.path} has no column that can be used{notes}")
    if len(names) > MAX_FEATURES:
        notes = "".join(f"\n  {note}" for note in left_out)
        raise InputError(
            f"{described.path} has {len(names)} features, more than {MAX_FEATURES}{notes}"
        )
    for name in names:
        if len(name.encode()) > MAX_ID_BYTES:
            raise InputError(
                f"{described.path} has a feature whose name begins with {name[:60]!r}, and has more"
                f" than {MAX_ID_BYTES} bytes"
            )


def _describe_missing(db: Session, described: DescriptionTable, encoding: Encoding) -> list[str]:
    """Say which words were taken for missing values, and how often; at most `SHOWN` columns."""
    counts = count_missing_words(db, described)
    for column in encoding.columns:
        if column.kind == "list" and described.words.get(column.name):
            for word, number in _missing_parts(db, described, column.name, encoding.separator):
                words = counts.setdefault(column.name, {})
                words[word] = words.get(word, 0) + number
    if not counts:
        return []
    columns = []
    for name, words in list(counts.items())[:SHOWN]:
        found = ", ".join(f"{word!r} ({number:,})" for word, number in words.items())
        columns.append(f"{name} {found}")
    if len(counts) > SHOWN:
        columns.append(f"and in {len(counts) - SHOWN:,} more columns")
    return [
        f"{described.path.name}: taken for missing values: {'; '.join(columns)} (if it is a value,"
        " write it in another way, or in JSON or Parquet)"
    ]


class _Match(NamedTuple):
    """Numbers of users (or items) with a row, with ratings, and with both; as text, a sentence."""

    entity: str
    described: int
    rated: int
    matched: int

    def __str__(self) -> str:
        return (
            f"{self.matched:,} of {self.rated:,} {self.entity}s with ratings have a row;"
            f" {self.described - self.matched:,} rows have no ratings"
        )


def _count_matches(db: Session, described: DescriptionTable) -> _Match:
    """Count the users (or items) with a row in the description, with ratings, and with both."""
    rated = distinct_names(described.entity)
    query = (
        f"SELECT count(d.id), count(r.id), count(*) FROM {described.name} d"
        f" FULL JOIN {rated} r ON d.id = r.id"
    )
    n_described, n_rated, n_either = db.execute(query).fetchall()[0]
    return _Match(described.entity, n_described, n_rated, n_described + n_rated - n_either)


def encode_new(
    entity: str, description: Description, encoding: Encoding, *, integers: bool
) -> tuple[Array, Features]:
    """Make features by an encoding that was learnt from another table; return names and features.

    Kinds and separator of the description are ignored; `integers` says whether names must be
    integers. Values that are not in the encoding are ignored. Raises InputError if the table is
    invalid or lacks columns of the encoding.
    """
    with open_small_session() as db:
        learnt = description._replace(
            separator=encoding.separator,
            categories={column.name: column.atoms for column in encoding.columns},
        )
        described = read_description(db, entity, learnt)
        _check_columns(described, encoding)
        if integers:
            refuse_text(db, described, "run")
        counts = _count_values(db, described, encoding.separator)
        for column in encoding.columns:
            if column.features and not counts[column.name].fits(column.kind):
                raise _wrong_values(db, described, column.name, column.kind)
        numbered = f"SELECT id, row_number() OVER (ORDER BY id) - 1 AS k FROM {described.name}"
        db.execute(f"CREATE TABLE {entity}s AS {numbered}")
        names = np.array(first_column(db, f"SELECT id FROM {entity}s ORDER BY k"), object)
        return names, apply(db, described, encoding, len(names))


def _check_columns(described: DescriptionTable, encoding: Encoding) -> None:
    """Raise InputError if a table lacks columns of the encoding, or a matrix has another width."""
    used = [column.name for column in encoding.columns if column.features]
    width = 0
    if described.matrix is not None:
        width = described.matrix.shape[1]
    if width == encoding.width and described.columns.keys() >= set(used):
        return
    found = f"has the columns {shortened(list(described.columns))}"
    if width:
        found = f"is a matrix of {width} columns"
    needed = f"the columns {shortened(used)}"
    if encoding.width:
        needed = f"a matrix of {encoding.width} columns"
    elif not width:
        lacking = [name for name in used if name not in described.columns]
        needed += f"; it lacks {shortened(lacking)}"
    advice = names_advice(described.entity)
    if encoding.width:
        advice = "For names of its rows, give features=(names, matrix)"
    raise InputError(
        f"{described.path} {found}, but the features of the run's {described.entity}s were made"
        f" from {needed}. {advice}"
    )


# ----------------------------------------------------------------------------------------- learning


def learn(
    db: Session, described: DescriptionTable, description: Description
) -> tuple[Encoding, list[str]]:
    """Return the encoding of a table's columns, and notes on columns that are left out.

    Raises InputError if a column is invalid.
    """
    if described.matrix is not None:
        return Encoding(width=described.matrix.shape[1]), []
    counts = _count_values(db, described, description.separator)
    encodings: dict[str, ColumnEncoding] = {}
    numeric: dict[str, Kind] = {}
    left_out: dict[str, list[str]] = {}
    of_times: list[str] = []
    for name in described.columns:
        kind, reason = _choose_kind(described, name, counts.get(name))
        if kind == "time":
            learnt, notes = learn_time_column(db, described, name)
            of_times += notes
            if learnt is not None:
                encodings[name] = learnt
                continue
            kind = counts[name].guess_without_dates()
        if kind in ("number", "flag"):
            if not counts[name].fits(kind):
                raise _wrong_values(db, described, name, kind)
            numeric[name] = kind
        elif kind != "skip":
            encodings[name], reason = _learn_categories(
                db, described, name, kind, filled=counts[name].filled, description=description
            )
        if reason:
            left_out.setdefault(reason, []).append(name)
    for name, numbers in _read_numbers(db, described, numeric):
        encodings[name] = _learn_numbers(described, name, numeric[name], numbers.value)
    columns = [encodings.get(name, ColumnEncoding(name, "skip")) for name in described.columns]
    notes = of_times + _describe_left_out(described.path.name, left_out)
    encoding = Encoding(
        _share_group(described, columns),
        description.separator,
        of_names=is_of_names(description),
    )
    return encoding, notes


def _count_values(
    db: Session, described: DescriptionTable, separator: str
) -> dict[str, ColumnCounts]:
    """Count the values of columns, unless they are left out, by name."""
    used = [name for name in described.columns if described.kinds.get(name) != "skip"]
    columns = [described.columns[name] for name in used]
    counts = count_values(db, described.name, columns, separator)
    return {name: counts[described.columns[name]] for name in used}


def _choose_kind(
    described: DescriptionTable, name: str, counts: ColumnCounts | None
) -> tuple[Kind, str]:
    """Return the kind of a column, and the reason if it is left out although nobody says so."""
    if counts is None:
        return "skip", ""
    if counts.distinct < 2:
        return "skip", "all its values are the same, or missing"
    return described.kinds.get(name) or counts.guess(), ""


def _share_group(
    described: DescriptionTable, columns: list[ColumnEncoding]
) -> tuple[ColumnEncoding, ...]:
    """Return the encodings of columns, in which many guessed flags share one group.

    A group of one feature learns next to nothing about the strength of its effect, so thousands of
    them would fit noise.
    """
    alone = [
        column.name
        for column in columns
        if column.kind == "flag" and column.name not in described.kinds and "=" not in column.name
    ]
    if len(alone) <= _MANY_FLAGS:
        return tuple(columns)
    group = "flags"
    while group in described.columns:
        group += "_"
    shared = set(alone)
    return tuple(
        dataclasses.replace(column, group=group) if column.name in shared else column
        for column in columns
    )


def _describe_left_out(file: str, left_out: dict[str, list[str]]) -> list[str]:
    """Say which columns are left out, by the reason; the first `SHOWN` reasons are told."""
    notes = []
    for reason, names in list(left_out.items())[:SHOWN]:
        if len(names) == 1:
            notes.append(f"{file}: {names[0]} is left out: {reason}")
        else:
            notes.append(f"{file}: {shortened(names)} are left out, each because {reason}")
    n_more = sum(len(names) for names in list(left_out.values())[SHOWN:])
    if n_more:
        notes.append(f"{file}: {n_more:,} more columns are left out for like reasons")
    return notes


def _learn_categories(
    db: Session,
    described: DescriptionTable,
    name: str,
    kind: Kind,
    *,
    filled: int,
    description: Description,
) -> tuple[ColumnEncoding, str]:
    """Return the encoding of a column of categories, and the reason if the column is left out.

    `filled` is the number of its values.
    """
    atoms_sql = _select_atoms(described, name, kind, description.separator)
    most = MAX_LIST_VALUES if kind == "list" else MAX_CATEGORIES
    atoms = first_column(
        db, f"SELECT DISTINCT atom FROM ({atoms_sql}) ORDER BY atom LIMIT {most + 1}"
    )
    limit: float = most
    if name not in description.kinds and kind == "list":
        is_certain = name in described.kinds
        limit = _most_guessed_values(db, atoms_sql, atoms, is_certain=is_certain)
    elif name not in description.kinds:
        limit = min(most, max(_FEW, filled / 2))
    if 0 < len(atoms) <= limit:
        return ColumnEncoding(name, kind, tuple(atoms)), ""
    number = f"{len(atoms):,}" if len(atoms) <= most else f"more than {most:,}"
    reason = f"{number} different values in {filled:,} rows are too many for a {kind}"
    if len(atoms) <= most:
        reason += f"; if it is a {kind}, give {kind_option(name, kind)}"
    return ColumnEncoding(name, "skip"), reason


def _most_guessed_values(
    db: Session, atoms_sql: str, atoms: list[str], *, is_certain: bool
) -> float:
    """Return how many different values the lists of a column may have if users chose no kind.

    Texts with separators in them are no lists if few of their parts occur twice. Codes are.
    """
    if is_certain or all(map(str.isdecimal, atoms)):
        return MAX_SAMPLED_FEATURES
    n_values = int(scalar(db, f"SELECT count(*) FROM ({atoms_sql})"))
    return min(MAX_SAMPLED_FEATURES, max(_FEW, n_values / 2))


def _learn_numbers(
    described: DescriptionTable, name: str, kind: Kind, x: Float64
) -> ColumnEncoding:
    """Return the encoding of a column of numbers or flags; raise InputError if they do not fit."""
    if kind == "flag":
        return ColumnEncoding(name, kind, mean=float(x.mean()))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(x.mean())
        sd = float(x.std())
    if not np.isfinite([mean, sd]).all() or sd == 0:
        raise _too_large(described, name)
    return ColumnEncoding(name, "number", (), mean, sd)


def _wrong_values(db: Session, described: DescriptionTable, name: str, kind: Kind) -> InputError:
    """Return the error for a column of numbers or flags that has other values."""
    c = described.columns[name]
    wrong = f"NOT {is_number(c)}" if kind == "number" else f"{as_flag(c)} IS NULL"
    rows = db.execute(
        f"SELECT rowid, {c} FROM {described.name} WHERE {c} IS NOT NULL AND {wrong} LIMIT {SHOWN}"
    ).fetchall()
    where = described.where([row for row, _ in rows])
    texts = ", ".join(repr(text) for _, text in rows)
    option = f"{kind_option(name, 'category')} (or list, skip)"
    return InputError(
        f"{described.path}, {where}: the {kind} {name} is {texts}; correct it, leave the cell"
        f" empty, or give {option}"
    )


def _too_large(described: DescriptionTable, name: str) -> InputError:
    return InputError(
        f"{described.path}: the numbers in {name} are too large or too close to each other"
    )


# ----------------------------------------------------------------------------------------- applying


def _joined(pieces: list[Entries]) -> Entries:
    """Return all entries, ordered by row and feature."""
    entries = join(pieces)
    return select(entries, np.lexsort((entries.feature, entries.position)))


def _without_zeros(entries: Entries) -> Entries:
    """Return ordered entries without zeros; a row of zeros keeps the first, so that it is known."""
    used = entries.value != 0
    starts = np.flatnonzero(np.diff(entries.position, prepend=-1))
    used[starts] |= ~np.logical_or.reduceat(used, starts)
    return select(entries, used)


class _Flag(NamedTuple):
    """A flag: the number of its feature, its mean, and the rows in which it is not missing."""

    feature: int
    mean: float
    rows: Int64

    def missing(self, described_rows: Int64) -> Entries:
        """Return entries of rows in which the flag is missing: its mean, where 0 would say no."""
        rows = np.setdiff1d(described_rows, self.rows)
        return Entries(rows, np.full(len(rows), self.feature), np.full(len(rows), self.mean))


def apply(db: Session, described: DescriptionTable, encoding: Encoding, n: int) -> Features:
    """Make features from a table by an encoding; the table must have all columns of the encoding.

    `db` has the table ``{entity}s`` (id, k) of n users or items; row k of the features belongs to
    the user or item with number k. Raises InputError if numbers are too large.
    """
    pieces = [Entries(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    if described.matrix is not None:
        pieces.append(_matrix_entries(db, described))
    first = _first_features(encoding)
    columns = {column.name: column for column in encoding.columns if column.features}
    numeric = [name for name, column in columns.items() if column.kind in ("number", "flag")]
    flags = []
    for name, numbers in _read_numbers(db, described, numeric):
        pieces.append(_number_entries(described, columns[name], first[name], numbers))
        if columns[name].kind == "flag":
            flags.append(_Flag(first[name], columns[name].mean, numbers.row))
    for name, column in columns.items():
        if column.kind == "time":
            of_time = time_entries(db, described, column)
            pieces.append(of_time._replace(feature=of_time.feature + first[name]))
        elif column.kind not in ("number", "flag"):
            k, feature = _categories(db, described, column, encoding.separator)
            pieces.append(Entries(k, feature + first[name], np.ones(len(k))))
    described_rows = np.unique(np.concatenate([piece.position for piece in pieces]))
    pieces += [flag.missing(described_rows) for flag in flags if flag.mean]
    entries = _joined(pieces)
    if any(column.group for column in encoding.columns):
        entries = _without_zeros(entries)
    return Features(
        indptr=np.append(0, np.cumsum(np.bincount(entries.position, minlength=n))).astype(np.int64),
        indices=entries.feature.astype(np.int32),
        values=entries.value.astype(np.float32),
        names=tuple(encoding.names),
        groups=tuple(encoding.groups),
        encoding=encoding.dump(),
    )


def _matrix_entries(db: Session, described: DescriptionTable) -> Entries:
    """Return the entries of a matrix, in rows by the numbers of users or items."""
    numbers = db.execute(
        f"SELECT r, k FROM {described.name} JOIN {described.entity}s USING (id)"
    ).fetchnumpy()
    cells = described.matrix[numbers["r"]].tocoo()
    row = numbers["k"][cells.row].astype(np.int64)
    return Entries(row, cells.col.astype(np.int64), cells.data)


def _first_features(encoding: Encoding) -> dict[str, int]:
    """Return the number of each column's first feature."""
    first = {}
    number = 0
    for column in encoding.columns:
        first[column.name] = number
        number += len(column.features)
    return first


def _read_numbers(
    db: Session, described: DescriptionTable, names: Iterable[str]
) -> Iterator[tuple[str, Numbers]]:
    """Yield the numbers of columns of numbers and flags, in rows of the features, by name."""
    columns = {name: described.columns[name] for name in names}
    return read_numbers(db, described.name, f"{described.entity}s", columns)


def _number_entries(
    described: DescriptionTable, column: ColumnEncoding, feature: int, numbers: Numbers
) -> Entries:
    """Return the entries of a column of numbers or flags, which is the feature number `feature`."""
    x = numbers.value
    if column.kind == "number":
        with np.errstate(over="ignore", invalid="ignore"):
            x = (x - column.mean) / column.sd
    if not (np.abs(x) <= np.finfo(np.float32).max).all():
        raise _too_large(described, column.name)
    return Entries(numbers.row, np.full(len(x), feature), x)


def _categories(
    db: Session, described: DescriptionTable, column: ColumnEncoding, separator: str
) -> tuple[Int64, Int64]:
    """Return the row, and the position among the column's features, of every known category."""
    positions = {
        "atom": np.array(column.atoms, object),
        "feature": np.arange(len(column.atoms)),
    }
    db.register("learnt", positions)
    atoms_sql = _select_atoms(described, column.name, column.kind, separator)
    found = db.execute(
        f"SELECT k, feature FROM ({atoms_sql}) JOIN learnt USING (atom)"
        f" JOIN {described.entity}s USING (id)"
    ).fetchnumpy()
    return found["k"], found["feature"]


def _select_atoms(described: DescriptionTable, name: str, kind: Kind, separator: str) -> str:
    """Return SQL for the distinct pairs (id, atom) of a user or item and one of its categories."""
    is_empty = is_missing("atom", described.words[name])
    atoms = _select_parts(described, name, kind, separator)
    return f"SELECT DISTINCT id, atom FROM ({atoms}) WHERE NOT {is_empty}"


def _select_parts(described: DescriptionTable, name: str, kind: Kind, separator: str) -> str:
    """Return SQL for the pairs (id, atom) of a user or item and a part of its value.

    A category is its own part, the parts of a list are its values, and that of a year its decade.
    """
    column = described.columns[name]
    atom = column
    if kind == "list":
        atom = f"unnest(string_split({column}, {literal(separator)}))"
    elif kind == "year":
        year = f"nullif(regexp_extract({column}, '{YEAR_AT_END}', 1), '')::INTEGER"
        atom = f"({year} // 10 * 10)::VARCHAR || 's'"
    inner = f"SELECT id, {atom} AS atom FROM {described.name} WHERE {column} IS NOT NULL"
    if described.has_parts:  # parts that differ only in spaces are different names
        return inner
    return f"SELECT id, trim(atom) AS atom FROM ({inner})"


def _missing_parts(
    db: Session, described: DescriptionTable, name: str, separator: str
) -> list[tuple[str, int]]:
    """Return words in lists that stand for a missing value, and how often they occur."""
    parts = _select_parts(described, name, "list", separator)
    is_word = f"atom != '' AND {is_missing('atom', described.words[name])}"
    query = f"SELECT atom, count(*) FROM ({parts}) WHERE {is_word} GROUP BY atom ORDER BY atom"
    return [(word, number) for word, number in db.execute(query).fetchall()]
