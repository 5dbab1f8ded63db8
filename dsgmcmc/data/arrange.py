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
_KEYS_AT_A_TIME = 4_000_000


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


def number_entities(
    db: duckdb.DuckDBPyConnection, seed: int, described: Mapping[str, str] | None = None
) -> tuple[int, int]:
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
    sizes = []
    for entity in ("user", "item"):
        order = _hash(f"'{seed}'", f"'{entity}'", "id")
        more = f" UNION SELECT id FROM {described[entity]}" if described and entity in described else ""
        db.execute(
            f"CREATE TABLE {entity}s AS "
            f"SELECT id, (row_number() OVER (ORDER BY {order}, id) - 1)::BIGINT AS k "
            f"FROM (SELECT DISTINCT {entity}_id AS id FROM raw{more})"
        )
        n = scalar(db, f"SELECT count(*) FROM {entity}s")
        check_entities(entity, n, scalar(db, f"SELECT max(strlen(id)) FROM {entity}s"))
        sizes.append(n)
    return sizes[0], sizes[1]


def check_entities(entity: str, n: int, longest: int) -> None:
    """Raise InputError if there are too few or too many users or items, or if a name is too long."""
    if n < 2:
        raise InputError(f"there is only one {entity}: a matrix needs two rows and two columns at least")
    if n > MAX_SIDE:
        raise InputError(f"there are {n} {entity}s, more than the {MAX_SIDE} that 32-bit indices can number")
    if longest > MAX_ID_BYTES:
        raise InputError(f"a name of {longest} bytes in the {entity} column; at most {MAX_ID_BYTES} are allowed")


def make_cells(db: duckdb.DuckDBPyConnection, seed: int, rows: str, cols: str) -> None:
    """Turn ``raw`` into the table ``cells`` (row, col, value, time, key, test); `rows`, `cols`: "user" or "item"."""
    db.execute(f"CREATE TABLE cells AS {_select_cells(seed, rows, cols)}")


def _select_cells(seed: int, rows: str, cols: str, more: str = "") -> str:
    key = _hash(f"'{seed}'", "'pair'", "raw.user_id", "raw.item_id")
    return (
        f"SELECT r.k::INTEGER AS row, c.k::INTEGER AS col, rating AS value, time, {key} AS key, test{more} "
        f"FROM raw JOIN {rows}s r ON r.id = raw.{rows}_id JOIN {cols}s c ON c.id = raw.{cols}_id"
    )


def merge_duplicates(db: duckdb.DuckDBPyConnection, seed: int, duplicates: str, rows: str, cols: str) -> int:
    """Merge the ratings in ``cells`` of the same user and item; return how many rows disappear.

    Raises InputError if a pair is both in the training and in the test ratings, or if a pair is repeated and
    `duplicates` is "error".
    """
    before = scalar(db, "SELECT count(*) FROM cells")
    parts = 1 + before // _KEYS_AT_A_TIME  # counted one after the other, since the distinct keys are held in memory
    repeated = "SELECT count(*) - count(DISTINCT key) FROM cells WHERE key % {} = {}"
    if not any(scalar(db, repeated.format(parts, part)) for part in range(parts)):
        return 0
    _refuse_duplicates(db, rows, cols, duplicates)
    db.execute("DROP TABLE cells")
    value, time = _MERGED.get(duplicates, _MERGED["last"])
    cells = _select_cells(seed, rows, cols, f", {_PLACE_OF_DUPLICATE} AS place")
    db.execute(
        f"CREATE TABLE cells AS SELECT row, col, {value} AS value, {time} AS time, any_value(key) AS key, test "
        f"FROM ({cells}) GROUP BY row, col, test"
    )
    return int(before - scalar(db, "SELECT count(*) FROM cells"))


def _refuse_duplicates(db: duckdb.DuckDBPyConnection, rows: str, cols: str, duplicates: str) -> None:
    """Raise InputError for pairs in both training and test ratings and, if `duplicates` is "error", repeated pairs."""
    both = "bool_or(test) AND NOT bool_and(test)"
    for condition, what, advice in (
        (both, "in both the training and the test files", ""),
        ("count(*) > 1", "rated more than once", f"; choose with {named('duplicates')} first, last or mean"),
    ):
        groups = (
            f"SELECT row, col, list(value ORDER BY test, value)[:{SHOWN}] AS first, count(*) AS times FROM cells "
            f"GROUP BY row, col HAVING {condition}"
        )
        if (condition == both or duplicates == "error") and (n := scalar(db, f"SELECT count(*) FROM ({groups})")):
            raise InputError(_show_pairs(db, groups, rows, cols, f"{_pairs(n)} {what}{advice}"))


def _pairs(n: int) -> str:
    return "1 pair of a user and an item is" if n == 1 else f"{n} pairs of a user and an item are"


def _show_pairs(db: duckdb.DuckDBPyConnection, groups: str, rows: str, cols: str, message: str) -> str:
    """Add the first pairs of `groups` (row, col, first, times) to a message."""
    pairs = db.execute(
        f"SELECT users.id, items.id, first, times FROM ({groups}) "
        f"JOIN {rows}s ON {rows}s.k = row JOIN {cols}s ON {cols}s.k = col ORDER BY ALL LIMIT {SHOWN}"
    ).fetchall()
    message += ":"
    for user, item, first, times in pairs:
        more = f" ... ({times} times)" if times > len(first) else ""
        message += f"\n  user {user}, item {item}: rated {', '.join(f'{value:g}' for value in first)}{more}"
    return message


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
    if temporal:
        time, key = db.execute(
            f"SELECT time, key FROM cells ORDER BY time DESC, key LIMIT 1 OFFSET {n_test - 1}"
        ).fetchall()[0]
        return f"(time > {time!r}::DOUBLE OR (time = {time!r}::DOUBLE AND key <= {key}::UBIGINT))"
    return f"key <= {_smallest(db, n_test)}::UBIGINT"


def _smallest(db: duckdb.DuckDBPyConnection, n: int) -> int:
    """Return the n-th smallest key of ``cells``, sorting only the keys that share its first 16 bits."""
    counts = db.execute("SELECT key >> 48 AS top, count(*) AS n FROM cells GROUP BY top ORDER BY top").fetchnumpy()
    below = np.cumsum(counts["n"])
    place = int(np.searchsorted(below, n))
    before = int(below[place - 1]) if place else 0
    few = f"SELECT key FROM cells WHERE key >> 48 = {counts['top'][place]} ORDER BY key"
    return int(scalar(db, f"{few} LIMIT 1 OFFSET {n - before - 1}"))


def sort_cells(
    db: duckdb.DuckDBPyConnection,
    is_test: str,
    n_rows: int,
    timestamps: bool = False,
    temporal: bool = False,
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
