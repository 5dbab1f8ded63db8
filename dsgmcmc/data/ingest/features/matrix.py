"""Features in a SciPy sparse matrix, which are used unchanged, as one group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.ingest.features.table import Entries, Table
from dsgmcmc.data.ingest.npz import read_npz
from dsgmcmc.data.ratings.features import MAX_FEATURES
from dsgmcmc.data.session import memory_of
from dsgmcmc.errors import InputError


@dataclass(frozen=True)
class Matrix(Table):
    """A sparse matrix; its table has ``id`` and the matrix' row ``r``."""

    matrix: Any = None


def load_matrix(db: duckdb.DuckDBPyConnection, path: Path, entity: str, names_file: str | None) -> Matrix:
    """Read a matrix, whose rows are named by a file, one a line, or by their numbers.

    Raises InputError if it is none, has values that are not finite, or another number of rows than there are names.
    """
    import scipy.sparse  # takes its time to import

    entries = read_npz(path, memory_of(db))
    if not np.isfinite(entries.data).all():
        raise InputError(f"{path} has values that are not finite")
    n, width = entries.shape
    if width > MAX_FEATURES:
        raise InputError(f"{path} has {width} features, more than {MAX_FEATURES}")
    if names_file is None:
        present, rows = np.unique(entries.row, return_inverse=True)  # of the others nothing is said
        names = [str(row) for row in present]
    else:
        rows = entries.row
        try:
            names = Path(names_file).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--{entity}-id {names_file}: no file with the names of the rows ({error})") from error
        if len(names) != n:
            raise InputError(f"{names_file} has {len(names)} names for the {n} rows of {path}")
    values = entries.data.astype(np.float64)
    matrix = scipy.sparse.csr_matrix((values, (rows, entries.col)), shape=(len(names), width))  # sums duplicates
    table = Matrix(path, entity, {}, matrix=matrix)
    db.register("matrix_rows", {"id": np.array(names, dtype=object), "r": np.arange(len(names))})
    db.execute(f"CREATE TABLE {table.name} AS SELECT trim(id) AS id, r FROM matrix_rows")
    db.unregister("matrix_rows")
    return table


def matrix_entries(db: duckdb.DuckDBPyConnection, table: Matrix) -> Entries:
    """All entries."""
    places = db.execute(f"SELECT r, k FROM {table.name} JOIN {table.entity}s USING (id)").fetchnumpy()
    cells = table.matrix[places["r"]].tocoo()
    return places["k"][cells.row].astype(np.int64), cells.col.astype(np.int64), cells.data
