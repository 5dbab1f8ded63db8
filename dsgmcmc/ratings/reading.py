"""What users have said of the input of a ratings file, so that later input is read likewise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self


class Reading(NamedTuple):
    """Options of `prepare` that change what numbers in its input mean.

    Attributes
    ----------
    matrix : bool
        Whether the input is a matrix.
    missing : tuple of str
        Values that mean "not rated".
    first_line, variable, unstored : str or None
        As in `dsgmcmc.prepare.settings.PrepareSettings`; None if users have not said so.
    """

    matrix: bool = False
    missing: tuple[str, ...] = ()
    first_line: str | None = None
    variable: str | None = None
    unstored: Literal["missing", "zero"] | None = None

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `stored` has written; raise ValueError if it is something else."""
        missing = stored.get("missing", [])
        texts = [value for name, value in stored.items() if name not in ("matrix", "missing")]
        are_texts = all(isinstance(text, str) for text in (*texts, *missing))
        is_known = stored.keys() <= set(cls._fields) and isinstance(missing, list)
        if not is_known or not are_texts or stored.get("matrix", True) is not True:
            raise ValueError(f"it was read with {json.dumps(dict(stored))[:80]}")
        return cls(**{**stored, "missing": tuple(missing)})

    def stored(self) -> dict[str, Any]:
        """Return what users have said, by option; only texts, lists of texts, and True."""
        said = {name: value for name, value in self._asdict().items() if value}
        if self.missing:
            said["missing"] = list(self.missing)
        return said

    def described(self) -> list[str]:
        """Describe every option, as one types it."""
        described = []
        for name, value in self.stored().items():
            option = f"--{name.replace('_', '-')}"
            if name == "missing":
                value = ",".join(value) or "''"
            described.append(option if value is True else f"{option} {value}")
        return described
