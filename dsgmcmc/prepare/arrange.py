"""Turns the DuckDB table ``raw`` of ratings into slabs of a ratings file.

Users and items get numbers, repeated ratings are merged (`dsgmcmc.prepare.merging`), and test
ratings are split off. All randomness comes from MD5 hashes of the seed and the original names, so
the result depends neither on the order of the lines nor on versions of libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import DescriptionTable
from dsgmcmc.input.roles import NAMED_ROLES, clicks_advice, find_doubts
from dsgmcmc.input.sources.tables import distinct_names, scalar
from dsgmcmc.ratings.float32 import find_bad_scale, find_coarseness
from dsgmcmc.ratings.format import (
    AGES,
    MAX_ID_BYTES,
    MAX_SIDE,
    SIDES,
    SPLITS,
    Directions,
    Side,
    Times,
    row_slabs,
)
from dsgmcmc.ratings.names import BETWEEN, part_sql
from dsgmcmc.ratings.writer import NameParts, Sizes, Slab
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, is_integer
from dsgmcmc.types import Array, Int64

FIELD_END = "chr(31)"  # between the fields of a hash
#: Masks and shifts that reverse the bytes of 64 bits.
_SWAPS = (
    (0x00FF00FF00FF00FF, 8),
    (0x0000FFFF0000FFFF, 16),
    (0x00000000FFFFFFFF, 32),
)
_SLAB = 1_000_000  # ratings in NumPy arrays at a time
_NAME_BYTES = 1 << 26  # bytes of names in NumPy arrays at a time


# place: rank by time within a row, with ties in order of column (or within a column, with ties in
# order of row); page: rank of a rating's second among the distinct seconds; both are ranks among
# training and test ratings together
_PLACE = "(row_number() OVER (PARTITION BY {0} ORDER BY time, {1}) - 1)::INTEGER"
_PAGE = "(dense_rank() OVER (PARTITION BY {0} ORDER BY floor(time)) - 1)::INTEGER"


def _times(replicated: bool, told_apart_by: Sequence[str]) -> dict[str, str]:
    """Return SQL of the places and pages of a rating, by column of ``sorted``.

    Measurements of a pair are `told_apart_by` their columns. Equal ones have the same order in
    their row as in their column, that of their lines.
    """
    last = ""
    if replicated:
        last = "".join(f", {name}" for name in (*told_apart_by, "line"))
    return {
        "rows_place": _PLACE.format("row", f"col{last}"),
        "rows_page": _PAGE.format("row"),
        "cols_place": _PLACE.format("col", f"row{last}"),
        "cols_page": _PAGE.format("col"),
    }


def hash_sql(*fields: str) -> str:
    """Return SQL for the first 64 bits of the MD5 hash of text fields.

    DuckDB's number has the first byte of the hash last.
    """
    joined = f", {FIELD_END}, ".join(fields)
    number = f"(md5_number(concat({joined})) & {2**64 - 1}::UHUGEINT)::UBIGINT"
    for mask, shift in _SWAPS:
        low = f"{mask}::UBIGINT"
        number = f"((({number} & {low}) << {shift}) | (({number} >> {shift}) & {low}))"
    return number


def fields_of(name: str, n_parts: int) -> str:
    """Return SQL of a name for `hash_sql`: each part of a name is a field."""
    if n_parts < 2:
        return name
    return f"replace({name}, {BETWEEN}, {FIELD_END})"


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

    @property
    def n_rows(self) -> int:
        """The number of rows of the ratings file."""
        return self.sizes[self.sides["rows"]]

    @property
    def n_cols(self) -> int:
        """The number of columns of the ratings file."""
        return self.sizes[self.sides["cols"]]


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
    ids = f"SELECT id FROM {distinct_names(entity)}"
    if described is not None:
        ids += f" UNION SELECT id FROM {described.name}"
    order = hash_sql(f"'{seed}'", f"'{entity}'", fields_of("id", n_parts))
    db.execute(
        f"CREATE TABLE {entity}s AS SELECT id, (row_number() OVER (ORDER BY {order}, id) -"
        f" 1)::BIGINT AS k FROM ({ids})"
    )
    n, longest = db.execute(f"SELECT count(*), max(strlen(id)) FROM {entity}s").fetchall()[0]
    if not 2 <= n <= MAX_SIDE:
        raise InputError(f"{n} {entity}(s): a matrix needs at least two, and at most {MAX_SIDE}")
    if longest > MAX_ID_BYTES:
        raise _too_long(entity, longest)
    return int(n)


def _too_long(entity: str, n_bytes: int) -> InputError:
    return InputError(
        f"the {entity} column has a name of {n_bytes} bytes: at most {MAX_ID_BYTES} are allowed"
    )


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


# ---------------------------------------------------------------------------- splitting and sorting


def held_out(db: Session, fraction: float, *, temporal: bool, replicated: bool) -> str:
    """Return SQL that is true for exactly round(fraction * N) of the N ratings in ``cells``.

    In a random split, these have the smallest hashes; in a temporal split, they are the latest
    ratings, with ties broken by hash. If pairs are `replicated`, a split never divides the
    measurements of a pair, which share a hash and the time of the latest: there may be a few more.
    """
    total = scalar(db, "SELECT count(*) FROM cells")
    n_test = int(fraction * total + 0.5)
    if n_test == 0:
        return "false"
    if n_test >= total:
        raise _no_training_ratings(fraction, total)
    if temporal:
        time = "time"
        if replicated:
            time = "latest"
        last, key = db.execute(
            f"SELECT {time}, key FROM cells ORDER BY {time} DESC, key LIMIT 1 OFFSET {n_test - 1}"
        ).fetchall()[0]
        last = f"{last!r}::DOUBLE"
        condition = f"({time} > {last} OR ({time} = {last} AND key <= {key}::UBIGINT))"
    else:
        condition = f"key <= {_nth_key(db, n_test)}::UBIGINT"
    if replicated and not scalar(db, f"SELECT count(*) FROM cells WHERE NOT {condition}"):
        raise _no_training_ratings(fraction, total)
    return condition


def _nth_key(db: Session, n: int) -> int:
    """Return the n-th smallest key, from 1, of the ratings in ``cells``.

    Only the keys with the same first 16 bits are sorted.
    """
    shares = db.execute(
        "SELECT key >> 48 AS first, count(*) AS n FROM cells GROUP BY first ORDER BY first"
    ).fetchnumpy()
    upto = np.cumsum(shares["n"])
    k = int(np.searchsorted(upto, n))
    smaller = int(upto[k] - shares["n"][k])
    return int(
        scalar(
            db,
            f"SELECT key FROM cells WHERE key >> 48 = {shares['first'][k]}"
            f" ORDER BY key LIMIT 1 OFFSET {n - smaller - 1}",
        )
    )


def _no_training_ratings(fraction: float, total: int) -> InputError:
    return InputError(
        f"{named('test_fraction')} {fraction} of {total} ratings leaves no training ratings"
    )


def held_out_groups(db: Session, fraction: float) -> str:
    """Return SQL that is true for the ratings in ``cells`` of groups that are held out.

    They are the groups with the smallest hashes; their share of the ratings is as close as possible
    to the fraction. Raises InputError if there are fewer than two groups.
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
    return f"group_key <= {groups['group_key'][last]}::UBIGINT"


