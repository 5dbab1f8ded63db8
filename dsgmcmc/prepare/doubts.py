"""Values of ratings in the DuckDB table ``raw``: those that are left out, and those in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.load import measures_of
from dsgmcmc.input.sources.tables import SHOWN, scalar
from dsgmcmc.input.values import not_rated_sql
from dsgmcmc.prepare.not_rated import Codes, find_codes
from dsgmcmc.ratings.item_levels import items_differ, levels_of_items
from dsgmcmc.ratings.names import split_name
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Array

#: Different ratings that a scale of levels may have.
MOST_LEVELS = 50
#: Parts of the range of ratings. Values in one part count as one in the search for codes.
_BINS = 1 << 20
_WIDE_RANGE = 1e4  # ratio of the largest and the least positive rating from which parts are ratios
_TYPICAL = 100_000  # ratings that show the quartiles of all
_MOST_LEVELS = 25  # of a scale
_SHOWING_LEVELS = 200_000  # ratings that show the levels of items
_JUDGED = 12  # ratings from which those of an item are judged
_TIED = 0.1  # share of ratings that are equal to the lowest
_REACH = 1000  # interquartile ranges from the median, beyond which a rating is in doubt


def leave_out(db: Session, missing: Sequence[str], weightless: int = 0) -> int:
    """Delete the ratings that mean "not rated", compared in float32; return their number.

    These are also rows with NULL for ``test``, in which `load` has found a word, or one of the
    `weightless` ratings, whose weight is 0.
    """
    if not missing and not weightless:
        return 0
    deleted = scalar(db, f"DELETE FROM raw WHERE {not_rated_sql(missing)}")
    if not scalar(db, "SELECT count(*) FROM raw WHERE NOT test"):
        if not missing:
            raise InputError("all training ratings have the weight 0")
        raise InputError(f"{named('missing')}={','.join(missing)} leaves no training ratings")
    return int(deleted)


def codes_of_ratings(db: Session) -> Codes:
    """Return the values of ratings that probably mean "not rated"."""
    low, high, positive = db.execute(
        "SELECT min(rating), max(rating), min(rating) FILTER (rating > 0) FROM raw"
    ).fetchall()[0]
    if low >= 0 and positive is not None and high > _WIDE_RANGE * positive:
        logarithm = f"ln(rating / {positive!r}) / ln({high!r} / {positive!r})"
        part = f"CASE WHEN rating > 0 THEN floor({logarithm} * {_BINS}) ELSE -1 END"
    else:
        width = high - low if high > low else 1
        part = f"floor((rating - {low!r}) / {width!r} * {_BINS})"
    query = f"SELECT min(rating) AS value, count(*) AS n FROM raw GROUP BY {part} ORDER BY value"
    bins = db.execute(query).fetchnumpy()
    return find_codes(bins["value"], bins["n"])


def find_far_ratings(db: Session, codes: Sequence[float]) -> str:
    """Name ratings that are farther from the median than 1,000 times the interquartile range.

    Returns an empty text if there are none, but for `codes`. The quartiles are those of 100,000
    ratings.
    """
    step = 1 + scalar(db, "SELECT count(*) FROM raw") // _TYPICAL
    lower, median, upper = scalar(
        db,
        f"SELECT quantile_cont(rating, [0.25, 0.5, 0.75]) FROM raw WHERE hash(rowid) % {step} = 0",
    )
    distance = f"abs(rating - {median!r})"
    is_far = f"{distance} > {_REACH * (upper - lower)!r}"
    if upper == lower or not scalar(db, f"SELECT max({distance}) FROM raw WHERE {is_far}"):
        return ""
    others = "".join(f" AND rating != {code!r}" for code in codes)
    rows = db.execute(
        f"SELECT user_id, item_id, rating, count(*) OVER () FROM raw WHERE {is_far}{others}"
        f" ORDER BY {distance} DESC, user_id::VARCHAR, item_id::VARCHAR LIMIT {SHOWN}"
    ).fetchall()
    if not rows:
        return ""
    number = rows[0][-1]
    subject = "1 rating is" if number == 1 else f"{number:,} ratings are"
    shown = ", ".join(
        f"{rating:g} (user {split_name(user)}, item {split_name(item)})"
        for user, item, rating, _ in rows
    )
    return (
        f"{subject} farther from the median, {median:g}, than {_REACH:,} times the interquartile"
        f" range, {upper - lower:g}: {shown}; correct what is in another unit or a slip, as a model"
        " would follow it"
    )


def find_limits(db: Session, codes: Sequence[float]) -> str:
    """Say if most items have many ratings that are equal to their lowest, or to their highest one.

    Such values stand for what is beyond a limit if other ratings hardly occur twice: half the limit
    of detection, or the end of a range. Zeros do not, nor values among `codes`. Up to 100,000
    ratings show it. Returns an empty text otherwise.
    """
    step = 1 + scalar(db, "SELECT count(*) FROM raw") // _TYPICAL
    sample = f"hash(raw.rowid) % {step} = 0"
    if scalar(db, f"SELECT approx_count_distinct(rating) FROM raw WHERE {sample}") <= MOST_LEVELS:
        return ""
    sample += "".join(f" AND rating != {code!r}" for code in codes)
    if "lower" in measures_of(db):
        sample += " AND lower IS NULL AND upper IS NULL"
    items = (
        "SELECT item_id, count(*) AS n, count(DISTINCT rating) AS levels, min(rating) AS low,"
        f" max(rating) AS high FROM raw WHERE {sample} GROUP BY item_id HAVING n >= {_JUDGED}"
    )
    extremes = (
        "SELECT item_id::VARCHAR AS item, rating AS value, rating = low AS is_low, n, levels,"
        f" count(*) AS ties FROM raw JOIN ({items}) USING (item_id)"
        f" WHERE rating IN (low, high) AND {sample} GROUP BY ALL"
    )
    tied = f"value != 0 AND ties >= greatest(3, {_TIED} * n) AND 2 * (levels - 1) >= n - ties"
    rows = db.execute(
        f"SELECT is_low, count(*) FILTER ({tied}) AS number, count(*) AS total,"
        f" arg_min(value, item) FILTER ({tied}), min(item) FILTER ({tied})"
        f" FROM ({extremes}) GROUP BY is_low HAVING 2 * number > total ORDER BY is_low DESC"
    ).fetchall()
    found = [
        f"the {'lowest' if is_low else 'highest'} rating of {number:,} of {total:,} items is that"
        f" of a tenth of their ratings or more, such as {value:g} of {split_name(item)}"
        for is_low, number, total, value, item in rows
    ]
    if not found:
        return ""
    return (
        f"{'; '.join(found)}: if it stands for what is beyond a limit, as half the limit of"
        " detection does, write bounds, such as <0.5 or >2000 (docs/measurements.md)"
    )


class _ItemLevels(NamedTuple):
    """Numbers of ratings of items (I, R) at levels (R,), by number of the item; and of which."""

    items: Array
    levels: Array
    counts: Array
    where: str


def describe_item_levels(db: Session, codes: Sequence[float], *, transposed: bool) -> str:
    """Say which items have fewer levels than others in the training ratings of ``sorted``.

    Returns an empty text if few have, or ratings are no levels; `codes` are none. The rows of the
    table are items if it is `transposed`.
    """
    found = _count_levels(db, codes, item="row" if transposed else "col")
    if found is None:
        return ""
    has = levels_of_items(found.counts)
    if not items_differ(has):
        return ""
    id_of = dict(db.execute("SELECT k, id::VARCHAR FROM items").fetchall())
    lacking = {
        split_name(id_of[found.items[row]]): row
        for row in np.flatnonzero(~has.all(axis=1)).tolist()
    }
    names = sorted(lacking)
    first = has[lacking[names[0]]]
    some = ", ".join(f"{level:g}" for level in found.levels[first])
    return (
        f"in {found.where} {len(names):,} of {len(found.items):,} items have other levels than the"
        f" rest ({shortened(names)}), as {names[0]} has {some}"
    )


def _count_levels(db: Session, codes: Sequence[float], *, item: str) -> _ItemLevels | None:
    """Count training ratings, or a sample of them, by item and level.

    `item` is the column with the numbers of items. Returns None if there are more than 25 levels.
    """
    step = 1 + scalar(db, "SELECT count(*) FROM sorted WHERE NOT test") // _SHOWING_LEVELS
    others = "".join(f" AND value != {code!r}::FLOAT" for code in codes)
    sample = f"FROM sorted WHERE NOT test AND hash(rowid) % {step} = 0{others}"
    if scalar(db, f"SELECT approx_count_distinct(value) {sample}") > 2 * _MOST_LEVELS:
        return None
    cells = db.execute(
        f"SELECT {item} AS item, value, count(*) AS n {sample} GROUP BY ALL"
    ).fetchnumpy()
    levels, column = np.unique(cells["value"], return_inverse=True)
    if not 2 < len(levels) <= _MOST_LEVELS:
        return None
    items, row = np.unique(cells["item"], return_inverse=True)
    counts = np.zeros((len(items), len(levels)))
    counts[row, column] = cells["n"]
    where = "the training ratings" if step == 1 else "a sample of the training ratings"
    return _ItemLevels(items, levels, counts, where)
