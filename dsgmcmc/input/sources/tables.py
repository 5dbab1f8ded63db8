"""What all readers of tables ask in SQL: values, names, and whether a condition holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dsgmcmc.ratings.names import join_sql, part_sql
from dsgmcmc.tables.session import Session

SHOWN = 5  # bad lines that a message lists


def scalar(db: Session, query: str) -> Any:
    """Return the first value of a query's first row."""
    return db.execute(query).fetchall()[0][0]


def first_column(db: Session, query: str) -> list[Any]:
    """Return the first value of each row of a query."""
    return [row[0] for row in db.execute(query).fetchall()]


def distinct_names(entity: str) -> str:
    """Return SQL for the names of users or items in the table ``raw``, as texts ``id``."""
    return f"(SELECT id::VARCHAR AS id FROM (SELECT DISTINCT {entity}_id AS id FROM raw))"


def add_columns(db: Session, types: Mapping[str, str]) -> None:
    """Add columns of these types to the table ``raw``, unless it has them."""
    for name, sql_type in types.items():
        db.execute(f"ALTER TABLE raw ADD COLUMN IF NOT EXISTS {name} {sql_type}")


def is_number(text: str) -> bool:
    """Whether a text is a finite number; Python alone takes 1_0 and other digits than 0 to 9."""
    try:
        return text.isascii() and "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def holds(db: Session, condition: str, table: str) -> bool:
    """Whether a condition in SQL is true for all rows of a table.

    The first row usually tells that it is not.
    """
    first = db.execute(f"SELECT {condition} FROM {table} LIMIT 1").fetchall()
    return first == [(True,)] and bool(scalar(db, f"SELECT bool_and({condition}) FROM {table}"))


def trim_names(db: Session, table: str, column: str, first: int = 0, *, n_parts: int = 1) -> None:
    """Strip spaces from the names in a column if all have them, and ``.0`` if all are integers.

    Spaces may follow every delimiter, and pandas writes a column of integers as floats if a value
    is missing. Only rows from `first` on are considered: those of one file. Each part of names of
    several parts is considered by itself (`dsgmcmc.ratings.names`).
    """
    parts = [part_sql(column, k, n_parts) for k in range(n_parts)]
    for k, part in enumerate(parts):
        rules = [
            (f"trim({part}) != {part}", f"trim({part})"),
            (f"regexp_full_match({part}, '-?[0-9]+[.]0')", f"left({part}, -2)"),
        ]
        for rule, stripped in rules:
            condition = f"({column} IS NULL OR {rule})"
            if holds(db, condition, f"(FROM {table} WHERE rowid >= {first})"):
                name = join_sql([*parts[:k], stripped, *parts[k + 1 :]])
                db.execute(f"UPDATE {table} SET {column} = {name} WHERE rowid >= {first}")
