"""Parquet files."""

from __future__ import annotations

import glob
from pathlib import Path

import duckdb

from dsgmcmc.data.ingest.packed import read_head
from dsgmcmc.data.session import reading


def is_parquet(path: Path) -> bool:
    """Whether a file is one, by its content."""
    return read_head(path).startswith(b"PAR1")


def open_columns(db: duckdb.DuckDBPyConnection, path: Path) -> duckdb.DuckDBPyRelation:
    """Open a Parquet file. Raises InputError if it is damaged."""
    with reading(path):
        return db.read_parquet(glob.escape(str(path.absolute())))
