"""Detect the kinds of columns in a file of features: number, category, list, year, flag, or skip."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from dsgmcmc.data.ingest.features.table import Table, is_missing
from dsgmcmc.data.session import literal
from dsgmcmc.errors import InputError

#: What a column may be.
KINDS = {
    "number": "standardised",
    "category": "one feature for each value",
    "list": "values with a separator, one feature for each",
    "year": "a year, or a text that ends with one as in `Heat (1995)`; one feature for each decade",
    "flag": "0 or 1 as it is; `genres=Comedy` is a feature of the group genres",
    "skip": "left out",
}
MAX_CATEGORIES = 1000
_YEARS = ("year", "releaseyear", "yearofpublication", "publicationyear")
_YEAR_AT_END = r"(1[5-9][0-9][0-9]|20[0-9][0-9])\)?$"


class Column(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    name : str
        In the file.
    sql : str
        In the table.
    kind : key of `KINDS`
    note : str
        Why it is left out, if that was not asked for.
    """

    name: str
    sql: str
    kind: str
    note: str = ""


def parse_kinds(text: str | None) -> dict[str, str]:
    """Parse ``COLUMN=KIND,...``; the kind is what follows the last equals sign."""
    kinds = {}
    for part in text.split(",") if text else ():
        name, _, kind = part.strip().rpartition("=")
        if not name or kind not in KINDS:
            raise InputError(f"--feature-kinds {text}: expected COLUMN=KIND,... with KIND one of {', '.join(KINDS)}")
        kinds[name] = kind
    return kinds


def select_atoms(table: Table, column: Column, separator: str) -> str:
    """Return SQL for (id, atom) of every category that holds, once."""
    text = column.sql
    if column.kind == "list":
        text = f"unnest(string_split({text}, {literal(separator)}))"
    elif column.kind == "year":
        year = f"nullif(regexp_extract({text}, '{_YEAR_AT_END}', 1), '')::INTEGER"
        text = f"({year} // 10 * 10)::VARCHAR || 's'"
    inner = f"SELECT id, {text} AS atom FROM {table.name} WHERE {column.sql} IS NOT NULL"
    return f"SELECT DISTINCT id, trim(atom) AS atom FROM ({inner}) WHERE NOT {is_missing('atom')}"


def find_kinds(db: duckdb.DuckDBPyConnection, table: Table, wanted: dict[str, str], separator: str) -> list[Column]:
    """Detect the kind of every column.

    Raises InputError if a column does not have the kind that was given, or has nearly only numbers.

    Parameters
    ----------
    wanted : dict of str to str
        Kinds that were asked for, by column; others are ignored.
    separator : str
        Between the values of a list.
    """
    columns = []
    for name, sql in table.columns.items():
        said = wanted.get(name) or table.kinds.get(name)
        if said == "skip":
            columns.append(Column(name, sql, "skip"))
            continue
        columns.append(_look(db, table, Column(name, sql, said or ""), separator, name in wanted))
    return columns


def _look(db: duckdb.DuckDBPyConnection, table: Table, column: Column, separator: str, asked: bool) -> Column:
    c = column.sql
    number = _is_number(c)
    filled, distinct, numbers, codes, lists, years, flags = db.execute(
        f"SELECT count({c}), count(DISTINCT {c}), count(*) FILTER ({number}), "
        f"count(*) FILTER (regexp_matches({c}, '^0[0-9]')), count(*) FILTER (contains({c}, {literal(separator)})), "
        f"count(*) FILTER (regexp_matches({c}, '{_YEAR_AT_END}')), count(*) FILTER ({c} IN ('0', '1')) "
        f"FROM {table.name}"
    ).fetchall()[0]
    kind = column.kind
    if distinct < 2:
        return column._replace(kind="skip", note="it is empty" if filled == 0 else "all its values are the same")
    if not kind:
        plain = column.name.lower().replace(" ", "").replace("_", "")
        if numbers == filled and not codes:
            kind = "flag" if "=" in column.name and flags == filled else "number"
            kind = "year" if plain in _YEARS and years == filled else kind
        elif years > filled / 2 and not numbers:
            kind = "year"
        elif lists:
            kind = "list"
        else:
            kind = "number" if numbers > filled / 2 and not codes else "category"
    column = column._replace(kind=kind)
    check_values(db, table, column, f"or say what the column is with --feature-kinds {column.name}=category (or skip)")
    return column if kind in ("number", "flag") else _categorical(db, table, column, separator, filled, asked)


def _is_number(sql: str) -> str:
    return f"(try_cast({sql} AS DOUBLE) IS NOT NULL AND isfinite(try_cast({sql} AS DOUBLE)))"


def check_values(db: duckdb.DuckDBPyConnection, table: Table, column: Column, advice: str) -> None:
    """Refuse a column of numbers, or of flags, that has something else in it: an InputError with the first five.

    `advice` says what to do instead of correcting it.
    """
    c = column.sql
    wrong = {"number": f"NOT {_is_number(c)}", "flag": f"{c} NOT IN ('0', '1')"}.get(column.kind)
    if wrong is None:
        return
    rows = db.execute(f"SELECT rowid, {c} FROM {table.name} WHERE {c} IS NOT NULL AND {wrong} LIMIT 5").fetchall()
    if rows:
        where, texts = table.where([row for row, _ in rows]), ", ".join(repr(text) for _, text in rows)
        raise InputError(f"{table.path}, {where}: the {column.kind} {column.name} is {texts}; correct it, {advice}")


def _categorical(
    db: duckdb.DuckDBPyConnection, table: Table, column: Column, separator: str, filled: int, asked: bool
) -> Column:
    """Leave out a column of names, which would have a feature for nearly every row."""
    number = db.execute(f"SELECT count(DISTINCT atom) FROM ({select_atoms(table, column, separator)})").fetchall()[0][0]
    if number == 0:
        return column._replace(kind="skip", note=f"it holds no {column.kind}")
    if number > MAX_CATEGORIES:
        return column._replace(
            kind="skip", note=f"{number:,} different values are more than the {MAX_CATEGORIES:,} of a category"
        )
    if not asked and number > 20 and number > filled / 2:
        advice = f"say --feature-kinds {column.name}={column.kind} if it is one"
        return column._replace(
            kind="skip", note=f"{number:,} different values in {filled:,} rows are no category; {advice}"
        )
    return column
