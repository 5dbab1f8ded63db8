"""Cells of a DuckDB table of text as rows: counts of values by their form, and numbers.

Aggregates of cells by column take a twentieth of the time of aggregates of hundreds of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.features.encoding import Kind
from dsgmcmc.input.sources.tables import scalar
from dsgmcmc.tables.session import Session, as_number, literal
from dsgmcmc.types import Float64, Int64

YEAR_AT_END = r"(1[5-9][0-9][0-9]|20[0-9][0-9])\)?$"
#: Forms of dates: 2021-03-15, 15.3.2021, 15-Mar-2021 and March 15, 2021, with or without a time.
_DATE = (
    "([0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{4}"
    "|[0-9]{1,2}[ ./-]*[A-Za-z]{3,9}[ .,/-]*[0-9]{4}|[A-Za-z]{3,9}[ .]+[0-9]{1,2},? +[0-9]{4})"
    "(,?[T ]+[0-9]{1,2}:.*)?"
)
#: Share of values with a separator from which on a column that may be something else has lists.
_SHARE_OF_LISTS = 0.05
_COLUMNS = 500  # columns whose cells one query reads
_CELLS = 10_000_000  # cells that one query reads, unless a single column has more


def batches(columns: Sequence[str], rows: int = 1) -> Iterator[Sequence[str]]:
    """Yield columns, as many at a time as one query should read of a table of some rows."""
    step = max(1, min(_COLUMNS, _CELLS // max(1, rows)))
    for start in range(0, len(columns), step):
        yield columns[start : start + step]


def select_cells(table: str, columns: Sequence[str], *keys: str) -> str:
    """Return SQL for the cells of columns as text: a row (value, position, keys) for each cell."""
    values = ", ".join(f"{column}::VARCHAR" for column in columns)
    selected = [
        f"unnest([{values}]) AS value",
        f"unnest(range({len(columns)})) AS position",
        *keys,
    ]
    return f"SELECT {', '.join(selected)} FROM {table}"


def is_number(text: str) -> str:
    """Return SQL that is true for a text that is a finite number."""
    return f"coalesce(isfinite({as_number(text)}), false)"


def as_flag(text: str) -> str:
    """Return SQL for a text as 0 or 1, or else NULL."""
    return (
        f"CASE lower({text}) WHEN 'true' THEN 1 WHEN 'false' THEN 0"
        f" ELSE CASE {as_number(text)} WHEN 1 THEN 1 WHEN 0 THEN 0 END END"
    )


class ColumnCounts(NamedTuple):
    """Numbers of values of a column.

    Attributes
    ----------
    filled, distinct : int
        All values that are not missing, and different ones.
    numbers, flags, zero_led : int
        Numbers; numbers that are 0 or 1, and true and false; values with a leading 0.
    lists : int
        Values with a separator.
    years, titles : int
        Values without a separator that end with a year, and those that are no numbers.
    dates : int
        Values that look like a date with a year of four digits.
    """

    filled: int
    distinct: int
    numbers: int
    flags: int
    zero_led: int
    lists: int
    years: int
    titles: int
    dates: int

    def guess(self) -> Kind:
        """Return the kind that most values have, or time, if all look like dates.

        A list may end with a number that looks like a year, and a list of one number is a number,
        so separators come first.
        """
        if self.dates == self.filled and not self.lists:
            return "time"
        return self.guess_without_dates()

    def guess_without_dates(self) -> Kind:
        """Return the kind that most values have; dates are texts."""
        if self.flags == self.filled and not self.zero_led:
            return "flag"
        has_titles = self.titles > self.filled / 2
        if self.lists and self.lists >= _SHARE_OF_LISTS * self.filled and not has_titles:
            return "list"
        if self.numbers > self.filled / 2 and not self.zero_led:
            return "number"
        if self.years > self.filled / 2:
            return "year"
        return "list" if self.lists else "category"

    def fits(self, kind: Kind) -> bool:
        """Whether all values can be of a kind."""
        if kind == "number":
            return self.numbers == self.filled
        if kind == "flag":
            return self.flags == self.filled
        return True


def count_values(
    db: Session, table: str, columns: Sequence[str], separator: str
) -> dict[str, ColumnCounts]:
    """Count the values of the columns of a table by their form."""
    is_list = f"contains(value, {literal(separator)})"
    is_year = f"NOT {is_list} AND regexp_matches(value, '{YEAR_AT_END}')"
    aggregates = [
        "count(value)",
        "count(DISTINCT value)",
        f"count(*) FILTER ({is_number('value')})",
        f"count({as_flag('value')})",
        "count(*) FILTER (regexp_matches(value, '^0[0-9]'))",
        f"count(*) FILTER ({is_list})",
        f"count(*) FILTER ({is_year})",
        f"count(*) FILTER ({is_year} AND NOT {is_number('value')})",
        f"count(*) FILTER (regexp_full_match(value, '{_DATE}'))",
    ]
    n_rows = int(scalar(db, f"SELECT count(*) FROM {table}"))
    counts = {}
    for batch in batches(columns, n_rows):
        rows = db.execute(
            f"SELECT position, {', '.join(aggregates)} FROM ({select_cells(table, batch)})"
            " GROUP BY position"
        ).fetchall()
        for position, *numbers in rows:
            counts[batch[position]] = ColumnCounts(*numbers)
    return counts


class Numbers(NamedTuple):
    """Rows and numbers of a column of numbers or flags, (n,) each, ordered by row."""

    row: Int64
    value: Float64


def read_numbers(
    db: Session, table: str, numbered: str, columns: Mapping[str, str]
) -> Iterator[tuple[str, Numbers]]:
    """Yield the numbers of columns of numbers and flags, by name.

    Parameters
    ----------
    table : str
        Table with ``id`` and the columns.
    numbered : str
        Table (id, k) that tells the row k of each name.
    columns : dict of str to str
        Columns of the table by name.
    """
    joined = f"{table} JOIN {numbered} USING (id)"
    n_rows = int(scalar(db, f"SELECT count(*) FROM {table}"))
    number = "CASE lower(value) WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE value::DOUBLE END"
    for names in batches(list(columns), n_rows):
        cells = select_cells(joined, [columns[name] for name in names], "k")
        found = db.execute(
            f"SELECT position, k, ({number})::DOUBLE AS x FROM ({cells})"
            " WHERE value IS NOT NULL ORDER BY position, k"
        ).fetchnumpy()
        ends = np.searchsorted(found["position"], np.arange(len(names) + 1))
        for position, name in enumerate(names):
            part = slice(ends[position], ends[position + 1])
            yield name, Numbers(found["k"][part], found["x"][part].astype(np.float64))
