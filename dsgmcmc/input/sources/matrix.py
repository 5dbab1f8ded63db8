"""Sparse matrices: entries in memory, and files of SciPy."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.errors import refusing
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.columns import MemoryTable, register
from dsgmcmc.input.sources.formats import refuse_size
from dsgmcmc.tables.session import Session, memory_of
from dsgmcmc.types import Array

#: Names of the columns of entries.
ENTRIES = ("row", "col", "value")


@dataclass(frozen=True, kw_only=True)
class Entries(MemoryTable):
    """Entries of a matrix in memory: row, column and value, and lower and upper bounds, if any.

    Rows and columns are numbers, or positions from 0 in the names of `axes`, (n,) and (m,) object.
    What has the bounds is named in `limits`, by role.
    """

    is_matrix: ClassVar[bool] = True

    axes: tuple[Array, Array] | None = None
    limits: Mapping[str, str] = field(default_factory=dict)

    @property
    @override
    def is_labelled(self) -> bool:
        return self.axes is not None

    @property
    @override
    def has_ratings(self) -> bool:
        return bool(np.any(self.arrays[2] != 1))

    @override
    def has_integers(self, k: int) -> bool:
        return not self.is_labelled and super().has_integers(k)

    @override
    def create(self, db: Session, query: str) -> None:
        if self.axes is None:
            super().create(db, query)
            return
        users, items = self.axes
        columns = dict(zip(self.names, self.arrays, strict=True))
        columns |= {"row": users[columns["row"]], "col": items[columns["col"]]}
        MemoryTable.of(self.path, columns).create(db, query)


@dataclass(frozen=True)
class SparseFile(Source):
    """A sparse matrix that SciPy has saved."""

    is_matrix: ClassVar[bool] = True

    @override
    def create(self, db: Session, query: str) -> None:
        matrix = _read_npz(db, self.path)
        register(db, [matrix.row, matrix.col, matrix.data])
        super().create(db, query)

    @override
    def sql(self, query: str) -> str:
        return "arrays"


def read_matrix(db: Session, table: Source) -> tuple[Any, int]:
    """Read a matrix as scipy.sparse.coo_array or coo_matrix; also return its first row's number.

    This is 0 in .npz, and 1 in MatrixMarket and files of SMURFF; columns are numbered likewise.
    Raises InputError if the file is damaged.
    """
    import scipy.sparse  # slow to import

    if isinstance(table, SparseFile):
        return _read_npz(db, table.path), 0
    table.create(db, "CREATE OR REPLACE TABLE entries AS SELECT c0, c1, c2 FROM {table}")
    row, col, value = db.execute("FROM entries").fetchnumpy().values()
    db.execute("DROP TABLE entries")
    return scipy.sparse.coo_matrix((value, (row - 1, col - 1)), shape=table.shape), 1


def _read_npz(db: Session, path: Path) -> Any:
    """Read a matrix that SciPy has saved, in a format in which every stored entry is a rating."""
    import scipy.sparse

    # zipfile, NumPy and SciPy raise errors of many types
    with refusing(f"{path} is not a sparse matrix that can be read", Exception):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            refuse_size(path, size, memory_of(db))
        matrix = scipy.sparse.load_npz(path)
        layout = getattr(matrix, "format", "dense")
        if layout in ("csr", "csc"):
            matrix.check_format(full_check=True)  # tocoo trusts the index pointer
        elif layout not in ("coo", "bsr"):  # in other formats a zero may or may not be a rating
            raise ValueError(f"its format is {layout}: save matrix.tocsr()")
        matrix = stored_cells(matrix)
        if matrix.data.dtype.kind not in "fiub":
            raise ValueError(f"its values are {matrix.data.dtype}, not real numbers")
    return matrix


def stored_cells(matrix: Any) -> Any:
    """Return the cells that a SciPy sparse matrix stores, as a coo_array or coo_matrix.

    A block cannot leave out a cell, so that the zeros of a matrix in blocks (BSR) say nothing.
    """
    entries = matrix.tocoo()
    if matrix.format == "bsr":
        entries.eliminate_zeros()
    return entries
