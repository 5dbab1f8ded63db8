#!/usr/bin/env bash
# Package: polars 2.1.0, duckdb 2.0.1
# Expected: the quantile 0.5 of 1, 2, 3, 4 is their median, 2.5, as numpy and pandas have it
# Seen: quantile(0.5) and the row 50% of describe() are 3.0 in polars, and quantile(x, 0.5) is 2.0 in duckdb, though median() of both is 2.5: by default they take one of the values, polars the nearest, duckdb the lower
# Hits: medians and intervals of few draws or half stars in tables of draws; interpolation="linear" and quantile_cont are numpy's
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install polars==2.1.0 duckdb==2.0.1 numpy==2.4.6
python - <<'END' | expect "numpy 2.5
polars 3.0 2.5, describe 3.0, linear 2.5
duckdb 2.0 2.5, quantile_cont 2.5"
import duckdb
import numpy as np
import polars as pl

values = [1.0, 2.0, 3.0, 4.0]
print("numpy", np.quantile(values, 0.5))
column = pl.Series("x", values)
described = dict(column.describe().rows())["50%"]
linear = column.quantile(0.5, interpolation="linear")
print(f"polars {column.quantile(0.5)} {column.median()}, describe {described}, linear {linear}")
query = "select quantile(x, 0.5), median(x), quantile_cont(x, 0.5) from (select unnest(?) as x)"
lower, middle, continuous = duckdb.execute(query, [values]).fetchone()
print(f"duckdb {lower} {middle}, quantile_cont {continuous}")
END
