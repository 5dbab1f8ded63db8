"""The encoding of a table that describes users or items: how its columns become features.

The encoding is stored beside the features, as JSON, so that new users or items can be described by
the same features.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError

from dsgmcmc.features.times import Family

#: number: standardised. category: one feature per value. list: values with separators,
#: one feature per value. year: a year, or a text that ends with a year, as in `Heat (1995)`; one
#: feature per decade. flag: 0 or 1, or true or false, unchanged; `genres=Comedy` is a feature of
#: the group genres. time: a date, or a number of seconds; functions of time
#: (`dsgmcmc.features.times`). skip: left out.
Kind = Literal["number", "category", "list", "year", "flag", "time", "skip"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def as_kind(word: object) -> Kind | None:
    """Return the kind of this name, or None."""
    return next((kind for kind in KINDS if kind == word), None)


@pydantic.dataclasses.dataclass(frozen=True)
class ColumnEncoding:
    """Encoding of one column as features.

    Attributes
    ----------
    name : str
        Name of the column in its file.
    kind : Kind
    atoms : tuple of str
        Categories in the order of their features, one feature each.
    mean, sd : float
        Mean and standard deviation by which numbers are standardised; the mean of a flag stands for
        missing values, and `sd` of times that are numbers is how many of their unit a second has.
    group : str
        Group of the features, if it is not that of the column's own name.
    families : tuple of Family
        Functions of a time, which are the groups of the column.
    order : str
        The order of day, month and year in dates, where it is not certain.
    """

    name: str
    kind: Kind
    atoms: tuple[str, ...] = ()
    mean: FiniteFloat = 0.0
    sd: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    group: str = ""
    families: tuple[Family, ...] = ()
    order: str = ""

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        if self.kind in ("number", "flag"):
            return [self.name]
        if self.kind == "time":
            return [
                f"{self.name} {family.name}={feature}"
                for family in self.families
                for feature in family.features
            ]
        return [f"{self.name}={atom}" for atom in self.atoms]

    @property
    def groups(self) -> list[str]:
        """Group of each feature: that of the column, or the column's name up to an equals sign."""
        if self.kind == "time":
            return [
                f"{self.name} {family.name}" for family in self.families for _ in family.features
            ]
        group = self.group or self.name.partition("=")[0]
        return [group] * len(self.features)


@pydantic.dataclasses.dataclass(frozen=True)
class Encoding:
    """Encoding of a table that describes users or items.

    Attributes
    ----------
    columns : tuple of ColumnEncoding
        Encodings of a table's columns, in the order of the features; empty for a matrix.
    separator : str
        Separator between the values of a list.
    width : int
        Number of columns of a matrix, which serve as features unchanged; 0 for a table.
    of_names : bool
        Whether the names are the only column, so that new names have features, too.
    """

    columns: tuple[ColumnEncoding, ...] = ()
    separator: Annotated[str, Field(min_length=1)] = "|"
    width: NonNegativeInt = 0
    of_names: bool = False

    @property
    def names(self) -> list[str]:
        """Names of all features."""
        names = [str(j) for j in range(self.width)]
        for column in self.columns:
            names += column.features
        return names

    @property
    def groups(self) -> list[str]:
        """Group of each feature; all features of a matrix are in the group ``features``."""
        groups = ["features"] * self.width
        for column in self.columns:
            groups += column.groups
        return groups

    def dump(self) -> str:
        """Return the encoding as JSON; without times it has no fields of times."""
        no_time = {"families", "order"}
        without = {k: no_time for k, column in enumerate(self.columns) if not column.families}
        excluded: dict[str, Any] = {"columns": without}
        if not self.of_names:
            excluded["of_names"] = True
        return _ENCODING.dump_json(self, exclude=excluded).decode()

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read the JSON text of `dump`. Raises ValueError if the text is not a valid encoding."""
        try:
            encoding = _ENCODING.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"{_INVALID} ({error.errors()[0]['msg']})") from error
        if bool(encoding.columns) == bool(encoding.width):
            raise ValueError(f"{_INVALID} (expected columns of a table, or the width of a matrix)")
        return encoding


_ENCODING = TypeAdapter(Encoding)
_INVALID = "not a valid encoding of features"
