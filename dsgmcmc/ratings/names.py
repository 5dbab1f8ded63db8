"""Names of several parts, such as a station and a day.

A role of several columns, such as ``user=station+day``, has a column for each part. The first one
has the role's own name, and the others have the names ``user 2``, ``user 3`` and so on, so that
positions and columns are by role for names of one part and of several.

In DuckDB such a name is one text, with NUL characters between its parts: no part can have one. In
Python it is a tuple. Files and tables have a column for each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dsgmcmc.types import Array

T = TypeVar("T")
#: SQL of the text between the parts of a name.
BETWEEN = "chr(0)"


def part_role(role: str, k: int) -> str:
    """Return the role of part `k` (from 0) of the names of a role."""
    return role if k == 0 else f"{role} {k + 1}"


def of_parts(by_role: Mapping[str, T], role: str) -> list[T]:
    """Return the values of all parts of a role, in the order of the parts."""
    values: list[T] = []
    while (key := part_role(role, len(values))) in by_role:
        values.append(by_role[key])
    return values


def main_role(role: str) -> str:
    """Return the role to which a part belongs."""
    return role.partition(" ")[0]


def join_sql(parts: Sequence[str]) -> str:
    """Return SQL of a name, given SQL of its parts; it is NULL if a part is."""
    if len(parts) == 1:
        return parts[0]
    return f" || {BETWEEN} || ".join(f"({part})" for part in parts)


def part_sql(name: str, k: int, n_parts: int) -> str:
    """Return SQL of part `k` of a name, given SQL of the name."""
    if n_parts == 1:
        return name
    return f"split_part({name}, {BETWEEN}, {k + 1})"


def split_name(name: str | None) -> str:
    """Return a name that DuckDB has as a text, for messages."""
    return ", ".join(str(name).split("\0"))


def array_of(values: Iterable[Any]) -> Array:
    """Return an object array (n,) of values that may be tuples."""
    listed = list(values)
    array = np.empty(len(listed), object)
    for k, value in enumerate(listed):
        array[k] = value
    return array


def tuples_of(parts: Sequence[Array]) -> Array:
    """Return names as an object array (n,) of tuples, given the array (n,) of each part."""
    return array_of(zip(*(part.tolist() for part in parts), strict=True))


def names_of(columns: Mapping[str, Array], role: str) -> Array:
    """Return the names of a role, (n,): those of several parts are tuples."""
    parts = of_parts(columns, role)
    if len(parts) == 1:
        return parts[0]
    return tuples_of(parts)


def columns_of(names: Array, integer_parts: Sequence[bool]) -> list[Array]:
    """Return an array (n,) for each part of names that are tuples: int64, or object of str."""
    listed = names.tolist()
    return [
        np.array([name[k] for name in listed], np.int64 if integer else object)
        for k, integer in enumerate(integer_parts)
    ]
