"""Tables of results: columns by name, or a data frame like the user's own."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from dsgmcmc.types import Array

_PRINTED = 10  # rows


class Table(dict[str, Array]):
    """Columns of a table by name, as NumPy arrays with one value per row."""

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame."""
        return self.frame_of("pandas")

    def to_polars(self) -> Any:
        """Return a polars.DataFrame."""
        return self.frame_of("polars")

    def write(self, out: str | PathLike[str], *, force: bool = False) -> None:
        """Write a CSV or Parquet file, by suffix, which appears only when it is complete.

        Raises InputError for other suffixes, or if the file exists, unless `force`.
        """
        from dsgmcmc.tables.written import write_tables  # loads DuckDB

        write_tables([self], Path(out), force=force)

    def frame_of(self, library: str) -> Any:
        """Return a data frame of a library whose ``DataFrame`` takes columns by name."""
        columns = {
            name: column.tolist() if column.dtype == object else column
            for name, column in self.items()
        }
        return import_module(library).DataFrame(columns)

    @override
    def __repr__(self) -> str:
        length = len(next(iter(self.values()), ()))
        cells = [list(self)]
        for k in range(min(length, _PRINTED)):
            cells.append([_format_cell(column[k]) for column in self.values()])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in cells
        ]
        if length > _PRINTED:
            lines.append("...")
        lines.append(f"[{length:,} rows x {len(self)} columns]")
        return "\n".join(lines)


def _format_cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def frame_like(example: object, table: Table) -> Any:
    """Return the table as a data frame of the library of `example`, if the library has any."""
    library = library_of(example)
    if library is not None:
        return table.frame_of(library)
    return table


def library_of(example: object) -> str | None:
    """Return the name of the library of a data frame, or of a column of one; None for others."""
    library = type(example).__module__.partition(".")[0]
    if hasattr(import_module(library), "DataFrame"):
        return library
    return None
