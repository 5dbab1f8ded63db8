#!/usr/bin/env bash
# Package: polars 2.1.0, pyarrow 26.0.1, duckdb 2.0.1
# Expected: a group with a NaN has one answer for its largest value: NaN, as numpy.max and the same group's mean have it
# Seen: max is 2.0 in polars and pyarrow, which leave NaN out, while their means are NaN; duckdb's max is NaN, and its min 1.0, as NaN is above all numbers there; pandas leaves it out of both
# Hits: the largest error or score of a user, one of which failed: the same Parquet file passes a check in one engine and fails in another
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1 pandas==3.1.1 numpy==2.4.6
python - <<'END' | expect "NumPy: min nan, max nan, mean nan
polars: min 1.0, max 2.0, mean nan
pyarrow: min 1.0, max 2.0, mean nan
duckdb: min 1.0, max nan, mean nan
pandas: min 1.0, max 2.0, mean 1.5"
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

values = np.array([1.0, np.nan, 2.0])
table = pa.table({"user": [1, 1, 1], "error": pa.array(values)})
pq.write_table(table, "errors.parquet")


def show(name, low, high, mean):
    print(f"{name}: min {low}, max {high}, mean {mean}")


show("NumPy", values.min(), values.max(), values.mean())
error = pl.col("error")
group = pl.read_parquet("errors.parquet").group_by("user")
found = group.agg(error.min().alias("low"), error.max().alias("high"), error.mean().alias("mean"))
show("polars", *found.row(0)[1:])
ends = pc.min_max(table["error"]).as_py()
show("pyarrow", ends["min"], ends["max"], pc.mean(table["error"]).as_py())
query = "select min(error), max(error), avg(error) from 'errors.parquet' group by user"
show("duckdb", *duckdb.sql(query).fetchall()[0])
frame = table.to_pandas().groupby("user")["error"]
show("pandas", *frame.agg(["min", "max", "mean"]).to_numpy()[0].tolist())
END
