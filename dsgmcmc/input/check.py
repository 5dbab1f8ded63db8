"""Refuses rows of ratings that have faults, in one message with the first five."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.marks import is_by_other_mark, marks_advice
from dsgmcmc.input.sources.tables import SHOWN, scalar
from dsgmcmc.ratings.names import BETWEEN, part_sql, split_name
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, is_rounded


class NameFaults(NamedTuple):
    """SQL conditions under which names in a column of ``raw`` are invalid."""

    missing: str
    rounded: str
    has_nul: str


def name_faults(name: str, n_parts: int, *, integers: bool) -> NameFaults:
    """Return the conditions for a column of names, which have parts, or are `integers` by type."""
    if integers:
        return NameFaults(missing=f"{name} IS NULL", rounded="false", has_nul="false")
    parts = [part_sql(name, k, n_parts) for k in range(n_parts)]
    # to trim all names would take longer
    blank = " OR ".join(f"({part} < '!' AND trim({part}) = '')" for part in parts)
    rounded = " OR ".join(map(is_rounded, parts))
    has_nul = f"contains({name}, chr(0))"
    if n_parts > 1:  # to take all names apart would take longer, too
        may_be_blank = (
            f"contains({name}, ' ') OR contains({name}, {BETWEEN} || {BETWEEN})"
            f" OR starts_with({name}, {BETWEEN}) OR ends_with({name}, {BETWEEN})"
        )
        blank = f"(({may_be_blank}) AND ({blank}))"
        rounded = f"((contains({name}, '+') OR contains({name}, '.')) AND ({rounded}))"
        has_nul = f"len(string_split({name}, {BETWEEN})) > {n_parts}"
    return NameFaults(missing=f"{name} IS NULL OR {blank}", rounded=rounded, has_nul=has_nul)


class _Row(NamedTuple):
    """A row with a fault; `text` is that of a rating that is no number."""

    row: int
    fault: str
    user: str
    item: str
    rating: float | None
    text: str | None


def refuse_faults(db: Session, file: Source, first: int, faults: Mapping[str, str]) -> None:
    """Raise InputError if rows of a file have faults, which have SQL by what a message says.

    The rows are in ``raw`` from row `first` on. The error gives their number and the first five.
    """
    cases = " ".join(f"WHEN {condition} THEN '{fault}'" for fault, condition in faults.items())
    db.execute(
        f"CREATE OR REPLACE TABLE faulty AS SELECT rowid AS row, CASE {cases} END AS fault,"
        f" user_id, item_id, rating FROM raw WHERE rowid >= {first} AND test IS NOT NULL"
        " AND fault IS NOT NULL"
    )
    number = scalar(db, "SELECT count(*) FROM faulty")
    if not number:
        return
    rows = db.execute(
        f"SELECT faulty.row - {first}, fault, user_id, item_id, rating, text FROM faulty"
        " LEFT JOIN texts ON faulty.row = texts.row AND rating IS NULL"
        f" ORDER BY faulty.row LIMIT {SHOWN}"
    ).fetchall()
    raise InputError(_message(file, number, [_Row(*row) for row in rows]))


def _message(file: Source, number: int, rows: Sequence[_Row]) -> str:
    """Return a message on a number of rows with faults, of which the first are shown."""
    subject = "1 row has" if number == 1 else f"{number} rows have"
    message = (
        f"{file.path}: {subject} missing, non-numeric, rounded, infinite or NaN values; correct or"
        " remove them"
    )
    if any("missing" in row.fault for row in rows):
        option = f"{named('missing')}=['WORD'] ([''] for an empty field)"
        if option.startswith("--"):  # on the command line
            option = f"{named('missing')} WORD ('' for an empty field)"
        message += f", or leave out lines that have WORD in place of a name or a rating by {option}"
    texts = [row.text for row in rows if row.text is not None]
    if any(is_by_other_mark(text, file.mark) for text in texts):
        message += f"; {marks_advice()}"
    elif number == 1 and texts and rows[0].row == 0 and file.first_line:
        where = file.where(0)
        message += f"; if {where} has units, {skip_advice(where)}"
    elif texts:
        message += "; write numbers without other signs or units"
    for place, row in zip(file.places([row.row for row in rows]), rows, strict=True):
        rating = row.rating if row.text is None else row.text
        message += (
            f"\n  {place}: {row.fault} (user {split_name(row.user)}, item {split_name(row.item)},"
            f" rating {rating})"
        )
    return message


def skip_advice(where: str) -> str:
    """Say how to leave out a row, given where it is; only lines of text have an option for it."""
    if not where.startswith("line "):
        return f"remove {where}"
    return f"remove {where}, or leave it out by {named('skip_rows')} {where.removeprefix('line ')}"
