"""Tables whose columns are stored apart: Parquet, JSON, and columns in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from typing_extensions import override

from dsgmcmc.input.sources.base import AS_STORED, Source, compression, quoted
from dsgmcmc.input.sources.text import check_packed
from dsgmcmc.tables.session import Session, literal
from dsgmcmc.types import Array

#: Types of integers that an int64 holds.
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


def columns_of_parquet(path: Path) -> str:
    """Return SQL for a Parquet file with the names and types of its columns."""
    return f"read_parquet({quoted(path)}, {AS_STORED})"


def objects_of_json(path: Path, *, packed: bool) -> str:
    """Return SQL for a JSON file as a table with one column, ``json``."""
    return f"read_json_objects({quoted(path)}, {compression(packed)})"


@dataclass(frozen=True)
class ParquetFile(Source):
    """A Parquet file."""

    has_index_anywhere: ClassVar[bool] = True

    @override
    def has_integers(self, k: int) -> bool:
        return self.types[k] in _INTEGERS

    @override
    def sql(self, query: str) -> str:
        columns = ", ".join(f"c{k}" for k in range(self.width))
        return f"{columns_of_parquet(self.path)} AS t({columns})"


@dataclass(frozen=True)
class JsonFile(Source):
    """A file of JSON objects, which may be `packed` by gzip; values are read as text."""

    packed: bool = False

    @override
    def create(self, db: Session, query: str) -> None:
        if self.packed:
            check_packed(self.path)
        super().create(db, query)

    @override
    def sql(self, query: str) -> str:
        selected = [k for k in range(self.width) if re.search(rf"\bc{k}\b", query)]
        types = ", ".join(f"{literal(self.names[k])}: 'VARCHAR'" for k in selected)
        columns = ", ".join(f"c{k}" for k in selected)
        return (
            f"read_json({quoted(self.path)}, {AS_STORED}, columns = {{{types}}},"
            f" {compression(self.packed)}) AS t({columns})"
        )


@dataclass(frozen=True, kw_only=True)
class MemoryTable(Source):
    """Columns in memory: (n,) arrays of numbers, or of texts and None as object.

    Rows may be `cells` of a matrix, which has no such rows.
    """

    is_in_memory: ClassVar[bool] = True

    arrays: Sequence[Array]
    cells: bool = False

    @classmethod
    def of(cls, path: Path, arrays: Mapping[str, Array]) -> Self:
        """Make a table of named columns."""
        types = ["VARCHAR" if array.dtype == object else "" for array in arrays.values()]
        return cls(path, list(arrays), types, arrays=list(arrays.values()))

    @override
    def places(self, rows: Sequence[int]) -> list[str]:
        if self.cells:
            return ["a cell of the matrix"] * len(rows)
        return super().places(rows)

    @override
    def has_integers(self, k: int) -> bool:
        dtype = self.arrays[k].dtype
        return dtype.kind in "iu" and np.can_cast(dtype, np.int64)

    @override
    def create(self, db: Session, query: str) -> None:
        register(db, self.arrays)
        super().create(db, query)

    @override
    def sql(self, query: str) -> str:
        return "arrays"

    @override
    def rows(self, db: Session) -> Iterator[Sequence[str | None]]:
        lists = [column.tolist() for column in self.arrays]
        for row in zip(*lists, strict=True):
            yield [None if cell is None else str(cell) for cell in row]


def register(db: Session, columns: Sequence[Array]) -> None:
    """Make columns in memory the table ``arrays``."""
    db.register("arrays", {f"c{k}": column for k, column in enumerate(columns)})
