"""Merges ratings of the same user and item, in one sort of all ratings.

The ratings of a pair are neighbours in a table that is sorted by row, column, time and line. So one
pass that compares every rating with the next finds repeated ratings, and the first and the last of
a pair. DuckDB keeps the order of a table in such a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.tables import SHOWN, scalar
from dsgmcmc.prepare.arrange import FIELD_END, Entities, fields_of, hash_sql
from dsgmcmc.prepare.doubts import MOST_LEVELS
from dsgmcmc.ratings.format import Side
from dsgmcmc.ratings.names import BETWEEN, split_name
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, is_integer
from dsgmcmc.tables.usual import joined

#: ``lines`` with the pair of the next, or the previous, rating.
_NEIGHBOURS = "(SELECT *, {0}(row) OVER () AS near_row, {0}(col) OVER () AS near_col FROM lines)"
_IS_REPEATED = "(row = near_row AND col = near_col)"


class Merging(NamedTuple):
    """How `merge_ratings` treats repeated ratings, and what later stages need.

    Attributes
    ----------
    seed : int
        Seed of the hashes.
    duplicates : {"error", "first", "last", "mean", "keep"} or None
        As in `dsgmcmc.prepare.settings.PrepareSettings`; None keeps replicates of measurements.
    measures : tuple of str
        Columns of ``raw`` that say more of a rating: its weight, its lower and upper bound.
    grouped : bool
        Whether ``raw`` has groups of ratings, ``group_id``.
    timed : bool
        Whether the order in time is kept or decides about the split; then every rating has a time.
    keyed : bool
        Whether pairs are split by their hashes.
    tested : bool
        Whether some ratings are test ratings.
    """

    seed: int
    duplicates: str | None
    measures: Sequence[str] = ()
    grouped: bool = False
    timed: bool = False
    keyed: bool = True
    tested: bool = False


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


def merge_ratings(db: Session, entities: Entities, merging: Merging) -> Repeated:
    """Turn ``raw`` into the table ``cells`` (row, col, value), sorted by row and column.

    ``cells`` also has the columns `merging.measures`; ``test``, if `merging.tested`; ``key``, the
    seeded hash of the names of the user and the item, if `merging.keyed`; ``time``, if
    `merging.timed`; and ``group_key``, the seeded hash of the group, if `merging.grouped`. Ratings
    of the same user and item are merged or kept as `merging.duplicates` says; if some are kept, and
    `merging.timed`, ``cells`` also has ``latest``, the time of the latest of a pair, and is not
    sorted. Raises InputError if a pair is both in the training and in the test ratings, or if a
    pair is repeated and `duplicates` is "error", or "mean" for ratings with further columns.
    """
    _sort_lines(db, entities, merging)
    has_times = scalar(db, "SELECT count(time) FROM raw") > 0
    db.execute("DROP TABLE raw")
    repeats = int(_count_neighbours(db, _IS_REPEATED))
    removed = 0
    kept = 0
    if repeats:
        if merging.duplicates is None:
            merging = merging._replace(duplicates=_usual_rule(db, has_times=has_times))
        _refuse_repeated(db, entities.sides, merging)
        if merging.duplicates == "keep":
            kept = repeats
        else:
            removed = repeats
    if removed:
        _merge_repeated(db, merging)
    else:
        _keep_all(db, with_latest=kept > 0 and merging.timed)
    bounded = _count_bounded(db, merging.measures)
    return Repeated(removed=removed, kept=kept, bounded=bounded, measures=merging.measures)


def _sort_lines(db: Session, entities: Entities, merging: Merging) -> None:
    """Make the table ``lines`` of all ratings in ``raw``, by row, column, time and line."""
    rows = entities.sides["rows"]
    cols = entities.sides["cols"]
    has_times = scalar(db, "SELECT count(time) FROM raw") > 0
    columns = {
        "row": "r.k::INTEGER",
        "col": "c.k::INTEGER",
        "value": "rating::FLOAT",
        "line": "raw.rowid",
    }
    if merging.tested:
        columns["test"] = "test"
    columns |= {name: f"({_measure(name)})::FLOAT" for name in merging.measures}
    order = "row, col, line"
    if has_times:
        columns["time"] = "time"
        order = "row, col, coalesce(time, '-infinity'::DOUBLE), line"
    if merging.keyed:
        user = fields_of("raw.user_id", entities.n_parts("user"))
        item = fields_of("raw.item_id", entities.n_parts("item"))
        columns["key"] = hash_sql(f"'{merging.seed}'", "'pair'", user, item)
    if merging.grouped:
        fields = f"replace(group_id, {BETWEEN}, {FIELD_END})"
        columns["group_key"] = hash_sql(f"'{merging.seed}'", "'group'", fields)
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    db.execute(
        f"CREATE TABLE lines AS SELECT {selected} FROM raw"
        f" JOIN {_numbers(db, rows)} r ON r.id = raw.{rows}_id"
        f" JOIN {_numbers(db, cols)} c ON c.id = raw.{cols}_id ORDER BY {order}"
    )


def _numbers(db: Session, entity: str) -> str:
    """Return SQL for the numbers of users or items by their names, as ``raw`` has these."""
    if scalar(db, f"SELECT typeof({entity}_id) FROM raw LIMIT 1") == "VARCHAR":
        return f"{entity}s"
    # users and items of a description may have other names
    return f"(SELECT try_cast(id AS BIGINT) AS id, k FROM {entity}s WHERE {is_integer()})"


def _measure(name: str) -> str:
    """Return SQL of a further column of a rating; an exact rating is its own bounds."""
    limits = {"lower": "'-inf'", "upper": "'inf'"}
    if name not in limits:
        return name
    is_exact = "lower IS NULL AND upper IS NULL"
    return f"CASE WHEN {is_exact} THEN rating ELSE coalesce({name}, {limits[name]}) END"


def _count_neighbours(db: Session, condition: str) -> int:
    """Return the number of ratings in ``lines`` for which a condition on the next one holds."""
    return int(scalar(db, f"SELECT count(*) FROM {_NEIGHBOURS.format('lead')} WHERE {condition}"))


def _usual_rule(db: Session, *, has_times: bool) -> str:
    """Return which of the repeated ratings in ``lines`` count if users have not said so.

    All count if they are replicates: measurements without times of which some differ. Measurements
    have more values than a scale of levels, some of which are not whole.
    """
    if has_times:
        return "last"
    n_levels, are_whole = db.execute(
        "SELECT approx_count_distinct(value), bool_and(value = floor(value)) FROM lines"
    ).fetchall()[0]
    if n_levels <= MOST_LEVELS or are_whole:
        return "last"
    differ = "SELECT 1 FROM lines GROUP BY row, col HAVING min(value) < max(value) LIMIT 1"
    if db.execute(differ).fetchall():
        return "keep"
    return "last"


def _refuse_repeated(db: Session, sides: Mapping[Side, str], merging: Merging) -> None:
    """Raise InputError if pairs that are repeated in ``lines`` cannot be treated as asked."""
    duplicates = merging.duplicates
    if merging.tested:
        _refuse_pairs(
            db,
            sides,
            condition="bool_or(test) AND NOT bool_and(test)",
            order="test, value",
            fault="in both the training and the test files",
        )
    if duplicates == "error":
        advice = f"{named('duplicates')} first, last or mean; to keep all: keep"
        _refuse_pairs(
            db,
            sides,
            condition="count(*) > 1",
            order="value",
            fault=f"rated more than once (to merge them: {advice})",
        )
    if duplicates == "mean" and merging.measures:
        raise InputError(
            f"{named('duplicates')} mean: means have no {joined(merging.measures)}: keep all"
            f" ratings by {named('duplicates')} keep"
        )


def _keep_all(db: Session, *, with_latest: bool) -> None:
    """Make ``cells`` of all ratings, with the time of the latest of each pair if asked."""
    if not with_latest:
        db.execute("ALTER TABLE lines RENAME TO cells")
        return
    db.execute(
        "CREATE TABLE cells AS SELECT *, max(time) OVER (PARTITION BY row, col) AS latest"
        " FROM lines"
    )
    db.execute("DROP TABLE lines")


def _merge_repeated(db: Session, merging: Merging) -> None:
    """Make ``cells`` with one rating of each pair."""
    neighbour = "lead"
    if merging.duplicates == "first":
        neighbour = "lag"
    db.execute(
        "CREATE TABLE cells AS SELECT * EXCLUDE (line, near_row, near_col)"
        f" FROM {_NEIGHBOURS.format(neighbour)} WHERE {_IS_REPEATED} IS NOT TRUE"
    )
    merged = {}
    if merging.duplicates == "mean":
        merged["value"] = "avg(value ORDER BY value)::FLOAT"
    if merging.grouped:
        merged["group_key"] = "min(group_key)"
    if merged:
        selected = ", ".join(f"{sql} AS {name}" for name, sql in merged.items())
        changed = ", ".join(f"{name} = merged.{name}" for name in merged)
        db.execute(
            f"UPDATE cells SET {changed} FROM (SELECT row, col, {selected} FROM lines"
            " GROUP BY row, col HAVING count(*) > 1) AS merged"
            " WHERE cells.row = merged.row AND cells.col = merged.col"
        )
    db.execute("DROP TABLE lines")


def _count_bounded(db: Session, measures: Sequence[str]) -> int:
    """Return the number of ratings in ``cells`` that are known only by bounds."""
    if "lower" not in measures:
        return 0
    return int(scalar(db, "SELECT count(*) FROM cells WHERE lower < upper"))


def _refuse_pairs(
    db: Session, sides: Mapping[Side, str], *, condition: str, order: str, fault: str
) -> None:
    """Raise InputError, with the first pairs, if pairs in ``lines`` meet a condition.

    Ratings of a pair are shown in an `order`.
    """
    found = f"SELECT row, col FROM lines GROUP BY row, col HAVING {condition}"
    pairs = db.execute(
        "SELECT users.id, items.id, ratings, count(*) OVER () FROM (SELECT row, col, list(value"
        f" ORDER BY {order})[:{SHOWN}] AS ratings FROM lines SEMI JOIN ({found}) USING (row,"
        f" col) GROUP BY row, col) JOIN {sides['rows']}s ON {sides['rows']}s.k = row JOIN"
        f" {sides['cols']}s ON {sides['cols']}s.k = col ORDER BY ALL LIMIT {SHOWN}"
    ).fetchall()
    if not pairs:
        return
    message = f"{pairs[0][-1]} pair(s) of a user and an item are {fault}:"
    for user, item, values, _ in pairs:
        shown = ", ".join(f"{value:g}" for value in values)
        message += f"\n  user {split_name(user)}, item {split_name(item)}: rated {shown}"
    raise InputError(message)
