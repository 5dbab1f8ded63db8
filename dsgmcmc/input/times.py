"""Reads times that are written as dates, in ISO form or, if a whole column agrees, in other forms.

Other forms are numbers between points, slashes or hyphens (15.3.2021, 3/15/21) and names of months
(15-Mar-2021, March 15, 2021), with or without a time of day. The order of day, month and year is
the one in which every date of the column exists; if there are two, the dates are not read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.tables import scalar
from dsgmcmc.input.values import is_word
from dsgmcmc.tables.session import Session, as_number
from dsgmcmc.tables.usual import EMPTY
from dsgmcmc.types import Float64, Int64, Mask

#: SQL of times that are NaN or before the year 1019: DuckDB reads 15-03-21 as a day of year 15.
_STRANGE = "isnan(time) OR time < -3e10"
_TIME = "(?:,?[ T]+(.*))?$"
_WEEKDAY = "^(?:[A-Za-z]{2,9}[.]?,? +)?"
#: Regular expressions of dates, and their groups.
_NUMBERS = f"^([0-9]{{1,4}})([./-])([0-9]{{1,2}})[./-]([0-9]{{1,4}}){_TIME}"
_DAY_MONTH = f"{_WEEKDAY}([0-9]{{1,2}})[ ./-]*([A-Za-z]{{3,9}})[ .,/-]*([0-9]{{4}}){_TIME}"
_MONTH_DAY = f"{_WEEKDAY}([A-Za-z]{{3,9}})[ .]+([0-9]{{1,2}}),? +([0-9]{{4}}){_TIME}"
_GROUPS = {
    "n": (_NUMBERS, ("a", "mark", "b", "c", "rest")),
    "dm": (_DAY_MONTH, ("day", "month", "year", "rest")),
    "md": (_MONTH_DAY, ("month", "day", "year", "rest")),
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
#: Forms of a date with a time of day that has AM or PM.
_HALF_DAYS = [f"%Y-%m-%d %I:%M{rest}" for rest in (":%S %p", " %p", ":%S%p", "%p")]
#: An offset from UTC at the end of a time of day, and words for the time of Greenwich.
_OFFSET = ":[0-9.]+ ?([+-])([0-9]{2})(?::?([0-9]{2}))?$"
_GREENWICH = "(?i)[0-9] ?(z|utc|gmt)$"
#: A word at the end of a time of day that is neither one of these nor AM or PM.
_OTHER_ZONE = "(?i):.*[0-9] ?[a-z_/]+$"
_HALVES = "(?i)[ap][.]?m[.]?$"
_MONTH = "[0-9]{4}-[0-9]{2}"  # as 2019-01
#: Columns of year, month and day among three numbers a, b, c, by their order.
_ORDERS: dict[str, str] = {"day first": "cba", "month first": "cab", "year first": "abc"}


class TimeUnit(NamedTuple):
    """A unit of times that are numbers, of which a second has `size`."""

    size: float
    name: str


#: Units by the bound of the sizes of times above which these are in a unit.
_UNITS = {
    1e17: TimeUnit(1e9, "nanoseconds"),
    1e14: TimeUnit(1e6, "microseconds"),
    1e11: TimeUnit(1e3, "milliseconds"),
}


def unit_of_times(median: float) -> TimeUnit:
    """Return the unit that the median size of times shows.

    Times before the year 5138 are below 10^11 seconds.
    """
    for bound, unit in _UNITS.items():
        if median > bound:
            return unit
    return TimeUnit(1.0, "seconds")


class UnreadTimes(NamedTuple):
    """Times of a column that cannot be read.

    Attributes
    ----------
    column : str
        Name of the column.
    number : int
        Number of these times.
    total : int
        Number of rows.
    example : str
        One of them.
    orders : list of str
        Orders of day, month and year that are all possible.
    """

    column: str
    number: int
    total: int
    example: str
    orders: list[str]

    def __str__(self) -> str:
        """Return what is wrong, and how times must be written."""
        advice = "write times as 2021-03-15 10:30:00, or in seconds"
        if self.orders:
            return (
                f"the dates in column {self.column}, such as {self.example!r}, may have the"
                f" {' or the '.join(self.orders)}: {advice}"
            )
        return (
            f"{self.number:,} of {self.total:,} times in column {self.column} cannot be read, such"
            f" as {self.example!r}: {advice}"
        )


class DateReading(NamedTuple):
    """How the dates of a column were read.

    Attributes
    ----------
    order : str
        The order of day, month and year, if only one was possible and it was not certain before.
    unread : UnreadTimes, optional
        Times that cannot be read.
    """

    order: str = ""
    unread: UnreadTimes | None = None


def time_sql(text: str) -> str:
    """Return SQL of a time by its text: a number, or an ISO date in seconds, or else NULL."""
    # DuckDB would evaluate a second cast of the same text for numbers, too, which takes long
    return f"coalesce({as_number(text)}, epoch(try_cast({text} AS TIMESTAMPTZ)))"


def doubtful(db: Session, first: int) -> bool:
    """Whether some times in ``raw``, from row `first` on, are missing, or may have been misread."""
    query = f"SELECT count(*) FROM raw WHERE rowid >= {first} AND (time IS NULL OR {_STRANGE})"
    return bool(scalar(db, query))


def read_dates(db: Session, file: Source, column: int, first: int) -> DateReading:
    """Read the dates of a file that `time_sql` has not read into the table ``raw``.

    The file's rows in ``raw`` begin at row `first`.
    """
    db.execute("CREATE OR REPLACE TABLE unread (row BIGINT, text TEXT)")
    file.insert_texts(db, "unread", column, first)
    db.execute(f"UPDATE raw SET time = NULL WHERE rowid >= {first} AND isnan(time)")
    db.execute(
        f"UPDATE raw SET time = NULL FROM unread WHERE raw.rowid = unread.row AND ({_STRANGE})"
    )
    unread = (
        "SELECT row, text FROM unread JOIN raw ON raw.rowid = unread.row"
        f" WHERE time IS NULL AND test IS NOT NULL AND NOT {is_word('text', EMPTY)}"
    )
    total = scalar(db, f"SELECT count(*) FROM raw WHERE rowid >= {first}")
    name = file.names[column]
    found = _read_orders(db, unread, name, total)
    if found.unread is None:
        db.execute("UPDATE raw SET time = dates.time FROM dates WHERE raw.rowid = dates.row")
    db.execute("DROP TABLE unread; DROP TABLE dates")
    if found.order:
        return DateReading(order=f"{name}: {found.order}, as in {found.example}")
    return DateReading(unread=found.unread)


class _Ordered(NamedTuple):
    """What the table ``dates`` has: dates in an order, or none that could be read.

    Attributes
    ----------
    order : str
        The order of day, month and year, if only one was possible and it was not certain before.
    example : str
        The first date.
    unread : UnreadTimes, optional
        Dates that cannot be read.
    """

    order: str
    example: str
    unread: UnreadTimes | None = None


def _read_orders(db: Session, query: str, column: str, total: int, *, order: str = "") -> _Ordered:
    """Make the table ``dates`` (row, text, time) of dates that are not in ISO form.

    Parameters
    ----------
    query : str
        SQL of their rows and texts (row, text).
    column : str
        Name of the column, for messages.
    total : int
        Number of rows of the column.
    order : str
        The order of day, month and year, if it is known.
    """
    times = ", ".join(f"{_time_sql(columns)} AS t{k}" for k, columns in enumerate(_ORDERS.values()))
    db.execute(
        "CREATE OR REPLACE TABLE dates AS"
        f" SELECT row, text, NULL::DOUBLE AS time, {times} FROM ({_numbers_sql(query)})"
    )
    failures = [
        scalar(db, f"SELECT count(*) FROM dates WHERE t{k} IS NULL") for k in range(len(_ORDERS))
    ]
    number, example = db.execute("SELECT count(*), min_by(text, row) FROM dates").fetchall()[0]
    names = list(_ORDERS)
    possible = [k for k, n_failed in enumerate(failures) if not n_failed]
    if order:
        possible = [k for k in possible if names[k] == order]
    differ = " OR ".join(f"t{k} != t{possible[0]}" for k in possible[1:])
    if not possible or (differ and scalar(db, f"SELECT count(*) FROM dates WHERE {differ}")):
        orders = [names[k] for k in possible]
        return _Ordered("", example, UnreadTimes(column, number, total, example, orders))
    db.execute(f"UPDATE dates SET time = t{possible[0]}")
    if len(possible) == 1 and number:
        return _Ordered(names[possible[0]], example)
    return _Ordered("", example)


class DatesRead(NamedTuple):
    """Dates of a column as times; n of them.

    Attributes
    ----------
    row : (n,) int64
        Their rows, ascending.
    time, offset : (n,) float64
        Seconds since 1970 in UTC, and what a clock at the place is ahead of UTC, in seconds.
    order : str
        The order of day, month and year, if only one was possible and it was not certain before.
    example : str
        A date in this order.
    """

    row: Int64
    time: Float64
    offset: Float64
    order: str
    example: str


def parse_dates(db: Session, query: str, column: str, order: str = "") -> DatesRead | str:
    """Read the dates of a column with their offsets from UTC, or say why they cannot be read.

    `query` is SQL of their rows and texts (row, text); `order` is that of day, month and year, if
    it is known. Time zones other than UTC must be written as offsets. If some times have an offset,
    all must have one.
    """
    _make_times(db, query)
    result: DatesRead | str = _zone_fault(db)
    if not result:
        result = _read_times(db, column, order)
    db.execute("DROP TABLE times")
    return result


def _read_times(db: Session, column: str, order: str) -> DatesRead | str:
    """Return the dates in the table ``times``, or say why they cannot be read."""
    total = scalar(db, "SELECT count(*) FROM times")
    unread = "SELECT row, text FROM times WHERE time IS NULL"
    ordered = _read_orders(db, unread, column, total, order=order)
    found = db.execute(
        "SELECT row, coalesce(times.time, dates.time) AS time, ahead::DOUBLE AS ahead"
        " FROM times LEFT JOIN dates USING (row) ORDER BY row"
    ).fetchnumpy()
    db.execute("DROP TABLE dates")
    if ordered.unread is not None:
        return str(ordered.unread)
    return DatesRead(
        row=np.asarray(found["row"]),
        time=np.asarray(found["time"]),
        offset=np.asarray(found["ahead"]),
        order=ordered.order,
        example=ordered.example,
    )


def readable_dates(db: Session, query: str, order: str = "") -> Int64:
    """Return the rows of dates that can be read one by one, ascending.

    Parameters are as for `parse_dates`. If only some of these have an offset from UTC, the rows are
    those without one.
    """
    _make_times(db, query)
    columns = [_time_sql(columns) for name, columns in _ORDERS.items() if order in ("", name)]
    db.execute(
        f"CREATE OR REPLACE TABLE dates AS SELECT row, greatest({', '.join(columns)}) AS latest,"
        f" least({', '.join(columns)}) AS earliest FROM"
        f" ({_numbers_sql('SELECT row, text FROM times WHERE time IS NULL')})"
    )
    found = db.execute(
        "SELECT row, has_offset FROM times LEFT JOIN dates USING (row)"
        " WHERE NOT other_zone AND (time IS NOT NULL OR latest = earliest) ORDER BY row"
    ).fetchnumpy()
    db.execute("DROP TABLE dates; DROP TABLE times")
    rows: Int64 = np.asarray(found["row"], np.int64)
    has_offset: Mask = np.asarray(found["has_offset"], bool)
    if has_offset.all():
        return rows
    return rows[~has_offset]


def _make_times(db: Session, query: str) -> None:
    """Make the table ``times`` (row, text, ahead, has_offset, other_zone, time) of a column.

    `query` is that of `parse_dates`. A time is NULL if its date is not in ISO form; ``ahead`` is
    the offset from UTC, in seconds.
    """
    db.execute(f"CREATE OR REPLACE TABLE written AS {query}")
    sign, hours, minutes = (f"regexp_extract(text, '{_OFFSET}', {k})" for k in (1, 2, 3))
    offset = (
        f"CASE WHEN {hours} != '' THEN (CASE {sign} WHEN '-' THEN -60 ELSE 60 END)"
        f" * ({hours}::INTEGER * 60 + coalesce(try_cast({minutes} AS INTEGER), 0)) ELSE 0 END"
    )
    is_other = (
        f"regexp_matches(text, '{_OTHER_ZONE}') AND NOT regexp_matches(text, '{_GREENWICH}')"
        f" AND NOT regexp_matches(text, '{_HALVES}')"
    )
    db.execute(
        f"CREATE OR REPLACE TABLE times AS SELECT row, text, {offset} AS ahead,"
        f" {hours} != '' OR regexp_matches(text, '{_GREENWICH}') AS has_offset,"
        f" {is_other} AS other_zone, epoch(try_cast(CASE WHEN regexp_full_match(text, '{_MONTH}')"
        " THEN text || '-01' ELSE text END AS TIMESTAMPTZ)) AS time FROM written"
    )
    db.execute(f"UPDATE times SET time = NULL WHERE {_STRANGE} OR NOT isfinite(time)")
    db.execute("DROP TABLE written")


def _zone_fault(db: Session) -> str:
    """Say which times have a time zone that is unknown, or if some have an offset alone."""
    others = db.execute("SELECT text FROM times WHERE other_zone ORDER BY row LIMIT 1").fetchall()
    if others:
        return (
            f"{others[0][0]!r} has a time zone: write its offset, as in 2021-03-15 10:30:00+01:00"
        )
    total, number = db.execute(
        "SELECT count(*), count(*) FILTER (has_offset) FROM times"
    ).fetchall()[0]
    if 0 < number < total:
        return (
            f"{number:,} of {total:,} times have an offset from UTC: write it for all or for none"
        )
    return ""


def _numbers_sql(query: str) -> str:
    """Return SQL that adds to texts the numbers a, b and c of a date, and the rest of the text.

    Dates whose order is certain have the order year, month, day: those with the name of a month,
    with a year first, or with points, as 15.3.2021.
    """
    groups = ", ".join(
        f"regexp_extract(text, '{pattern}', {list(names)}) AS {name}"
        for name, (pattern, names) in _GROUPS.items()
    )
    month = f"list_position({_MONTHS}, left(lower({{}}.month), 3))::VARCHAR"
    is_named = "CASE WHEN md.year != '' THEN {} WHEN dm.year != '' THEN {}"
    is_german = "WHEN n.mark = '.' AND length(n.c) = 4 THEN {} ELSE {} END"
    a = f"{is_named} {is_german}".format("md.year", "dm.year", "n.c", "n.a")
    b = f"{is_named} ELSE n.b END".format(month.format("md"), month.format("dm"))
    c = f"{is_named} {is_german}".format("md.day", "dm.day", "n.a", "n.c")
    rest = f"{is_named} ELSE n.rest END".format("md.rest", "dm.rest")
    return (
        f"SELECT row, text, {a} AS a, {b} AS b, {c} AS c, {rest} AS rest"
        f" FROM (SELECT row, text, {groups} FROM ({query}))"
    )


def _time_sql(order: str) -> str:
    """Return SQL of the time, in seconds, of three numbers in an order, or NULL."""
    year, month, day = list(order)
    # years of two digits are from 1970 to 2069
    short_year = f"{year}::INTEGER + CASE WHEN {year}::INTEGER < 70 THEN 2000 ELSE 1900 END"
    long_year = "NULL" if order == "abc" else _date_sql("c", month, day)
    date = (
        f"CASE WHEN length(a) = 4 THEN {_date_sql('a', 'b', 'c')}"
        f" WHEN length(c) = 4 THEN {long_year}"
        f" WHEN length({year}) = 2 AND length({day}) <= 2 THEN"
        f" {_date_sql(f'({short_year})', month, day)} END"
    )
    return (
        "CASE WHEN rest = '' THEN epoch(try_cast(({0}) AS TIMESTAMPTZ))"
        " WHEN regexp_matches(rest, '[apAP][.]?[mM][.]?$') THEN epoch(try_strptime(({0}) || ' ' ||"
        f" upper(replace(rest, '.', '')), {_HALF_DAYS}))"
        " ELSE epoch(try_cast(({0}) || ' ' || rest AS TIMESTAMPTZ)) END"
    ).format(date)


def _date_sql(year: str, month: str, day: str) -> str:
    """Return SQL of an ISO date."""
    return f"printf('%04d-%02d-%02d', {year}::INTEGER, {month}::INTEGER, {day}::INTEGER)"
