"""Several new ratings of an item by a user: which of them count, as users say of the run's own."""

from __future__ import annotations

from dsgmcmc.errors import InputError
from dsgmcmc.input.load import measures_of
from dsgmcmc.input.sources.tables import scalar
from dsgmcmc.tables.session import Session
from dsgmcmc.tables.usual import joined

#: The order of ratings in time; those of one time, or without any, have that of their lines.
_IN_TIME = "coalesce(time, '-infinity'::DOUBLE) {0}, rowid {0}"


def merge_repeated(db: Session, duplicates: str | None, is_rated: str) -> None:
    """Leave one row for each pair in ``raw``, or all rows if `duplicates` is "keep" or None.

    Only rows count for which the condition `is_rated` in SQL is true. Raises InputError if a pair
    is repeated, and `duplicates` is "mean" for ratings with weights or bounds.
    """
    if duplicates in (None, "keep"):
        return
    pairs = f"SELECT 1 FROM raw WHERE {is_rated} GROUP BY user_id, item_id HAVING count(*) > 1"
    number = scalar(db, f"SELECT count(*) FROM ({pairs})")
    if not number:
        return
    measures = measures_of(db)
    if duplicates == "mean" and measures:
        raise InputError(
            f"{number:,} pairs have several ratings with {joined(measures)}, which have no mean:"
            " leave all but one of each pair out"
        )
    if duplicates == "mean":
        means = (  # in any order of the ratings the last bits would vary
            "SELECT user_id, item_id, avg(rating ORDER BY rating) AS x FROM raw"
            f" WHERE {is_rated} GROUP BY ALL"
        )
        db.execute(
            f"UPDATE raw SET rating = means.x FROM ({means}) AS means"
            f" WHERE raw.user_id = means.user_id AND raw.item_id = means.item_id AND {is_rated}"
        )
    direction = "DESC" if duplicates == "last" else "ASC"
    numbered = (
        f"SELECT rowid AS line, row_number() OVER (PARTITION BY user_id, item_id"
        f" ORDER BY {_IN_TIME.format(direction)}) AS number FROM raw WHERE {is_rated}"
    )
    db.execute(f"DELETE FROM raw WHERE rowid IN (SELECT line FROM ({numbered}) WHERE number > 1)")
