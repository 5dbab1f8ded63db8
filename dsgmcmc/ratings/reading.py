"""What users have said of the input of a ratings file, so that later input is read likewise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

_LISTS = ("missing", "ignore")  # options with several values


class Reading(NamedTuple):
    """Options of `prepare` that change what numbers in its input mean.

    Attributes
    ----------
    matrix : bool
        Whether the input is a matrix.
    missing, ignore : tuple of str
        Values that mean "not rated", and columns of a matrix that are no items.
    first_line, variable, unstored : str or None
        As in `dsgmcmc.prepare.settings.PrepareSettings`; None if users have not said so.
    """

    matrix: bool = False
    missing: tuple[str, ...] = ()
    first_line: str | None = None
    variable: str | None = None
    unstored: Literal["missing", "zero"] | None = None
    ignore: tuple[str, ...] = ()

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `stored` has written; raise ValueError if it is something else."""
        said = dict(stored)
        is_known = said.keys() <= set(cls._fields) and said.get("matrix", True) is True
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
        """Return what users have said, by option; only texts, lists of texts, and True."""
        said = {name: value for name, value in self._asdict().items() if value}
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
