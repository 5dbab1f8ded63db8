"""Tables as files: what is there under its name is what was written."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from dsgmcmc.data.tables import _read_back, write_blocks


def test_a_table_is_what_was_written(tmp_path: Path) -> None:
    """Block after block, and nothing beside it."""
    blocks = [{"id": np.array(["a", None, "c"], dtype=object), "x": np.arange(3, dtype=np.float32)}] * 2
    write_blocks(blocks, tmp_path / "t.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    found = duckdb.sql(f"SELECT * FROM '{tmp_path / 't.parquet'}'").fetchall()
    assert found == [("a", 0.0), (None, 1.0), ("c", 2.0)] * 2


@pytest.mark.parametrize("damage", ["pages", "end", "another table"])
def test_a_table_that_is_not_read_back(tmp_path: Path, damage: str) -> None:
    """A write that was lost without an error: pages that cannot be unpacked, no end, other values."""
    path, query = tmp_path / "t.parquet", "SELECT i, i::VARCHAR AS s FROM range(5000) t(i)"
    with duckdb.connect() as db:
        db.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
        _read_back(db, query, path)
        whole = bytearray(path.read_bytes())
        if damage == "pages":
            whole[100:200] = bytes(100)
        path.write_bytes(whole[:-20] if damage == "end" else whole)
        if damage == "another table":
            query = "SELECT i, nullif(i, 7)::VARCHAR AS s FROM range(5000) t(i)"
        with pytest.raises(OSError, match="not what is read back"):
            _read_back(db, query, path)
