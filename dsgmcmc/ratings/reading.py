"""How ratings are read, as users say: from files and memory, and later ones like the first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

from dsgmcmc.tables.usual import Columns

_LISTS = ("columns", "missing", "ignore")  # options with several values
_NOT_STORED = ("entity", "remembered")
_NOT_SAID = ("skipped",)  # stored, but no option


class Reading(NamedTuple):
    """What users say of a table or a matrix that can be read in several ways.

    Attributes
    ----------
    columns : dict of str to str or tuple of str
        Columns, or dimensions, by role; a tuple has the columns of the parts of names.
    matrix : bool or None
        Whether there is a row for each user and a column for each item; None if the form of an
        object in memory tells.
    missing : tuple of str
        Values that mean "not rated".
    first_line : {"names", "ratings"} or None
        What the first line of a text file has; None if the user has not said so.
    variable : str or None
        Name of the matrix or table, if there are several.
    unstored : {"missing", "zero", "limit"} or None
        What cells mean that a sparse matrix does not store, or that have a limit but no number;
        None if the user has not said so.
    ignore : tuple of str
        Columns of a matrix that are no items.
    decimal : {",", "."} or None
        The mark before decimals in text; None if the user has not said so.
    unit : str or None
        What the ratings are measured in, such as "t/ha"; results name it.
    skip_rows : str
        Lines at the beginning of a text file that are no rows, such as "1-3" or "2".
    skipped : str
        A hash of the text in these lines. Later files whose lines have another text keep them.
    duplicates : {"first", "last", "mean", "keep"} or None
        Which ratings of a pair count; None if the user has not said so.
    remembered : bool
        Whether it was said of earlier ratings. What cannot be said of later ones is then left out.
    entity : {"user", "item"} or None
        Whose features are read; None for ratings.
    """

    columns: Columns = MappingProxyType({})
    matrix: bool | None = None
    missing: tuple[str, ...] = ()
    first_line: str | None = None
    variable: str | None = None
    unstored: Literal["missing", "zero", "limit"] | None = None
    ignore: tuple[str, ...] = ()
    decimal: str | None = None
    unit: str | None = None
    skip_rows: str = ""
    skipped: str = ""
    duplicates: str | None = None
    entity: str | None = None
    remembered: bool = False

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `stored` has written; raise ValueError if it is something else."""
        said = dict(stored)
        is_known = said.keys() <= set(cls._fields) - set(_NOT_STORED)
        is_known &= said.get("matrix", True) is True
        for name, value in said.items():
            texts = value
            if name in _LISTS and isinstance(value, list):
                said[name] = tuple(value)
            else:
                texts = [value]
            is_known &= name == "matrix" or all(isinstance(text, str) for text in texts)
        if not is_known:
            raise ValueError(f"it was read with {json.dumps(dict(stored))[:80]}")
        if "columns" in said:
            said["columns"] = _columns_of(said["columns"])
        return cls(**said)

    def stored(self) -> dict[str, Any]:
        """Return what changes the meaning of numbers, by option: texts, lists of texts, and True.

        Later ratings are read likewise.
        """
        said = {}
        for name, value in self._asdict().items():
            if value and name not in _NOT_STORED:
                said[name] = value
        if "columns" in said:
            said["columns"] = _texts_of(said["columns"])
        for name in _LISTS:
            if name in said:
                said[name] = list(said[name])
        return said

    def described(self) -> list[str]:
        """Describe every option, as one types it."""
        described = []
        for name, value in self.stored().items():
            if name in _NOT_SAID:
                continue
            option = f"--{name.replace('_', '-')}"
            if name in _LISTS:
                value = ",".join(value) or "''"
            described.append(option if value is True else f"{option} {value}")
        return described


def _texts_of(columns: Columns) -> list[str]:
    """Return columns as texts ``ROLE=COLUMN``, one a part of a name."""
    texts = []
    for role, column in columns.items():
        parts = [column] if isinstance(column, str) else column
        texts += [f"{role}={part}" for part in parts]
    return texts


def _columns_of(texts: Iterable[str]) -> Columns:
    """Return columns by role, given the texts of `_texts_of`."""
    parts: dict[str, list[str]] = {}
    for text in texts:
        role, _, column = text.partition("=")
        parts.setdefault(role, []).append(column)
    return {role: found[0] if len(found) == 1 else tuple(found) for role, found in parts.items()}


NOTHING_SAID = Reading()
