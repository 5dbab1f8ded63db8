"""Tables as files: what is there under its name is what was written."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

from dsgmcmc.data.tables import write_blocks


def test_a_table_is_what_was_written(tmp_path: Path) -> None:
    """Block after block, and nothing beside it."""
    blocks = [{"id": np.array(["a", None, "c"], dtype=object), "x": np.arange(3, dtype=np.float32)}] * 2
    write_blocks(blocks, tmp_path / "t.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    found = duckdb.sql(f"SELECT * FROM '{tmp_path / 't.parquet'}'").fetchall()
    assert found == [("a", 0.0), (None, 1.0), ("c", 2.0)] * 2
