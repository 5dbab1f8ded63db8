"""Context columns of ratings: which columns of a file they are, and the categories that their values make.

``--context device,price:10,store=5`` asks for the column ``device``; for ``price``, numbers that are cut into ten
groups of about as many ratings each; and for the fifth column, by the name ``store``. Names of `PERIODS` that no column
has are made of the timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from dsgmcmc.data.columns import position_of
from dsgmcmc.data.tables import scalar
from dsgmcmc.data.load import RatingsInput, inspect
from dsgmcmc.data.ratings import Categories
from dsgmcmc.data.ratings.context import MAX_CATEGORIES, context_name
from dsgmcmc.data.session import identifier
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named

_AT = "make_timestamp((time * 1e6)::BIGINT)"
#: Periods of time (UTC): SQL of their names.
PERIODS = {
    "year": f"strftime({_AT}, '%Y')",
    "quarter": f"strftime({_AT}, '%Y') || '-Q' || quarter({_AT})",
    "month": f"strftime({_AT}, '%Y-%m')",
    "week": f"strftime({_AT}, '%G-W%V')",
    "weekday": f"dayname({_AT})",
    "hour": f"strftime({_AT}, '%H')",
}
_SPEC = re.compile(r"\s*([^=:]+?)\s*(?:=\s*([^=:]+?)\s*)?(?::\s*(\d+)\s*)?")
MAX_GROUPS = 1000


class ContextColumn(NamedTuple):
    """A column that is asked for.

    Attributes
    ----------
    name : str
        What it is called from now on.
    column : str
        Its name in the header, or its position from 1.
    groups : int
        Groups that its numbers are cut into; 0 where every value is a category.
    """

    name: str
    column: str
    groups: int

    @property
    def field(self) -> str:
        """The column of the table ``raw`` with its values, quoted."""
        return identifier(f"context {self.name}")


def parse_context(text: str | None) -> tuple[ContextColumn, ...]:
    """Parse the value of ``--context``; see the module."""
    found = []
    for part in text.split(",") if text else ():
        match = _SPEC.fullmatch(part)
        groups = int(match[3] or 0) if match else 0
        if match is None or groups == 1 or groups > MAX_GROUPS:
            raise InputError(
                f"{named('context')} {text}: expected NAME,..., NAME=COLUMN, or NAME:GROUPS for numbers in 2 to "
                f"{MAX_GROUPS} groups"
            )
        try:
            found.append(ContextColumn(context_name(match[1]), match[2] or match[1], groups))
        except ValueError as error:
            raise InputError(f"{named('context')}: {error}; NAME=COLUMN gives it another name") from error
    if len({each.name for each in found}) < len(found):
        raise InputError(f"{named('context')} {text}: names a column twice")
    return tuple(found)


def wanted_periods(
    path: Path, format: str | None, columns: dict[str, str], wanted: Sequence[ContextColumn]
) -> tuple[str, ...]:
    """Names of the columns that are made of timestamps, as the first file, inspected so, has no such columns."""
    if not wanted:
        return ()
    source = inspect(path, format, columns, False)
    return tuple(
        each.name
        for each in wanted
        if each.column in PERIODS and position_of(each.column, list(source.names), 0) is None
    )


def with_context(source: RatingsInput, wanted: Sequence[ContextColumn], periods: Sequence[str]) -> RatingsInput:
    """Find the columns of a file, but for those that are made of timestamps.

    Raises InputError if the file does not have one.
    """
    places = {}
    for each in wanted:
        if each.name in periods:
            continue
        place = position_of(each.column, list(source.names), source.width)
        if place is None or source.kind in ("mtx", "npz"):
            have = f"columns {', '.join(source.names)}" if source.names else f"{source.width} columns without a header"
            raise InputError(
                f"{source.path} has {have}, and no {each.column!r} that {named('context')} names; {', '.join(PERIODS)} "
                "are made of the timestamps"
            )
        places[each.field] = place
    return replace(source, context=places)


def number_categories(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[ContextColumn], periods: Sequence[str]
) -> dict[str, Categories]:
    """Replace the values of context columns in ``raw`` by the numbers of their categories.

    `periods` are the names of those that are made of the times in ``raw``. Whole numbers are in their order, text in
    that of its bytes. Raises InputError if a column has too many categories, or is asked for in groups and not of
    numbers.
    """
    categories = {}
    for wanted in columns:
        value = PERIODS[wanted.column] if wanted.name in periods else wanted.field
        number = _number_groups if wanted.groups else _number_texts
        categories[wanted.name] = number(connection, wanted, value)
    return categories


def _number_texts(connection: duckdb.DuckDBPyConnection, wanted: ContextColumn, value: str) -> Categories:
    text = f"coalesce(trim({value}), '')"
    _drop_point(connection, wanted, value)
    if (n := scalar(connection, f"SELECT count(DISTINCT {text}) FROM raw")) > MAX_CATEGORIES:
        raise InputError(
            f"{named('context')} {wanted.name} has {n:,} different values, more than {MAX_CATEGORIES:,}: is it a "
            f"category? Numbers can be cut into groups: {wanted.name}:10"
        )
    rows = connection.execute(
        f"SELECT name FROM (SELECT DISTINCT {text} AS name FROM raw) ORDER BY name = '', try_cast(name AS BIGINT), name"
    ).fetchall()
    names = tuple(str(name) for (name,) in rows)
    connection.register("names", {"name": np.array(names, object), "code": np.arange(len(names))})
    connection.execute(f"UPDATE raw SET {wanted.field} = names.code FROM names WHERE {text} = names.name")
    connection.unregister("names")
    return Categories(names)


def _drop_point(connection: duckdb.DuckDBPyConnection, wanted: ContextColumn, value: str) -> None:
    """Refuse fractions, which are measured; write whole numbers without ``.0``, which pandas gives them."""
    fraction = f"try_cast({value} AS DOUBLE) <> floor(try_cast({value} AS DOUBLE))"
    example = connection.execute(f"SELECT any_value({value}) FROM raw WHERE {fraction}").fetchall()[0][0]
    if example is not None:
        raise InputError(
            f"{named('context')} {wanted.name} has fractions, such as {example}: cut its numbers into groups, such as "
            f"{wanted.name}:10"
        )
    if value == wanted.field:
        connection.execute(
            f"UPDATE raw SET {value} = left({value}, -2) WHERE regexp_full_match({value}, '-?[0-9]+[.]0')"
        )


def _number_groups(connection: duckdb.DuckDBPyConnection, wanted: ContextColumn, value: str) -> Categories:
    given = f"nullif(trim({value}), '')"
    number = f"try_cast({given} AS DOUBLE)"
    wrong = f"{given} IS NOT NULL AND coalesce(NOT isfinite({number}), true) AND lower({given}) NOT IN ('nan', 'na')"
    bad, example = connection.execute(f"SELECT count(*), any_value({value}) FROM raw WHERE {wrong}").fetchall()[0]
    if bad:
        raise InputError(
            f"{named('context')} {wanted.name}:{wanted.groups} needs numbers, and {bad:,} values are none, such as "
            f"{str(example)[:60]!r}"
        )
    finite = f"CASE WHEN isfinite({number}) THEN {number} END"
    levels = [k / wanted.groups for k in range(1, wanted.groups)]
    found = scalar(connection, f"SELECT quantile_disc({finite}, {levels}) FROM raw")
    edges = np.unique(np.array(found or [], np.float64))
    largest = scalar(connection, f"SELECT max({finite}) FROM raw")
    edges = edges[edges < largest] if largest is not None else edges
    if not len(edges):
        raise InputError(f"{named('context')} {wanted.name}: its numbers are all alike, so there are no groups of them")
    shown = [f"{edge:g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(shown)]
    names = [f"to {shown[0]}", *between, f"above {shown[-1]}"]
    if len(set(names)) < len(names):  # edges that six digits do not tell apart
        names = [f"{k + 1}: {name}" for k, name in enumerate(names)]
    above = " + ".join(f"({finite} > {edge!r}::DOUBLE)::INTEGER" for edge in edges.tolist())
    if scalar(connection, f"SELECT bool_or({finite} IS NULL) FROM raw"):
        names.append("")
    connection.execute(f"UPDATE raw SET {wanted.field} = coalesce({above}, {len(names) - 1})")
    return Categories(tuple(names), edges)
