"""Files of typed columns: Parquet, and Feather, which is Arrow's file format."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from dsgmcmc.data.ingest.packed import read_head
from dsgmcmc.data.session import reading
from dsgmcmc.errors import InputError

_MAGIC = {b"PAR1": "Parquet", b"ARROW1": "Feather"}


def columnar_format(path: Path) -> str:
    """``Parquet`` or ``Feather``, by the content; "" for neither."""
    head = read_head(path)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def open_columns(db: duckdb.DuckDBPyConnection, path: Path) -> duckdb.DuckDBPyRelation:
    """Open a Parquet or Feather file, which can be read once. Raises InputError if it is damaged."""
    with reading(path):
        if columnar_format(path) == "Parquet":
            return db.read_parquet(glob.escape(str(path.absolute())))
        return db.from_arrow(_feather(path))


def _feather(path: Path) -> Any:
    """Batches of rows, each checked before anyone reads it."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise InputError(
            f"{path} is a Feather file, which needs pyarrow: pip install pyarrow, or write Parquet"
        ) from None
    try:
        file = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error

    def batches() -> Iterator[Any]:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            batch.validate(full=True)
            yield batch

    return pyarrow.RecordBatchReader.from_batches(file.schema, batches())
