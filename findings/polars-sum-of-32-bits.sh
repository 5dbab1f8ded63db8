#!/usr/bin/env bash
# Package: polars 2.1.0
# Expected: the sum of a column of 32-bit integers is right, as of one of 8 or 16 bits, or an error says that it does not fit; duckdb 2.0.1, pandas 3.1.1 and pyarrow 26.0.1 have 6000000000
# Seen: 2,000,000,000 three times is 1705032704, in a group -294967296 for two, though the mean is right; 8 bits are widened to 64, 32 bits are not
# Hits: plays, amounts and milliseconds of a user, in Parquet of 32 bits; cast(pl.Int64) first
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install polars==2.1.0 duckdb==2.0.1 pandas==3.1.1 pyarrow==26.0.1
python - <<'END' | expect "polars: sum 1705032704, mean 2000000000.0, of two in a group -294967296, of 8 bits 300
others: 6000000000 6000000000 6000000000"
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

plays = pl.Series("plays", [2_000_000_000] * 3, dtype=pl.Int32)
frame = pl.DataFrame({"user": [1, 1, 2], "plays": plays})
group = frame.group_by("user", maintain_order=True).agg(pl.col("plays").sum())["plays"][0]
small = pl.Series([100] * 3, dtype=pl.Int8).sum()
print(f"polars: sum {plays.sum()}, mean {plays.mean()}, of two in a group {group}, of 8 bits {small}")
table = pa.table({"plays": pa.array([2_000_000_000] * 3, pa.int32())})
others = [
    duckdb.from_arrow(table).sum("plays").fetchall()[0][0],
    table.to_pandas().plays.sum(),
    pc.sum(table["plays"]).as_py(),
]
print("others:", *others)
END
