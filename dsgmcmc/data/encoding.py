"""Encodings of table columns as features: learnt once, stored, and applied alike to the rows of later tables."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

#: number: standardised. category: one feature for each value. list: values with a separator, one feature for each.
#: year: a year, or a text that ends with one as in `Heat (1995)`; one feature for each decade. flag: 0 or 1 as it is;
#: `genres=Comedy` is a feature of the group genres. skip: left out.
Kind = Literal["number", "category", "list", "year", "flag", "skip"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Code:
    """Encoding of one column as features.

    Attributes
    ----------
    name : str
        Name of the column in its file.
    kind : Kind
    atoms : tuple of str
        Categories in the order of their features, one feature each.
    mean, sd : float
        Mean and standard deviation by which numbers are standardised.
    """

    name: str
    kind: Kind
    atoms: tuple[str, ...] = ()
    mean: FiniteFloat = 0.0
    sd: Annotated[FiniteFloat, Field(gt=0)] = 1.0

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        return [self.name] if self.kind in ("number", "flag") else [f"{self.name}={atom}" for atom in self.atoms]


@dataclass(frozen=True)
class Encoding:
    """Encoding of a table that describes users or items.

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
    separator: Annotated[str, Field(min_length=1)] = "|"
    width: NonNegativeInt = 0

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
        return _ENCODING.dump_json(self).decode()

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read the JSON text of `dump`. Raises ValueError if the text is no valid encoding."""
        try:
            encoding = _ENCODING.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"no encoding of features ({error.errors()[0]['msg']})") from error
        if bool(encoding.columns) == bool(encoding.width):
            raise ValueError("no encoding of features (of a table and of a matrix)")
        return encoding


_ENCODING = TypeAdapter(Encoding)
