"""Tables of results: columns by name, or a data frame of the library that the caller uses."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dsgmcmc.data.columns import find_column
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array

_SHOWN = 10


class Table(dict[str, Array]):
    """Columns of a table by name, as NumPy arrays with one value per row."""

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame."""
        return self.frame_of("pandas")

    def to_polars(self) -> Any:
        """Return a polars.DataFrame."""
        return self.frame_of("polars")

    def frame_of(self, library: str) -> Any:
        """Return a data frame of a library such as pandas, whose ``DataFrame`` takes columns by name."""
        columns = {name: column.tolist() if column.dtype == object else column for name, column in self.items()}
        return import_module(library).DataFrame(columns)

    def __repr__(self) -> str:
        length = len(next(iter(self.values()), ()))
        lines = [list(self), *([_text(c[k]) for c in self.values()] for k in range(min(length, _SHOWN)))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*rows, *(["..."] if length > _SHOWN else []), f"[{length:,} rows x {len(self)} columns]"])


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def as_given(given: Any, table: Table) -> Any:
    """Return a data frame of the library that `given`, a data frame or column, belongs to; else the table itself."""
    library = type(given).__module__.partition(".")[0]
    return table.frame_of(library) if hasattr(import_module(library), "DataFrame") else table


def read_names(given: Any, role: str) -> list[Any]:
    """Read names of users or items from a single name, a sequence, or a column of a data frame.

    Raises InputError if `given` is anything else.
    """
    labels = getattr(given, "columns", None)
    if labels is not None:
        place = 0 if len(labels) == 1 else find_column(labels, role)
        if place is None:
            raise InputError(
                f"expected a column {role} in the data frame; its columns are {', '.join(map(str, labels))}"
            )
        given = given[labels[place]]
    if np.ndim(given) == 0:
        return [given.item() if isinstance(given, np.generic | np.ndarray) else given]
    if np.ndim(given) != 1:
        raise InputError(f"expected names of {role}s; found an array of shape {np.shape(given)}")
    return list(given)
