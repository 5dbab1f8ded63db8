"""How the columns of a table become features: what is learnt of them once, stored, and applied to new rows alike."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import NamedTuple

#: What a column may be.
KINDS = {
    "number": "standardised",
    "category": "one feature for each value",
    "list": "values with a separator, one feature for each",
    "year": "a year, or a text that ends with one as in `Heat (1995)`; one feature for each decade",
    "flag": "0 or 1 as it is; `genres=Comedy` is a feature of the group genres",
    "skip": "left out",
}


class Code(NamedTuple):
    """How one column becomes features.

    Attributes
    ----------
    name : str
        Of the column in its file.
    kind : key of `KINDS`
        "skip" if it is left out.
    atoms : tuple of str
        Categories, which have a feature each, in their order.
    mean, sd : float
        That numbers are standardised with.
    """

    name: str
    kind: str
    atoms: tuple[str, ...] = ()
    mean: float = 0.0
    sd: float = 1.0

    @property
    def features(self) -> list[str]:
        """Names of its features."""
        return [self.name] if self.kind in ("number", "flag") else [f"{self.name}={atom}" for atom in self.atoms]


@dataclass(frozen=True)
class Encoding:
    """How a file that describes users or items became features.

    Attributes
    ----------
    columns : tuple of Code
        Of a table, in the order of the features.
    separator : str
        Between the values of a list.
    width : int
        Of a matrix the number of its columns, which are features as they are; 0 of a table.
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
        """Group of each feature: the column that it is made of, without what follows an equals sign."""
        of_columns = [code.name.partition("=")[0] for code in self.columns for _ in code.features]
        return ["features"] * self.width + of_columns

    def dump(self) -> str:
        """Write it as JSON."""
        columns = [code._asdict() for code in self.columns]
        return json.dumps({"columns": columns, "separator": self.separator, "width": self.width})

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read what `dump` wrote. Raises ValueError if it is something else."""
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