def group_by_parts(
    db: Session, seed: int, entities: Entities, parts: Sequence[tuple[str, int]]
) -> None:
    """Add ``group_key`` to ``cells``, as of ratings that are grouped by some parts of names.

    A part is "user" or "item", and its number.
    """
    fields = f", {FIELD_END}, ".join(
        part_sql(f"{entity}s.id", part, entities.n_parts(entity)) for entity, part in parts
    )
    key = hash_sql(f"'{seed}'", "'group'", f"concat({fields})")
    sides = entities.sides
    db.execute(
        f"CREATE OR REPLACE TABLE cells AS SELECT cells.*, {key} AS group_key FROM cells"
        f" JOIN {sides['rows']}s ON {sides['rows']}s.k = row"
        f" JOIN {sides['cols']}s ON {sides['cols']}s.k = col"
    )


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

    def sizes(self, entities: Entities) -> Sizes:
        """Return the sizes of the ratings file."""
        return Sizes(
            rows=entities.n_rows,
            cols=entities.n_cols,
            train=self.n - self.n_test,
            test=self.n_test,
        )


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
    have further columns, `measures`. With `timestamps` the table also has the places and pages of
    ratings (`dsgmcmc.ratings.format.Times`); with a `temporal` split, it also has their ages
    (`dsgmcmc.ratings.held_out`); if ratings are `grouped`, it has the numbers of their groups.
    """
    columns = ", ".join(["row, col, value", *measures, f"{test_condition} AS test"])
    if timestamps:
        told_apart_by = ["value", *measures]
        if grouped:
            told_apart_by.append("group_key")
        times = _times(replicated, told_apart_by)
        columns += "".join(f", {formula} AS {name}" for name, formula in times.items())
    if temporal:
        columns += f", {_age(test_condition, replicated)} AS age"
    source = "cells"
    is_sorted = not (timestamps or temporal or grouped)  # functions and joins change the order
    if grouped:
        columns += ", number AS group_number"
        numbers = (
            "SELECT group_key, (row_number() OVER (ORDER BY group_key) - 1)::INTEGER AS number"
            " FROM (SELECT DISTINCT group_key FROM cells)"
        )
        source = f"cells JOIN ({numbers}) USING (group_key)"
    order = ""
    if not is_sorted:
        order = "ORDER BY row, col"
    db.execute(f"CREATE TABLE sorted AS SELECT {columns} FROM {source} {order}")
    db.execute("DROP TABLE cells")
    counts = db.execute("SELECT row, count(*) AS n FROM sorted GROUP BY row").fetchnumpy()
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    indptr[1 + counts["row"]] = counts["n"]
    np.cumsum(indptr, out=indptr)
    return SortedRatings(indptr, int(scalar(db, "SELECT count(*) FROM sorted WHERE test")))


def _age(test_condition: str, replicated: bool) -> str:
    """Return SQL of the age of a rating (`dsgmcmc.ratings.held_out`), one for all of a pair."""
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
    order = ""
    if replicated:
        order = "ORDER BY ALL"
    for start, stop in row_slabs(indptr, _SLAB):
        cells = db.execute(
            f"SELECT * FROM sorted WHERE rowid >= {indptr[start]} AND rowid < {indptr[stop]}"
            f" {order}"
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
            if "group_number" in cells:
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


def matrix_names(db: Session, entity: str) -> Array:
    """Return the names of the rows or columns of matrices in their order, as UTF-8.

    Raises InputError if one is too long.
    """
    names = db.execute(
        f"SELECT id FROM matrix_names WHERE entity = '{entity}' GROUP BY id ORDER BY min(rowid)"
    ).fetchnumpy()["id"]
    encoded = np.array([name.encode() for name in names], "S")
    if encoded.dtype.itemsize > MAX_ID_BYTES:
        raise _too_long(entity, encoded.dtype.itemsize)
    return encoded


def name_parts(db: Session, entity: str, labels: Sequence[str]) -> dict[str, Iterator[Array]]:
    """Return the arrays of `names` for each part of the names of users or items, by its column."""
    n_parts = len(labels)
    return {label: names(db, entity, part, n_parts) for part, label in enumerate(labels)}


def all_name_parts(
    db: Session, entities: Entities, directions: Directions | None
) -> NameParts | None:
    """Return the parts of the names of both sides; None if no name has several."""
    if not entities.parts:
        return None
    by_side = {
        side: name_parts(db, entity, entities.labels[entity])
        for side, entity in entities.sides.items()
    }
    return NameParts(by_side, directions)
