"""Makes a ratings file from tables of ratings (files or arrays), in bounded memory; an error leaves
no file.

DuckDB reads all ratings into a table ``raw``, assigns numbers to users and items, merges repeated
ratings, splits off the test ratings, and sorts the ratings by row and column. All randomness comes
from MD5 hashes of the seed and the original names, so the result depends neither on the order of
the lines nor on versions of libraries. Chains divide the rows and columns of the file into blocks
(`dsgmcmc.model.blocks`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dsgmcmc.data.codes import Codes, find_codes
from dsgmcmc.data.columns import (
    ROLES,
    assign_columns,
    clicks_advice,
    find_doubts,
    names_recur,
    parse_columns,
)
from dsgmcmc.data.descriptions import Description, DescriptionTable, check_kinds, load_description
from dsgmcmc.data.features import FeaturesReport, encode
from dsgmcmc.data.precision import find_bad_scale, find_coarseness
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings_format import (
    AGES,
    MAX_ID_BYTES,
    MAX_SIDE,
    SIDES,
    SPLITS,
    Times,
    row_slabs,
)
from dsgmcmc.data.ratings_writer import Origin, Sizes, Slab, write_slabs
from dsgmcmc.data.session import (
    Session,
    as_number,
    interruptible,
    is_integer,
    is_rounded,
    open_session,
)
from dsgmcmc.data.tables import (
    SHOWN,
    TableFile,
    first_column,
    is_number,
    open_table,
    scalar,
    trim_names,
)
from dsgmcmc.data.wide import describe_wide, inspect_wide, load_wide, parse_missing
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.storage.files import check_target
from dsgmcmc.types import Array, Int64

_SLAB = 1_000_000  # ratings in NumPy arrays at a time
_NAME_BYTES = 1 << 26  # bytes of names in NumPy arrays at a time
_TYPICAL = 100_000  # times that show the unit of all times of a file
_BINS = (
    1 << 20
)  # of the range of ratings: values in one bin count as one when codes for "not rated" are searched

# SQL for the value and time of a merged rating, by --duplicates; `place` orders ratings by time,
# then by input line
_MERGED = {
    "first": ("arg_min(value, place)", "min(time)"),
    "last": ("arg_max(value, place)", "max(time)"),
    "mean": ("avg(value ORDER BY value)::FLOAT", "max(time)"),
}
_PLACE_OF_DUPLICATE = "{'time': coalesce(time, '-infinity'::DOUBLE), 'line': raw.rowid}"

# place: rank by time within a row, with ties in order of column (or within a column, with ties in
# order of row); page: rank of a rating's second among the distinct seconds; both are ranks among
# training and test ratings together
_PLACE = "(row_number() OVER (PARTITION BY {0} ORDER BY time, {1}) - 1)::INTEGER"
_PAGE = "(dense_rank() OVER (PARTITION BY {0} ORDER BY floor(time)) - 1)::INTEGER"
_TIMES = {
    "rows_place": _PLACE.format("row", "col"),
    "rows_page": _PAGE.format("row"),
    "cols_place": _PLACE.format("col", "row"),
    "cols_page": _PAGE.format("col"),
}


class Summary(NamedTuple):
    """Summary of a prepared ratings file.

    Attributes
    ----------
    columns : str
        Roles of the columns in the first input file.
    features : dict of str to FeaturesReport
        For "user" and "item", if they have features.
    not_rated : float
        Share of the ratings whose values probably mean "not rated".
    codes : list of float
        These values.
    missing : int
        Number of ratings that were left out because their values mean "not rated".
    duplicates : int
        Number of ratings that were left out or averaged because another rating has the same user
        and item.
    doubts : list of str
        What speaks against the columns that were taken for users, items and ratings, against their
        names, and for another unit of time than seconds.
    """

    path: str
    users: int
    items: int
    ratings: int
    train: int
    test: int
    mean: float
    minimum: float
    maximum: float
    content_sha256: str
    columns: str
    features: dict[str, FeaturesReport]
    not_rated: float
    codes: list[float]
    missing: int
    duplicates: int
    doubts: list[str]


def prepare_ratings(
    inputs: Sequence[str | Path | TableFile],
    out: str | os.PathLike[str],
    *,
    columns: str | None = None,
    test_fraction: float | None = None,
    seed: int = 0,
    split: Literal["random", "temporal"] = "random",
    test: str | None = None,
    timestamps: bool = False,
    duplicates: str = "last",
    matrix: bool = False,
    missing: Any = None,
    described: Mapping[str, Description] | None = None,
    memory: int | None = None,
    force: bool = False,
    report: Callable[[str], None] = lambda stage: None,
) -> Summary:
    """Make a ratings file from tables of ratings.

    Parameters not listed here are options of ``dsgmcmc prepare``.

    Raises InputError if an argument or an input file is invalid; then no file is written.

    Parameters
    ----------
    inputs : files, or tables of arrays
    test_fraction : float
        Share of the ratings, in [0, 1), that become test ratings; default 0.1.
    described : dict of str to Description
        Features by "user" and "item". Users and items with features belong to the matrix even
        without ratings.
    memory : int
        Memory limit of the process in bytes; default 60 % of the memory that it may use.
    report : callable(stage)
        Called when a stage begins.
    """
    if matrix and (timestamps or split == "temporal"):
        raise InputError(
            f"{named('matrix')}: a matrix has no timestamps: leave out --timestamps and --split"
            " temporal"
        )
    if test is not None and (test_fraction is not None or split == "temporal"):
        raise InputError(
            "--test gives the test ratings: leave out --test-fraction and --split temporal"
        )
    fraction = 0.1 if test_fraction is None else test_fraction
    if not 0 <= fraction < 1:
        raise InputError(
            f"{named('test_fraction')} {fraction}: expected at least 0 and less than 1"
        )
    column_names, out = parse_columns(columns, ("user",) if matrix else ROLES), Path(out)
    left_out = parse_missing(missing, matrix)
    described = {
        kind: x._replace(label=x.label or column_names.get(kind, ""))
        for kind, x in (described or {}).items()
    }
    temporal, timed = split == "temporal", timestamps or split == "temporal"
    sources = [
        (source if isinstance(source, TableFile) else Path(source), False) for source in inputs
    ]
    sources += [(Path(test), True)] if test else []
    if any(isinstance(source, Path) and source.resolve() == out.resolve() for source, _ in sources):
        raise InputError(f"{out} is one of the inputs; give another name for the output")
    check_target(out, force)

    def work(db: Session) -> Summary:
        tables = [
            inspect(db, source, column_names, timed, left_out if matrix else None)
            for source, _ in sources
        ]
        if sum(not positions for _, positions in tables) > 1 + bool(test):
            raise InputError(
                "several matrices need names of rows: the first column, or --columns user=NAME"
            )
        units: list[str] = []
        for (table, positions), (_, is_test) in zip(tables, sources, strict=True):
            report(f"reading {table.path.name}")
            units += load(db, table, positions, timed, is_test, left_out, report)
        n_missing = _leave_out(db, left_out)
        report("numbering users and items")
        features = {
            entity: load_description(db, entity, given) for entity, given in described.items()
        }
        check_kinds(features, described)
        lengths = _number_entities(db, seed, features)
        found = _codes(db)
        n, low, high = db.execute("SELECT count(*), min(rating), max(rating) FROM raw").fetchall()[
            0
        ]
        first = first_column(db, "SELECT rating FROM raw LIMIT 1000")
        doubts = [str(found)] * bool(found.values) + find_doubts(lengths, n, first, low, high)
        encoded = {
            entity: encode(db, features[entity], given, lengths[entity])
            for entity, given in described.items()
        }
        rows, cols = ("item", "user") if lengths["item"] > lengths["user"] else ("user", "item")
        report("matching names")
        n_duplicates = _make_cells(db, seed, duplicates, rows, cols)
        db.execute("DROP TABLE raw")
        report("splitting")
        test_sql = "test" if test else _test_condition(db, fraction, temporal)
        report("sorting")
        indptr, n_test = _sort_cells(db, test_sql, lengths[rows], timestamps, temporal)
        report(f"writing {out.name}")
        sides = dict(zip(SIDES, (rows, cols), strict=True))
        attributes = write_slabs(
            out,
            Sizes(lengths[rows], lengths[cols], int(indptr[-1]) - n_test, n_test),
            {side: _names(db, entity) for side, entity in sides.items()},
            _slabs(db, indptr),
            features={
                side: encoded[entity][0] for side, entity in sides.items() if entity in encoded
            },
            origin=Origin(
                seed=seed,
                transposed=rows == "item",
                source=", ".join(table.path.name for table, _ in tables),
            ),
            force=force,
        )
        with Ratings(out) as written:
            doubts += written.doubts() + units
        return Summary(
            path=str(out),
            users=lengths["user"],
            items=lengths["item"],
            ratings=int(indptr[-1]),
            train=attributes["nnz"],
            test=attributes["nnz_test"],
            mean=attributes["mean"],
            minimum=float(attributes["min"]),
            maximum=float(attributes["max"]),
            content_sha256=attributes["content_sha256"],
            columns=_describe_roles(*tables[0], timed),
            features={entity: about for entity, (_, about) in encoded.items()},
            not_rated=found.share,
            codes=found.values,
            missing=n_missing,
            duplicates=n_duplicates,
            doubts=doubts + [doubt for _, about in encoded.values() for doubt in about["doubts"]],
        )

    with open_session(out.parent, memory) as db:
        return interruptible(db, lambda: work(db))


# ------------------------------------------------------------------------------------------ reading


def inspect(
    db: Session,
    source: Path | TableFile,
    columns: dict[str, str],
    timed: bool,
    missing: Sequence[str] | None = None,
) -> tuple[TableFile, dict[str, int]]:
    """Return the table in a file, and the positions of its columns by role; `columns` are from
    `parse_columns`.

    The roles are "user", "item", "rating" and, if the file has it, "timestamp". Without "rating",
    all ratings are 1. With `missing`, codes for "not rated", the file is a matrix, and the roles
    are those of `inspect_wide`. Raises InputError if the file is empty, is not a table, or lacks a
    required column; `timed` requires the timestamp.
    """
    if isinstance(source, Path):
        path, named_by = source, set(columns.values())
        if missing is not None and (wide := inspect_wide(db, path, columns, missing)) is not None:
            return wide
        source = open_table(db, path, lambda fields: not any(map(is_number, fields)))
        if (
            source.header
            and not (named_by & set(source.names))
            and names_recur(source.names, source.sample)
        ):
            source = open_table(db, path, lambda fields: False)
        if source.kind == "matrix" and (columns or timed):
            raise InputError(
                f"{source.path} is a matrix: leave out {named('columns')}, --timestamps and --split"
            )
    names = source.names if source.header else None
    return source, assign_columns(source.path, names, source.width, columns, timed, source.sample)


def load(
    db: Session, table: TableFile, columns: dict[str, int], timed: bool, test: bool, *wide: Any
) -> list[str]:
    """Append a file's ratings to the table ``raw``, in the order of the file; times are in seconds,
    or NULL.

    Returns the note of `_scale_times`.

    Raises InputError if the file cannot be read, has no ratings, or has rows with missing,
    non-numeric, infinite or NaN values (including timestamps, if `timed`). The error gives the
    number of bad rows and the first five.
    """
    db.execute(
        "CREATE TABLE IF NOT EXISTS raw (user_id TEXT, item_id TEXT, rating DOUBLE, time DOUBLE,"
        " test BOOLEAN)"
    )
    before = scalar(db, "SELECT count(*) FROM raw")
    if "item" in columns:
        _load_long(db, table, columns, test)
        _refuse_bad_rows(db, table, timed, before)
    else:
        load_wide(db, table, columns, test, *wide)
    if scalar(db, "SELECT count(*) FROM raw") == before:
        raise InputError(f"{table.path} has no ratings")
    for column in ("user_id", "item_id"):
        trim_names(db, "raw", column, before)
    return _scale_times(db, table, before)


def _load_long(db: Session, table: TableFile, columns: dict[str, int], test: bool) -> None:
    """Append the ratings of a file with a row for each rating."""
    text = {
        role: table.name(k) if role in ("user", "item") else f"c{k}::VARCHAR"
        for role, k in columns.items()
    }
    rating, time, number = "1", "NULL", columns.get("rating")
    if number is not None:
        as_text = table.kind == "json" or "VARCHAR" in table.types[number : number + 1]
        rating = f"try_cast(c{number} AS DOUBLE)"
        if as_text:
            as_level = f"WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE {as_number(text['rating'])}"
            rating = f"CASE lower({text['rating']}) {as_level} END"
    if "timestamp" in columns:
        time = (
            f"coalesce({as_number(text['timestamp'])}, epoch(try_cast({text['timestamp']} AS"
            " TIMESTAMPTZ)))"
        )
    query = (
        f"INSERT INTO raw SELECT {text['user']}, {text['item']}, {rating}, {time}, {test} FROM"
        " {table}"
    )
    table.create(db, query, number if table.kind == "text" else None)


def _scale_times(db: Session, table: TableFile, before: int) -> list[str]:
    """Convert a file's times to seconds if their size tells that their unit is smaller; return a
    note that says so.

    Times before the year 5138 are below 10^11 seconds. The typical time decides, so that a few
    strange ones do not.
    """
    step = 1 + (scalar(db, "SELECT count(*) FROM raw") - before) // _TYPICAL
    times = (
        f"FROM raw WHERE rowid >= {before} AND rowid % {step} = 0 AND isfinite(time) AND time != 0"
    )
    typical = scalar(db, f"SELECT approx_quantile(abs(time), 0.5) {times}") or 0
    for least, size, unit in (
        (1e17, 1e9, "nanoseconds"),
        (1e14, 1e6, "microseconds"),
        (1e11, 1e3, "milliseconds"),
    ):
        if typical > least:
            db.execute(f"UPDATE raw SET time = time / {size} WHERE rowid >= {before}")
            return [f"the times of {table.path.name} are taken for {unit}, by their size"]
    return []


def _refuse_bad_rows(db: Session, table: TableFile, timed: bool, before: int) -> None:
    """Raise InputError if a file has invalid values; its rows in ``raw`` begin at row `before`."""
    blank = "{0} IS NULL OR ({0} < '!' AND trim({0}) = '')"  # to trim all names would take longer
    faults = {
        "the user is missing": blank.format("user_id"),
        "the item is missing": blank.format("item_id"),
        "the rating is missing or not a number": "rating IS NULL",
        "the rating is not finite": "NOT isfinite(rating)",
        # a stored name would end at its first NUL byte
        "a name is a float that may be rounded: write integers": (
            f"{is_rounded('user_id')} OR {is_rounded('item_id')}"
        ),
        "a name contains a NUL byte": "contains(user_id, chr(0)) OR contains(item_id, chr(0))",
    }
    if timed:
        faults["the timestamp is missing or not a time"] = "time IS NULL OR NOT isfinite(time)"
    cases = " ".join(f"WHEN {condition} THEN '{fault}'" for fault, condition in faults.items())
    rows = db.execute(
        f"SELECT rowid - {before}, CASE {cases} END AS fault, user_id, item_id, rating, count(*)"
        f" OVER () FROM raw WHERE rowid >= {before} AND fault IS NOT NULL ORDER BY rowid LIMIT"
        f" {SHOWN}"
    ).fetchall()
    if rows:
        many = f"{rows[0][-1]} rows have" if len(rows) > 1 else "1 row has"
        faulty = (
            f"{table.path}: {many} missing, non-numeric, rounded, infinite or NaN values; correct"
            " or remove them"
        )
        shown = (
            f"{table.where(row)}: {fault} (user {u}, item {i}, rating {x})"
            for row, fault, u, i, x, _ in rows
        )
        raise InputError("\n  ".join([faulty, *shown]))


def _describe_roles(table: TableFile, columns: dict[str, int], timed: bool) -> str:
    """Describe the roles of the columns, so that users can check them."""
    if "item" not in columns:
        return describe_wide(table, columns)
    if table.kind == "matrix":
        return "user row, item column"
    roles = [role for role in columns if timed or role != "timestamp"]
    text = ", ".join(f"{role} {table.names[columns[role]]}" for role in roles)
    return text if "rating" in columns else f"{text}, no rating column: treated as clicks"


def _leave_out(db: Session, missing: Sequence[str]) -> int:
    """Delete the ratings at values that mean "not rated", in single precision; return their number."""
    numbers = [f"{float(text)!r}::FLOAT" for text in missing if is_number(text)]
    if not numbers:
        return 0
    number = int(scalar(db, f"DELETE FROM raw WHERE rating::FLOAT IN ({', '.join(numbers)})"))
    if not scalar(db, "SELECT count(*) FROM raw WHERE NOT test"):
        raise InputError(f"{named('missing')}={','.join(missing)} leaves no training ratings")
    return number


def _codes(db: Session) -> Codes:
    """Return the values that probably mean "not rated"."""
    low, high = scalar(db, "SELECT [min(rating), max(rating)] FROM raw")
    bins = f"floor((rating - {low!r}) / {high - low or 1!r} * {_BINS})"
    query = f"SELECT min(rating) AS value, count(*) AS n FROM raw GROUP BY {bins} ORDER BY value"
    return find_codes(*db.execute(query).fetchnumpy().values())


# ---------------------------------------------------------------------------------------- arranging


def _hash(*fields: str) -> str:
    """Return SQL for the first 64 bits of the MD5 hash of text fields."""
    joined = ", chr(31), ".join(fields)
    return f"('0x' || left(md5(concat({joined})), 16))::UBIGINT"


def _number_entities(
    db: Session, seed: int, features: Mapping[str, DescriptionTable]
) -> dict[str, int]:
    """Make the tables ``users`` and ``items`` (id, k), k from 0 in a seeded random order; return
    their lengths.

    Users and items in `features`, by "user" and "item", are included even without ratings. Raises
    InputError if there is only one user or item, or there are too many, if all ratings are equal
    and not 1, or if the scale of the ratings is outside the range of float32, or too fine for it.
    """
    low, high = db.execute("SELECT min(rating), max(rating) FROM raw").fetchall()[0]
    if low == high != 1:  # clicks are ratings that all equal 1
        raise InputError(
            f"all ratings are {low:.15g}: there is nothing to learn from them; {clicks_advice()}"
        )
    if bad := find_bad_scale(low, high) or find_coarseness("ratings", low, high):
        raise InputError("; ".join([bad, *find_doubts({}, 0, [], low, high)]))
    sizes = {}
    for entity in ("user", "item"):
        order = _hash(f"'{seed}'", f"'{entity}'", "id")
        described_ids = (
            f" UNION SELECT id FROM {features[entity].name}" if entity in features else ""
        )
        ids = f"(SELECT DISTINCT {entity}_id AS id FROM raw{described_ids})"
        numbered = (
            f"SELECT id, (row_number() OVER (ORDER BY {order}, id) - 1)::BIGINT AS k FROM {ids}"
        )
        db.execute(f"CREATE TABLE {entity}s AS {numbered}")
        n, longest = db.execute(f"SELECT count(*), max(strlen(id)) FROM {entity}s").fetchall()[0]
        if not 2 <= n <= MAX_SIDE:
            raise InputError(
                f"{n} {entity}(s): a matrix needs at least two, and at most {MAX_SIDE}"
            )
        if longest > MAX_ID_BYTES:
            raise InputError(
                f"the {entity} column has a name of {longest} bytes: at most {MAX_ID_BYTES} are"
                " allowed"
            )
        sizes[entity] = n
    return sizes


def _make_cells(db: Session, seed: int, duplicates: str, rows: str, cols: str) -> int:
    """Turn ``raw`` into the table ``cells`` (row, col, value, time, key, test).

    `rows` and `cols` are "user" and "item", or the reverse; ``key`` is the seeded hash of the names
    of the user and the item. Ratings of the same user and item are merged as `duplicates` says.
    Returns the number of ratings that merging removes. Raises InputError if a pair is both in the
    training and in the test ratings, or if a pair is repeated and `duplicates` is "error".
    """
    key = _hash(f"'{seed}'", "'pair'", "raw.user_id", "raw.item_id")
    numbered = (
        f"SELECT r.k::INTEGER AS row, c.k::INTEGER AS col, rating::FLOAT AS value, time, {key} AS"
        f" key, test, {_PLACE_OF_DUPLICATE} AS place FROM raw JOIN {rows}s r ON r.id ="
        f" raw.{rows}_id JOIN {cols}s c ON c.id = raw.{cols}_id"
    )
    before = scalar(db, f"CREATE TABLE cells AS SELECT * EXCLUDE (place) FROM ({numbered})")
    if not scalar(
        db, "SELECT count(*) FROM (SELECT key FROM cells GROUP BY key HAVING count(*) > 1)"
    ):
        return 0
    _refuse_pairs(
        db,
        rows,
        cols,
        "bool_or(test) AND NOT bool_and(test)",
        "in both the training and the test files",
    )
    if duplicates == "error":
        advice = f"rated more than once (to merge them: {named('duplicates')} first, last or mean)"
        _refuse_pairs(db, rows, cols, "count(*) > 1", advice)
    value, time = _MERGED[duplicates]
    merged = (
        f"SELECT row, col, {value} AS value, {time} AS time, any_value(key) AS key, test FROM"
        f" ({numbered})"
    )
    return int(
        before - scalar(db, f"CREATE OR REPLACE TABLE cells AS {merged} GROUP BY row, col, test")
    )


def _refuse_pairs(db: Session, rows: str, cols: str, condition: str, fault: str) -> None:
    """Raise InputError, with the first pairs, if pairs of a row and a column in ``cells`` meet a
    condition.
    """
    pairs = db.execute(
        "SELECT users.id, items.id, ratings, count(*) OVER () FROM (SELECT row, col, list(value"
        f" ORDER BY test, value)[:{SHOWN}] AS ratings FROM cells GROUP BY row, col HAVING"
        f" {condition}) JOIN {rows}s ON {rows}s.k = row JOIN {cols}s ON {cols}s.k = col ORDER BY"
        f" ALL LIMIT {SHOWN}"
    ).fetchall()
    if pairs:
        message = f"{pairs[0][-1]} pair(s) of a user and an item are {fault}:"
        for user, item, values, _ in pairs:
            message += (
                f"\n  user {user}, item {item}: rated {', '.join(f'{value:g}' for value in values)}"
            )
        raise InputError(message)


def _test_condition(db: Session, fraction: float, temporal: bool) -> str:
    """Return SQL that is true for test ratings: exactly round(fraction * N) of the N ratings in
    ``cells``.

    In a random split, the test ratings have the smallest hashes; in a temporal split, they are the
    latest ratings, with ties broken by hash.
    """
    total = scalar(db, "SELECT count(*) FROM cells")
    n_test = int(fraction * total + 0.5)
    if n_test == 0:
        return "false"
    if n_test >= total:
        raise InputError(
            f"{named('test_fraction')} {fraction} of {total} ratings leaves no training ratings"
        )
    order = "time DESC, key" if temporal else "key"
    time, key = db.execute(
        f"SELECT time, key FROM cells ORDER BY {order} LIMIT 1 OFFSET {n_test - 1}"
    ).fetchall()[0]
    if temporal:
        return f"(time > {time!r}::DOUBLE OR (time = {time!r}::DOUBLE AND key <= {key}::UBIGINT))"
    return f"key <= {key}::UBIGINT"


def _sort_cells(
    db: Session, test_sql: str, n_rows: int, timestamps: bool, temporal: bool
) -> tuple[Int64, int]:
    """Make the table ``sorted`` (row, col, value, test) for a matrix of `n_rows` rows, ordered by
    row and column.

    With `timestamps` the table also has the places and pages of ratings
    (`dsgmcmc.data.ratings_format.Times`); with a `temporal` split, it also has their ages
    (`dsgmcmc.data.inner`).

    Returns
    -------
    indptr : (I+1,) int64
        Position in ``sorted`` at which each row's ratings, training and test together, begin; the
        last element is their total number.
    n_test : int
    """
    times = (
        "".join(f", {formula} AS {name}" for name, formula in _TIMES.items()) if timestamps else ""
    )
    if temporal:
        times += (
            f", (ntile({AGES}) OVER (PARTITION BY {test_sql} ORDER BY time DESC, key) -"
            " 1)::UTINYINT AS age"
        )
    db.execute(
        f"CREATE TABLE sorted AS SELECT row, col, value, {test_sql} AS test{times} FROM cells ORDER"
        " BY row, col"
    )
    db.execute("DROP TABLE cells")
    counts = db.execute("SELECT row, count(*) AS n FROM sorted GROUP BY row").fetchnumpy()
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    indptr[1 + counts["row"]] = counts["n"]
    np.cumsum(indptr, out=indptr)
    return indptr, int(scalar(db, "SELECT count(*) FROM sorted WHERE test"))


# ------------------------------------------------------------------------------------------ writing


def _slabs(db: Session, indptr: Int64) -> Iterator[Slab]:
    """Yield the ratings in the table ``sorted``, slab by slab."""
    for start, stop in row_slabs(indptr, _SLAB):
        cells = db.execute(
            f"SELECT * FROM sorted WHERE row >= {start} AND row < {stop} ORDER BY row, col"
        ).fetchnumpy()
        row, col = cells["row"], cells["col"]
        for part, mask in zip(SPLITS, (~cells["test"], cells["test"]), strict=True):
            ends = np.append(0, np.cumsum(np.bincount(row[mask] - start, minlength=stop - start)))
            times = None
            if "rows_place" in cells:
                times = {
                    side: Times(*(cells[f"{side}_{name}"][mask] for name in Times._fields))
                    for side in SIDES
                }
            ages = cells["age"][mask] if "age" in cells and part == "train" else None
            yield Slab(part, ends, col[mask], cells["value"][mask], times, ages)


def _names(db: Session, entity: str) -> Iterator[Array]:
    """Yield arrays of names: int64 if all are integers in canonical form, else UTF-8 padded to the
    longest name.
    """
    query = f"SELECT count(*), bool_and({is_integer()}), max(strlen(id)) FROM {entity}s"
    n, integers, longest = db.execute(query).fetchall()[0]
    named_by = f"SELECT id::{'BIGINT' if integers else 'VARCHAR'} AS id FROM {entity}s"
    step = max(1, _NAME_BYTES // (longest + 64))
    for start in range(0, n, step):
        piece = f"{named_by} WHERE k >= {start} AND k < {start + step} ORDER BY k"
        names = db.execute(piece).fetchnumpy()["id"]
        yield (
            names if integers else np.array([name.encode() for name in names], dtype=f"S{longest}")
        )
