"""How ratings are read, as users say: from files and memory, and later ones like the first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

from dsgmcmc.tables.usual import Columns

_LISTS = ("missing", "ignore")  # options with several values
#: A ratings file has its own record of columns, and other files have other lines above their rows.
_NOT_STORED = ("columns", "skip_rows", "entity")


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
    entity: str | None = None

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
        return cls(**said)

    def stored(self) -> dict[str, Any]:
        """Return what changes the meaning of numbers, by option: texts, lists of texts, and True.

        Later ratings are read likewise.
        """
        said = {}
        for name, value in self._asdict().items():
            if value and name not in _NOT_STORED:
                said[name] = value
        for name in _LISTS:
            if name in said:
                said[name] = list(said[name])
        return said

    def described(self) -> list[str]:
        """Describe every option, as one types it."""
        described = []
        for name, value in self.stored().items():
            option = f"--{name.replace('_', '-')}"
            if name in _LISTS:
                value = ",".join(value) or "''"
            described.append(option if value is True else f"{option} {value}")
        return described


NOTHING_SAID = Reading()
