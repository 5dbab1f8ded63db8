"""Turns the DuckDB table ``raw`` of ratings into slabs of a ratings file.

Users and items get numbers, repeated ratings are merged, test ratings are split off, and ratings
are sorted by row and column. All randomness comes from MD5 hashes of the seed and the original
names, so the result depends neither on the order of the lines nor on versions of libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dsgmcmc.data.columns import NAMED_ROLES, clicks_advice, find_doubts, joined
from dsgmcmc.data.descriptions import DescriptionTable
from dsgmcmc.data.parts import BETWEEN, part_sql, split_name
from dsgmcmc.data.precision import find_bad_scale, find_coarseness
from dsgmcmc.data.ratings_format import (
    AGES,
    MAX_ID_BYTES,
    MAX_SIDE,
    SIDES,
    SPLITS,
    Side,
    Times,
    row_slabs,
)
from dsgmcmc.data.ratings_writer import Slab
from dsgmcmc.data.session import Session, is_integer
from dsgmcmc.data.tables import SHOWN, scalar
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Int64

_FIELD_END = "chr(31)"  # between the fields of a hash
_SLAB = 1_000_000  # ratings in NumPy arrays at a time
_NAME_BYTES = 1 << 26  # bytes of names in NumPy arrays at a time

#: SQL of the value and the time of a merged rating, by --duplicates; ``moment`` orders ratings by
#: time, then by input line.
_MERGED = {
    "first": ("arg_min({0}, moment)", "min(time)"),
    "last": ("arg_max({0}, moment)", "max(time)"),
    "mean": ("avg({0} ORDER BY {0})::FLOAT", "max(time)"),
}
_MEASURED = ("weight", "lower", "upper")  # columns of ``sorted`` that say more of a rating
_MOMENT = "{'time': coalesce(time, '-infinity'::DOUBLE), 'line': raw.rowid}"

# place: rank by time within a row, with ties in order of column (or within a column, with ties in
# order of row); page: rank of a rating's second among the distinct seconds; both are ranks among
# training and test ratings together
_PLACE = "(row_number() OVER (PARTITION BY {0} ORDER BY time, {1}) - 1)::INTEGER"
_PAGE = "(dense_rank() OVER (PARTITION BY {0} ORDER BY floor(time)) - 1)::INTEGER"


def _times(replicated: bool, measures: Sequence[str]) -> dict[str, str]:
    """Return SQL of the places and pages of a rating, by column of ``sorted``."""
    last = "".join(f", {name}" for name in ("value", *measures)) if replicated else ""
    return {
        "rows_place": _PLACE.format("row", f"col{last}"),
        "rows_page": _PAGE.format("row"),
        "cols_place": _PLACE.format("col", f"row{last}"),
        "cols_page": _PAGE.format("col"),
    }


def _hash(*fields: str) -> str:
    """Return SQL for the first 64 bits of the MD5 hash of text fields."""
    joined = f", {_FIELD_END}, ".join(fields)
    return f"('0x' || left(md5(concat({joined})), 16))::UBIGINT"


def _fields_of(name: str, n_parts: int) -> str:
    """Return SQL of a name for `_hash`: each part of a name is a field."""
    if n_parts < 2:
        return name
    return f"replace({name}, {BETWEEN}, {_FIELD_END})"


# ---------------------------------------------------------------------------------------- numbering


class Entities(NamedTuple):
    """Numbers of users and items, which the tables ``users`` and ``items`` (id, k) name.

    The longer side becomes the rows of the ratings file.

    Attributes
    ----------
    user, item : int
    labels : dict of str to tuple of str
        Columns of names, one a part, by "user" and "item".
    """

    user: int
    item: int
    labels: Mapping[str, tuple[str, ...]] = MappingProxyType({"user": ("user",), "item": ("item",)})

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Columns of the parts of names, by "user" and "item", if names have several parts."""
        return {entity: labels for entity, labels in self.labels.items() if len(labels) > 1}

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers by "user" and "item"."""
        return {"user": self.user, "item": self.item}

    def n_parts(self, entity: str) -> int:
        """Return the number of parts of the names of users or items."""
        return len(self.labels[entity])

    @property
    def transposed(self) -> bool:
        """Whether the rows are items."""
        return self.item > self.user

    @property
    def sides(self) -> dict[Side, str]:
        """Entity of every side: "user" or "item"."""
        if self.transposed:
            return {"rows": "item", "cols": "user"}
        return {"rows": "user", "cols": "item"}


def number_entities(
    db: Session,
    seed: int,
    described: Mapping[str, DescriptionTable],
    labels: Mapping[str, tuple[str, ...]],
) -> Entities:
    """Make the tables ``users`` and ``items`` (id, k), k from 0 in a seeded random order.

    Users and items that `described` has, by "user" and "item", are included even without ratings;
    `labels` are those of `Entities`. Raises InputError if there is only one user or item, or there
    are too many.
    """
    sizes = {}
    for entity in NAMED_ROLES:
        n_parts = len(labels[entity])
        sizes[entity] = _number_entity(db, seed, entity, described.get(entity), n_parts=n_parts)
    return Entities(**sizes, labels=labels)


def _number_entity(
    db: Session, seed: int, entity: str, described: DescriptionTable | None, *, n_parts: int
) -> int:
    """Make the table of users or items; return its length."""
    ids = f"SELECT DISTINCT {entity}_id AS id FROM raw"
    if described is not None:
        ids += f" UNION SELECT id FROM {described.name}"
    order = _hash(f"'{seed}'", f"'{entity}'", _fields_of("id", n_parts))
    db.execute(
        f"CREATE TABLE {entity}s AS SELECT id, (row_number() OVER (ORDER BY {order}, id) -"
        f" 1)::BIGINT AS k FROM ({ids})"
    )
    n, longest = db.execute(f"SELECT count(*), max(strlen(id)) FROM {entity}s").fetchall()[0]
    if not 2 <= n <= MAX_SIDE:
        raise InputError(f"{n} {entity}(s): a matrix needs at least two, and at most {MAX_SIDE}")
    if longest > MAX_ID_BYTES:
        raise InputError(
            f"the {entity} column has a name of {longest} bytes: at most {MAX_ID_BYTES} are allowed"
        )
    return int(n)


def refuse_scale(db: Session) -> None:
    """Raise InputError if ratings have no scale that a model can learn.

    They have none if all are equal and not 1, or if their scale is outside the range of float32,
    or too fine for it.
    """
    low, high = db.execute("SELECT min(rating), max(rating) FROM raw").fetchall()[0]
    if low == high != 1:  # clicks are ratings that all equal 1
        raise InputError(
            f"all ratings are {low:.15g}: there is nothing to learn from them; {clicks_advice()}"
        )
    fault = find_bad_scale(low, high) or find_coarseness("ratings", low, high)
    if fault:
        raise InputError("; ".join([fault, *find_doubts({}, n=0, first=[], low=low, high=high)]))


# ------------------------------------------------------------------------------------------ merging


class Repeated(NamedTuple):
    """What `merge_ratings` makes of ratings of the same user and item.

    Attributes
    ----------
    removed, kept : int
        Numbers of ratings beyond the first of their pair that were left out or merged, and kept.
    bounded : int
        Number of ratings in ``cells`` that are known to lie within bounds.
    measures : tuple of str
        Columns of ``cells`` that say more of a rating: its weight, its lower and upper bound.
    """

    removed: int = 0
    kept: int = 0
    bounded: int = 0
    measures: Sequence[str] = ()


def merge_ratings(
    db: Session,
    seed: int,
    duplicates: str,
    entities: Entities,
    *,
    measures: Sequence[str] = (),
    grouped: bool = False,
) -> Repeated:
    """Turn ``raw`` into the table ``cells`` (row, col, value, time, key, test).

    `measures` are further columns of both (`dsgmcmc.data.columns.MEASURES`). ``key`` is the seeded
    hash of the names of the user and the item. If ratings are `grouped`, ``raw`` has ``group_id``,
    and ``cells`` its seeded hash, ``group_key``. Ratings of the same user and item are merged or
    kept as `duplicates` says; if some are kept, ``cells`` also has ``latest``, the time of the
    latest of a pair. Raises InputError if a pair is both in the training and in the test ratings,
    or if a pair is repeated and `duplicates` is "error", or "mean" for ratings with further
    columns.
    """
    sides = entities.sides
    numbered = _numbered(seed, entities, measures=measures, grouped=grouped)
    before = scalar(db, f"CREATE TABLE cells AS SELECT * EXCLUDE (moment) FROM ({numbered})")
    repeated = "SELECT key FROM cells GROUP BY key HAVING count(*) > 1"
    removed = 0
    kept = 0
    if scalar(db, f"SELECT count(*) FROM ({repeated})"):
        _refuse_repeated(db, sides, duplicates, measures)
        if duplicates == "keep":
            kept = int(before - _keep_repeated(db))
        else:
            merged = _merge_repeated(db, numbered, duplicates, measures=measures, grouped=grouped)
            removed = int(before - merged)
    bounded = _count_bounded(db, measures)
    return Repeated(removed=removed, kept=kept, bounded=bounded, measures=measures)


def _numbered(
    seed: int, entities: Entities, *, measures: Sequence[str] = (), grouped: bool = False
) -> str:
    """Return SQL of all ratings in ``raw`` by row and column, with ``moment``, their order."""
    rows = entities.sides["rows"]
    cols = entities.sides["cols"]
    user = _fields_of("raw.user_id", entities.n_parts("user"))
    item = _fields_of("raw.item_id", entities.n_parts("item"))
    key = _hash(f"'{seed}'", "'pair'", user, item)
    further = "".join(f", ({_measure(name)})::FLOAT AS {name}" for name in measures)
    if grouped:
        fields = f"replace(group_id, {BETWEEN}, {_FIELD_END})"
        seeded = _hash(f"'{seed}'", "'group'", fields)
        further += f", {seeded} AS group_key"
    return (
        f"SELECT r.k::INTEGER AS row, c.k::INTEGER AS col, rating::FLOAT AS value, time, {key} AS"
        f" key, test{further}, {_MOMENT} AS moment FROM raw"
        f" JOIN {rows}s r ON r.id = raw.{rows}_id JOIN {cols}s c ON c.id = raw.{cols}_id"
    )


def _measure(name: str) -> str:
    """Return SQL of a further column of a rating; an exact rating is its own bounds."""
    limits = {"lower": "'-inf'", "upper": "'inf'"}
    if name not in limits:
        return name
    is_exact = "lower IS NULL AND upper IS NULL"
    return f"CASE WHEN {is_exact} THEN rating ELSE coalesce({name}, {limits[name]}) END"


def _refuse_repeated(
    db: Session, sides: Mapping[Side, str], duplicates: str, measures: Sequence[str]
) -> None:
    """Raise InputError if pairs that are repeated in ``cells`` cannot be treated as asked."""
    _refuse_pairs(
        db,
        sides,
        condition="bool_or(test) AND NOT bool_and(test)",
        fault="in both the training and the test files",
    )
    if duplicates == "error":
        advice = f"{named('duplicates')} first, last or mean; to keep all: keep"
        _refuse_pairs(
            db,
            sides,
            condition="count(*) > 1",
            fault=f"rated more than once (to merge them: {advice})",
        )
    if duplicates == "mean" and measures:
        raise InputError(
            f"{named('duplicates')} mean: means have no {joined(measures)}: keep all ratings by"
            f" {named('duplicates')} keep"
        )


def _keep_repeated(db: Session) -> int:
    """Add to ``cells`` the time of the latest rating of each pair; return the number of pairs."""
    db.execute(
        "CREATE OR REPLACE TABLE cells AS SELECT *, max(time) OVER (PARTITION BY row, col) AS"
        " latest FROM cells"
    )
    return int(scalar(db, "SELECT count(*) FROM (SELECT DISTINCT row, col FROM cells)"))


def _merge_repeated(
    db: Session, numbered: str, duplicates: str, *, measures: Sequence[str], grouped: bool
) -> int:
    """Make ``cells`` with one rating of each pair, from SQL of all; return their number."""
    value, time = _MERGED[duplicates]
    merged = "".join(f", {value.format(name)} AS {name}" for name in ("value", *measures))
    any_group = ""
    if grouped:
        any_group = ", min(group_key) AS group_key"
    return int(
        scalar(
            db,
            f"CREATE OR REPLACE TABLE cells AS SELECT row, col{merged}, {time} AS time,"
            f" any_value(key) AS key, test{any_group} FROM ({numbered}) GROUP BY row, col, test",
        )
    )


def _count_bounded(db: Session, measures: Sequence[str]) -> int:
    """Return the number of ratings in ``cells`` that are known only by bounds."""
    if "lower" not in measures:
        return 0
    return int(scalar(db, "SELECT count(*) FROM cells WHERE lower < upper"))


def _refuse_pairs(db: Session, sides: Mapping[Side, str], *, condition: str, fault: str) -> None:
    """Raise InputError, with the first pairs, if pairs in ``cells`` meet a condition."""
    pairs = db.execute(
        "SELECT users.id, items.id, ratings, count(*) OVER () FROM (SELECT row, col, list(value"
        f" ORDER BY test, value)[:{SHOWN}] AS ratings FROM cells GROUP BY row, col HAVING"
        f" {condition}) JOIN {sides['rows']}s ON {sides['rows']}s.k = row JOIN {sides['cols']}s ON"
        f" {sides['cols']}s.k = col ORDER BY ALL LIMIT {SHOWN}"
    ).fetchall()
    if not pairs:
        return
    message = f"{pairs[0][-1]} pair(s) of a user and an item are {fault}:"
    for user, item, values, _ in pairs:
        shown = ", ".join(f"{value:g}" for value in values)
        message += f"\n  user {split_name(user)}, item {split_name(item)}: rated {shown}"
    raise InputError(message)


# ---------------------------------------------------------------------------- splitting and sorting


def held_out(
    db: Session, fraction: float, *, temporal: bool, replicated: bool, bounded: bool = False
) -> str:
    """Return SQL that is true for exactly round(fraction * N) of the N ratings in ``cells``.

    In a random split, these have the smallest hashes; in a temporal split, they are the latest
    ratings, with ties broken by hash. If pairs are `replicated`, a split never divides the
    measurements of a pair, which share a hash and the time of the latest: there may be a few more.
    Pairs with `bounded` ratings are never held out, because errors need exact ratings.
    """
    total = scalar(db, "SELECT count(*) FROM cells")
    exact = "true"
    if bounded and replicated:
        exact = "key NOT IN (SELECT key FROM cells WHERE lower < upper)"
    elif bounded:
        exact = "NOT lower < upper"
    n_test = int(fraction * total + 0.5)
    if n_test == 0:
        return "false"
    if bounded:
        n_test = min(n_test, scalar(db, f"SELECT count(*) FROM cells WHERE {exact}"))
    if n_test >= total:
        raise _no_training_ratings(fraction, total)
    time = "latest" if replicated else "time"
    order = f"{time} DESC, key" if temporal else "key"
    last, key = db.execute(
        f"SELECT {time}, key FROM cells WHERE {exact} ORDER BY {order} LIMIT 1 OFFSET {n_test - 1}"
    ).fetchall()[0]
    condition = f"key <= {key}::UBIGINT"
    if temporal:
        condition = f"({time} > {last!r}::DOUBLE OR ({time} = {last!r}::DOUBLE AND {condition}))"
    if bounded:
        condition = f"({exact} AND {condition})"
    if replicated and not scalar(db, f"SELECT count(*) FROM cells WHERE NOT {condition}"):
        raise _no_training_ratings(fraction, total)
    return condition


def refuse_bounded_tests(db: Session) -> None:
    """Raise InputError if a test rating in ``cells`` is known only by bounds."""
    number = scalar(db, "SELECT count(*) FROM cells WHERE test AND lower < upper")
    if number:
        raise InputError(
            f"{number:,} test rating(s) are known only by bounds, and errors are of exact ratings:"
            f" move them to the training files, or leave out {named('test')}"
        )


def _no_training_ratings(fraction: float, total: int) -> InputError:
    return InputError(
        f"{named('test_fraction')} {fraction} of {total} ratings leaves no training ratings"
    )


def held_out_groups(db: Session, fraction: float, *, bounded: bool = False) -> str:
    """Return SQL that is true for the ratings in ``cells`` of groups that are held out.

    They are the groups with the smallest hashes; their share of the ratings is as close as possible
    to the fraction. Pairs with `bounded` ratings stay training ratings. Raises InputError if there
    are fewer than two groups.
    """
    groups = db.execute(
        "SELECT group_key, count(*) AS n FROM cells GROUP BY group_key ORDER BY group_key"
    ).fetchnumpy()
    if len(groups["n"]) < 2:
        raise InputError(f"{named('hold_out_by')}: all ratings are in one group")
    upto = np.cumsum(groups["n"])
    if not fraction:
        return "false"
    last = int(np.argmin(np.abs(upto[:-1] - fraction * upto[-1])))
    condition = f"group_key <= {groups['group_key'][last]}::UBIGINT"
    if bounded:
        return f"({condition} AND NOT pinned)"
    return condition


class SortedRatings(NamedTuple):
    """The table ``sorted`` (row, col, value, test), ordered by row and column.

    Attributes
    ----------
    indptr : (I+1,) int64
        Position in ``sorted`` at which each row's ratings, training and test together, begin; the
        last element is their total number.
    n_test : int
        Number of test ratings.
    """

    indptr: Int64
    n_test: int

    @property
    def n(self) -> int:
        """Number of ratings, training and test together."""
        return int(self.indptr[-1])


def sort_ratings(
    db: Session,
    test_condition: str,
    n_rows: int,
    *,
    timestamps: bool,
    temporal: bool,
    replicated: bool,
    measures: Sequence[str] = (),
    grouped: bool = False,
) -> SortedRatings:
    """Make the table ``sorted`` from ``cells``, for a matrix of `n_rows` rows.

    `test_condition` is SQL that is true for test ratings; pairs may be `replicated`, and ratings
    have further columns, `measures`. With
    `timestamps` the table also has the
    places and pages of ratings (`dsgmcmc.data.ratings_format.Times`); with a `temporal` split, it
    also has their ages (`dsgmcmc.data.inner`); if ratings are `grouped`, it has the numbers of
    their groups.
    """
    columns = ", ".join(["row, col, value", *measures, f"{test_condition} AS test"])
    if timestamps:
        columns += "".join(
            f", {formula} AS {name}" for name, formula in _times(replicated, measures).items()
        )
    if temporal:
        columns += f", {_age(test_condition, replicated)} AS age"
    source = "cells"
    if grouped:
        columns += ", number AS group_number"
        numbers = (
            "SELECT group_key, (row_number() OVER (ORDER BY group_key) - 1)::INTEGER AS number"
            " FROM (SELECT DISTINCT group_key FROM cells)"
        )
        source = f"cells JOIN ({numbers}) USING (group_key)"
    db.execute(f"CREATE TABLE sorted AS SELECT {columns} FROM {source} ORDER BY row, col")
    db.execute("DROP TABLE cells")
    counts = db.execute("SELECT row, count(*) AS n FROM sorted GROUP BY row").fetchnumpy()
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    indptr[1 + counts["row"]] = counts["n"]
    np.cumsum(indptr, out=indptr)
    return SortedRatings(indptr, int(scalar(db, "SELECT count(*) FROM sorted WHERE test")))


def _age(test_condition: str, replicated: bool) -> str:
    """Return SQL of the age of a rating (`dsgmcmc.data.inner`), one for all of a pair."""
    if not replicated:
        order = "time DESC, key"
        return (
            f"(ntile({AGES}) OVER (PARTITION BY {test_condition} ORDER BY {order}) - 1)::UTINYINT"
        )
    # all measurements of a pair have the rank of the first
    part = f"PARTITION BY {test_condition}"
    earlier = f"rank() OVER ({part} ORDER BY latest DESC, key) - 1"
    return f"(({earlier}) * {AGES} // count(*) OVER ({part}))::UTINYINT"


# -------------------------------------------------------------------------------------- reading out


def slabs(db: Session, indptr: Int64, *, replicated: bool) -> Iterator[Slab]:
    """Yield the ratings in the table ``sorted``, slab by slab.

    If pairs are `replicated`, their measurements are in an order that no line changes.
    """
    order = "ALL" if replicated else "row, col"
    for start, stop in row_slabs(indptr, _SLAB):
        cells = db.execute(
            f"SELECT * FROM sorted WHERE row >= {start} AND row < {stop} ORDER BY {order}"
        ).fetchnumpy()
        for part in SPLITS:
            mask = cells["test"] if part == "test" else ~cells["test"]
            counts = np.bincount(cells["row"][mask] - start, minlength=stop - start)
            times = None
            if "rows_place" in cells:
                times = {
                    side: Times(*(cells[f"{side}_{name}"][mask] for name in Times._fields))
                    for side in SIDES
                }
            ages = None
            if part == "train" and "age" in cells:
                ages = cells["age"][mask]
            groups = None
            if part == "train" and "group_number" in cells:
                groups = cells["group_number"][mask]
            yield Slab(
                part,
                indptr=np.append(0, np.cumsum(counts)),
                indices=cells["col"][mask],
                values=cells["value"][mask],
                times=times,
                ages=ages,
                groups=groups,
                **{
                    name: cells[name][mask]
                    for name in ("weight", "lower", "upper")
                    if name in cells
                },
            )


def names(db: Session, entity: str, part: int = 0, n_parts: int = 1) -> Iterator[Array]:
    """Yield arrays of a part of the names of users or items, in the order of their numbers.

    They are int64 if all are integers in canonical form, else UTF-8 padded to the longest name.
    """
    name = part_sql("id", part, n_parts)
    query = f"SELECT count(*), bool_and({is_integer(name)}), max(strlen({name})) FROM {entity}s"
    n, integers, longest = db.execute(query).fetchall()[0]
    sql_type = "BIGINT" if integers else "VARCHAR"
    step = max(1, _NAME_BYTES // (longest + 64))
    for start in range(0, n, step):
        piece = db.execute(
            f"SELECT {name}::{sql_type} AS id FROM {entity}s WHERE k >= {start} AND"
            f" k < {start + step} ORDER BY k"
        ).fetchnumpy()["id"]
        if integers:
            yield piece
        else:
            yield np.array([text.encode() for text in piece], dtype=f"S{longest}")


def name_parts(db: Session, entity: str, labels: Sequence[str]) -> dict[str, Iterator[Array]]:
    """Return the arrays of `names` for each part of the names of users or items, by its column."""
    n_parts = len(labels)
    return {label: names(db, entity, part, n_parts) for part, label in enumerate(labels)}
