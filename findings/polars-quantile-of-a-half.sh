#!/usr/bin/env bash
# Package: polars 2.1.0, duckdb 2.0.1
# Expected: the .5 quantile of 1, 2, 3, 4 is their median, 2.5, as NumPy, pandas and pyarrow have it
# Seen: polars' quantile(.5) is 3.0 and its quantile(.25) 2.0, the nearest value, and duckdb's quantile is 2, the value below; median() of both is 2.5
# Hits: credible intervals and medians of few draws: of 20 normal draws the 2.5 % quantile is the smallest draw; interpolation="linear" and quantile_cont are as elsewhere
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install polars==2.1.0 duckdb==2.0.1 numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1
python - <<'END' | expect "NumPy 2.5, pandas 2.5, pyarrow 2.5, polars 3.0, polars' median 2.5, duckdb 2, duckdb's median 2.5
2.5 % of 20 draws: NumPy -2.30, polars -2.56, the smallest -2.56"
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

values = [1, 2, 3, 4]
quantile, median = duckdb.sql(
    "select quantile(x, .5), median(x) from (values (1), (2), (3), (4)) t(x)"
).fetchall()[0]
series = pl.Series(values)
print(
    f"NumPy {np.quantile(values, 0.5)}, pandas {pd.Series(values).quantile(0.5)},"
    f" pyarrow {pc.quantile(pa.array(values), q=0.5)[0].as_py()}, polars {series.quantile(0.5)},"
    f" polars' median {series.median()}, duckdb {quantile}, duckdb's median {median}"
)
draws = np.random.default_rng(3).normal(size=20)
print(
    f"2.5 % of 20 draws: NumPy {np.quantile(draws, 0.025):.2f},"
    f" polars {pl.Series(draws).quantile(0.025):.2f}, the smallest {draws.min():.2f}"
)
END
