"""Encodings of table columns as features: learnt once, stored, and applied alike to the rows of later tables."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import NamedTuple

#: Kinds of columns.
KINDS = {
    "number": "standardised",
    "category": "one feature for each value",
    "list": "values with a separator, one feature for each",
    "year": "a year, or a text that ends with one as in `Heat (1995)`; one feature for each decade",
    "flag": "0 or 1 as it is; `genres=Comedy` is a feature of the group genres",
    "skip": "left out",
}


class Code(NamedTuple):
    """Encoding of one column as features.

    Attributes
    ----------
    name : str
        Name of the column in its file.
    kind : key of `KINDS`
    atoms : tuple of str
        Categories in the order of their features, one feature each.
    mean, sd : float
        Mean and standard deviation by which numbers are standardised.
    """

    name: str
    kind: str
    atoms: tuple[str, ...] = ()
    mean: float = 0.0
    sd: float = 1.0

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        return [self.name] if self.kind in ("number", "flag") else [f"{self.name}={atom}" for atom in self.atoms]


@dataclass(frozen=True)
class Encoding:
    """Encoding of a file that describes users or items.

    Attributes
    ----------
    columns : tuple of Code
        Encodings of a table's columns, in the order of the features; empty for a matrix.
    separator : str
        Separator of the values in a list.
    width : int
        Number of columns of a matrix, which serve as features unchanged; 0 for a table.
    """

    columns: tuple[Code, ...] = ()
    separator: str = "|"
    width: int = 0

    @property
    def names(self) -> list[str]:
        """Names of all features."""
        return [str(j) for j in range(self.width)] + [name for code in self.columns for name in code.features]

    @property
    def groups(self) -> list[str]:
        """Group of each feature: the name of its column, up to an equals sign."""
        of_columns = [code.name.partition("=")[0] for code in self.columns for _ in code.features]
        return ["features"] * self.width + of_columns

    def dump(self) -> str:
        """Return the encoding as JSON."""
        columns = [code._asdict() for code in self.columns]
        return json.dumps({"columns": columns, "separator": self.separator, "width": self.width})

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read the JSON text of `dump`. Raises ValueError if the text is no valid encoding."""
        try:
            given = json.loads(text)
            columns = tuple(
                Code(
                    str(code["name"]),
                    str(code["kind"]),
                    tuple(map(str, code["atoms"])),
                    float(code["mean"]),
                    float(code["sd"]),
                )
                for code in given["columns"]
            )
            encoding = cls(columns, str(given["separator"]), int(given["width"]))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no encoding of features ({error!r})") from error
        for code in encoding.columns:
            if code.kind not in KINDS or not math.isfinite(code.mean) or not 0 < code.sd < math.inf:
                raise ValueError(f"the column {code.name} of an encoding of features is wrong")
        if not encoding.separator or encoding.width < 0 or (encoding.width > 0) == bool(encoding.columns):
            raise ValueError("an encoding of features that contradicts itself")
        return encoding
