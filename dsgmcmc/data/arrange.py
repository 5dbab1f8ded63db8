"""Numbers users and items, merges repeated ratings, splits off the test ratings, and sorts.

All randomness comes from MD5 hashes of the seed and the original names, so the result depends neither on the order of
the lines nor on the version of a library.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np

from dsgmcmc.data.columns import of_clicks
from dsgmcmc.data.ratings import MAX_ID_BYTES, MAX_SIDE
from dsgmcmc.data.ratings.format import AGES, find_bad_scale
from dsgmcmc.data.tables import SHOWN, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Int64

# SQL for the value and time of a merged rating, by --duplicates; `place` orders ratings by time, then by input line
_MERGED = {
    "first": ("arg_min(value, place)", "min(time)"),
    "last": ("arg_max(value, place)", "max(time)"),
    "mean": ("avg(value ORDER BY value)::FLOAT", "max(time)"),
}
_PLACE_OF_DUPLICATE = "{'time': coalesce(time, '-infinity'::DOUBLE), 'line': raw.rowid}"

# ratings with equal times are in the order of the other side, which is independent of the split
_PLACE = "(row_number() OVER (PARTITION BY {0} ORDER BY time, {1}) - 1)::INTEGER"
_PAGE = "(dense_rank() OVER (PARTITION BY {0} ORDER BY floor(time)) - 1)::INTEGER"
_TIMES = {
    "rows_place": _PLACE.format("row", "col"),
    "rows_page": _PAGE.format("row"),
    "cols_place": _PLACE.format("col", "row"),
    "cols_page": _PAGE.format("col"),
}


def _hash(*fields: str) -> str:
    """Return SQL for the first 64 bits of the MD5 hash of text fields."""
    joined = ", chr(31), ".join(fields)
    return f"('0x' || left(md5(concat({joined})), 16))::UBIGINT"


def number_entities(db: duckdb.DuckDBPyConnection, seed: int, described: Mapping[str, str]) -> dict[str, int]:
    """Make the tables ``users`` and ``items`` (id, k), k from 0 in a seeded random order; return their lengths.

    `described` maps "user" or "item" to a table whose column ``id`` names further users or items, with or without
    ratings. Raises InputError if there is a single user or item or there are too many, if all ratings are equal and
    not 1, or if the scale of the ratings is outside the range of float32.
    """
    low, high = db.execute("SELECT min(rating), max(rating) FROM raw").fetchall()[0]
    if low == high != 1:  # clicks are ratings that all equal 1
        raise InputError(f"all ratings are {low:g}: there is nothing to learn from them; {of_clicks()}")
    if bad := find_bad_scale(low, high):
        raise InputError(bad)
    sizes = {}
    for entity in ("user", "item"):
        order = _hash(f"'{seed}'", f"'{entity}'", "id")
        more = f" UNION SELECT id FROM {described[entity]}" if entity in described else ""
        db.execute(
            f"CREATE TABLE {entity}s AS "
            f"SELECT id, (row_number() OVER (ORDER BY {order}, id) - 1)::BIGINT AS k "
            f"FROM (SELECT DISTINCT {entity}_id AS id FROM raw{more})"
        )
        n, longest = db.execute(f"SELECT count(*), max(strlen(id)) FROM {entity}s").fetchall()[0]
        if not 2 <= n <= MAX_SIDE:
            raise InputError(f"{n} {entity}(s): a matrix needs two at least, and {MAX_SIDE} at most")
        if longest > MAX_ID_BYTES:
            raise InputError(f"a name of {longest} bytes in the {entity} column; at most {MAX_ID_BYTES} are allowed")
        sizes[entity] = n
    return sizes


def make_cells(db: duckdb.DuckDBPyConnection, seed: int, duplicates: str, rows: str, cols: str) -> int:
    """Turn ``raw`` into the table ``cells`` (row, col, value, time, key, test); `rows`, `cols`: "user" or "item".

    Ratings of the same user and item are merged as `duplicates` says; returns how many disappear. Raises InputError if
    a pair is both in the training and in the test ratings, or if a pair is repeated and `duplicates` is "error".
    """
    key = _hash(f"'{seed}'", "'pair'", "raw.user_id", "raw.item_id")
    found = (
        f"SELECT r.k::INTEGER AS row, c.k::INTEGER AS col, rating AS value, time, {key} AS key, test, "
        f"{_PLACE_OF_DUPLICATE} AS place "
        f"FROM raw JOIN {rows}s r ON r.id = raw.{rows}_id JOIN {cols}s c ON c.id = raw.{cols}_id"
    )
    db.execute(f"CREATE TABLE cells AS SELECT * EXCLUDE (place) FROM ({found})")
    before = scalar(db, "SELECT count(*) FROM cells")
    if not scalar(db, "SELECT count(*) FROM (SELECT key FROM cells GROUP BY key HAVING count(*) > 1)"):
        return 0
    _refuse_pairs(db, rows, cols, "bool_or(test) AND NOT bool_and(test)", "in both the training and the test files")
    if duplicates == "error":
        advice = f"rated more than once; choose with {named('duplicates')} first, last or mean"
        _refuse_pairs(db, rows, cols, "count(*) > 1", advice)
    db.execute("DROP TABLE cells")
    value, time = _MERGED[duplicates]
    db.execute(
        f"CREATE TABLE cells AS SELECT row, col, {value} AS value, {time} AS time, any_value(key) AS key, test "
        f"FROM ({found}) GROUP BY row, col, test"
    )
    return int(before - scalar(db, "SELECT count(*) FROM cells"))


def _refuse_pairs(db: duckdb.DuckDBPyConnection, rows: str, cols: str, condition: str, what: str) -> None:
    """Raise InputError, with the first pairs, if pairs of a row and a column in ``cells`` meet a condition."""
    pairs = db.execute(
        f"SELECT users.id, items.id, ratings, count(*) OVER () FROM (SELECT row, col, "
        f"list(value ORDER BY test, value)[:{SHOWN}] AS ratings FROM cells GROUP BY row, col HAVING {condition}) "
        f"JOIN {rows}s ON {rows}s.k = row JOIN {cols}s ON {cols}s.k = col ORDER BY ALL LIMIT {SHOWN}"
    ).fetchall()
    if pairs:
        lines = [
            f"\n  user {user}, item {item}: rated {', '.join(f'{value:g}' for value in ratings)}"
            for user, item, ratings, _ in pairs
        ]
        raise InputError(f"{pairs[0][-1]} pair(s) of a user and an item: {what}:{''.join(lines)}")


def split(db: duckdb.DuckDBPyConnection, fraction: float, temporal: bool) -> str:
    """Return SQL that is true for test ratings: exactly round(fraction * N) of ``cells``.

    The random split takes the pairs with the smallest hashes; the temporal split takes the latest ratings, ties broken
    by hash.
    """
    total = scalar(db, "SELECT count(*) FROM cells")
    n_test = int(fraction * total + 0.5)
    if n_test == 0:
        return "false"
    if n_test >= total:
        raise InputError(f"{named('test_fraction')} {fraction} of {total} ratings leaves none to train on")
    order = "time DESC, key" if temporal else "key"
    time, key = db.execute(f"SELECT time, key FROM cells ORDER BY {order} LIMIT 1 OFFSET {n_test - 1}").fetchall()[0]
    if temporal:
        return f"(time > {time!r}::DOUBLE OR (time = {time!r}::DOUBLE AND key <= {key}::UBIGINT))"
    return f"key <= {key}::UBIGINT"


def sort_cells(
    db: duckdb.DuckDBPyConnection, is_test: str, n_rows: int, timestamps: bool, temporal: bool
) -> tuple[Int64, int]:
    """Make the table ``sorted`` (row, col, value, test) for a matrix of `n_rows` rows, ordered by row and column.

    With `timestamps` the table also has the places and pages of ratings (`dsgmcmc.data.ratings.Times`); if the split
    is `temporal`, it has their ages (`dsgmcmc.data.inner`).

    Returns
    -------
    indptr : (I+1,) int64
        Positions at which the ratings of a row, training and test together, begin.
    n_test : int
    """
    more = "".join(f", {formula} AS {name}" for name, formula in _TIMES.items()) if timestamps else ""
    if temporal:
        more += f", (ntile({AGES}) OVER (PARTITION BY {is_test} ORDER BY time DESC, key) - 1)::UTINYINT AS age"
    db.execute(f"CREATE TABLE sorted AS SELECT row, col, value, {is_test} AS test{more} FROM cells ORDER BY row, col")
    db.execute("DROP TABLE cells")
    counts = db.execute("SELECT row, count(*) AS n FROM sorted GROUP BY row").fetchnumpy()
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    indptr[1 + counts["row"]] = counts["n"]
    np.cumsum(indptr, out=indptr)
    return indptr, int(scalar(db, "SELECT count(*) FROM sorted WHERE test"))
