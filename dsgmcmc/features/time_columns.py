"""Columns of times of a description: they are read, and functions of time are learnt for them.

Times are dates or, if users say so, numbers of seconds. The functions are in
`dsgmcmc.features.times`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import DescriptionTable, kind_option
from dsgmcmc.features.encoding import ColumnEncoding
from dsgmcmc.features.times import (
    MIN_TIMES,
    Bumps,
    Entries,
    Times,
    evaluate,
    learn_families,
    narrowest_bumps,
)
from dsgmcmc.features.values import is_number
from dsgmcmc.input.sources.tables import first_column, scalar
from dsgmcmc.input.times import parse_dates, readable_dates, unit_of_times
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session
from dsgmcmc.terminal import warn
from dsgmcmc.types import Float64

_SINCE_1970 = 1e8  # seconds; larger numbers are dates
#: SQL of a regular expression for a date without separators, as 20210315.
_COMPACT = "[12][0-9]{7}"
_AS_LEARNT = "write them as those of the run"


class TimeColumn(NamedTuple):
    """A column of times that was read.

    Attributes
    ----------
    times : Times
        Rows are those of the description.
    order : str
        The order of day, month and year, if the dates show it.
    example : str
        A date in this order.
    is_numeric : bool
        Whether the times are numbers, in any unit.
    """

    times: Times
    order: str = ""
    example: str = ""
    is_numeric: bool = False


def learn_time_column(
    db: Session, described: DescriptionTable, name: str
) -> tuple[ColumnEncoding | None, list[str]]:
    """Return the encoding of a column of times, and notes on it.

    There is no encoding of a column that nobody called a time, if it has fewer than `MIN_TIMES`
    different dates or they cannot be read. Raises InputError if users did.
    """
    column = _read(db, described, name)
    is_chosen = name in described.kinds
    if isinstance(column, str):
        if is_chosen:
            raise _unread(described, name, column, advice=_leave_out(described, name))
        return None, [f"{name} may be a time: {column}"]
    notes = []
    if column.order:
        notes.append(f"{name}: {column.order}, as in {column.example}")
    size = 1.0
    dated = True
    if column.is_numeric:
        median = float(np.median(np.abs(column.times.time)))
        size, unit = unit_of_times(median)
        dated = median / size >= _SINCE_1970
        column = column._replace(times=_scaled(column.times, size))
        notes = [f"{name}: its numbers are taken for {unit}"]
    families = learn_families(column.times, dated=dated)
    if families:
        encoding = ColumnEncoding(name, "time", sd=size, families=families, order=column.order)
        return encoding, notes
    if is_chosen:
        fault = f"fewer than {MIN_TIMES} different ones say too little"
        raise _unread(described, name, fault, advice=_leave_out(described, name))
    return None, []


def time_entries(db: Session, described: DescriptionTable, encoding: ColumnEncoding) -> Entries:
    """Return the features of a column of times, at the numbers of users or items.

    Raises InputError if the times cannot be read, or have another form than those that were learnt.
    """
    name = encoding.name
    times = read_times(db, described, encoding)
    _warn_outside(described, name, narrowest_bumps(encoding.families), times.time)
    numbered = db.execute(
        f"SELECT d.rowid AS row, k FROM {described.name} d JOIN {described.entity}s USING (id)"
        " ORDER BY row"
    ).fetchnumpy()
    entries = evaluate(encoding.families, times)
    rows = times.row[entries.position]
    numbers = np.asarray(numbered["k"], np.int64)[np.searchsorted(numbered["row"], rows)]
    return entries._replace(position=numbers)


def read_times(db: Session, described: DescriptionTable, encoding: ColumnEncoding) -> Times:
    """Read a column of times in the form of those that were learnt.

    Warns of times that cannot be read, and leaves them out. Raises InputError if none can.
    """
    column = _read(db, described, encoding.name, encoding.order)
    if isinstance(column, str):
        column = _read_others(db, described, encoding, fault=column)
    if not narrowest_bumps(encoding.families).dated and not column.is_numeric:
        fault = "those of the run are numbers, not dates"
        raise _unread(described, encoding.name, fault, advice=_AS_LEARNT)
    if column.is_numeric:
        return _scaled(column.times, encoding.sd)
    return column.times


def _read_others(
    db: Session, described: DescriptionTable, encoding: ColumnEncoding, *, fault: str
) -> TimeColumn:
    """Read the times of a column that can be read; `fault` says why not all of them can."""
    c = described.columns[encoding.name]
    filled = f"FROM {described.name} WHERE {c} IS NOT NULL"
    if narrowest_bumps(encoding.families).dated:
        query = f"SELECT rowid AS row, trim({c}) AS text {filled}"
        rows = readable_dates(db, query, encoding.order).tolist()
    else:
        rows = first_column(db, f"SELECT rowid {filled} AND {is_number(c)}")
    if not rows:
        raise _unread(described, encoding.name, fault, advice=_AS_LEARNT)
    db.register("readable_rows", {"row": np.array(rows, np.int64)})
    listed = "rowid IN (SELECT row FROM readable_rows)"
    number, example = db.execute(
        f"SELECT count(*), min_by({c}, rowid) {filled} AND NOT {listed}"
    ).fetchall()[0]
    warn(
        f"{number:,} {described.entity}(s) have a time in the column {encoding.name} that cannot be"
        f" read beside the others, such as {example!r}: these are unknown"
    )
    column = _read(db, described, encoding.name, encoding.order, among=listed)
    db.unregister("readable_rows")
    if isinstance(column, str):
        raise _unread(described, encoding.name, column, advice=_AS_LEARNT)
    return column


def _scaled(times: Times, size: float) -> Times:
    """Return times in seconds, of which each has `size` of their unit."""
    return Times(times.row, times.time / size, times.clock / size)


def _read(
    db: Session, described: DescriptionTable, name: str, order: str = "", *, among: str = "true"
) -> TimeColumn | str:
    """Read a column of times, or say why it cannot be read.

    `order` is that of known dates; `among` is SQL of the rows that are read.
    """
    c = described.columns[name]
    filled = f"FROM {described.name} WHERE {c} IS NOT NULL AND {among}"
    if scalar(db, f"SELECT bool_and({is_number(c)}) {filled}"):
        return _read_numbers(db, c, filled)
    query = f"SELECT rowid AS row, trim({c}) AS text {filled}"
    read = parse_dates(db, query, name, order)
    if isinstance(read, str):
        return read
    times = Times(read.row, read.time, read.time + read.offset)
    return TimeColumn(times, order=read.order, example=read.example)


def _read_numbers(db: Session, c: str, filled: str) -> TimeColumn | str:
    """Read a column of numbers, unless all of them may be dates such as 20210315."""
    is_date = f"regexp_full_match({c}, '{_COMPACT}') AND try_strptime({c}, '%Y%m%d') IS NOT NULL"
    if scalar(db, f"SELECT bool_and({is_date}) {filled}"):
        text = scalar(db, f"SELECT min({c}) {filled}")
        return f"{text} may be a number or a date: write {text[:4]}-{text[4:6]}-{text[6:]}"
    found = db.execute(f"SELECT rowid AS row, {c}::DOUBLE AS x {filled} ORDER BY row").fetchnumpy()
    x = np.asarray(found["x"], np.float64)
    return TimeColumn(Times(np.asarray(found["row"]), x, x), is_numeric=True)


def _unread(described: DescriptionTable, name: str, fault: str, *, advice: str) -> InputError:
    """Return the error for a column of times that cannot be read."""
    return InputError(f"{described.path}: times in the column {name}: {fault}; {advice}")


def _leave_out(described: DescriptionTable, name: str) -> str:
    """Say how times that are learnt are left out."""
    if described.of_names:
        option = named(f"{described.entity}_features")
        return f"or leave out {option} names, if the names are no times"
    return f"or give {kind_option(name, 'skip')}"


def _warn_outside(described: DescriptionTable, name: str, bumps: Bumps, time: Float64) -> None:
    """Warn of times before or after all those that were learnt, of which bumps say nothing."""
    low, high = bumps.start, bumps.end
    outside = int(((time < low) | (time > high)).sum())
    if outside:
        warn(
            f"{outside:,} {described.entity}(s) have a time in the column {name} that is not from"
            f" {bumps.shown(low)} to {bumps.shown(high)}: bumps say nothing of it"
        )
