#!/usr/bin/env bash
# Package: duckdb 2.0.1
# Expected: the median of 3.5 and 4.0 is 3.75, whatever their type
# Seen: it is 3.75 for doubles, and 3.7 for decimals such as the literals 3.5 and 4.0: the answer has the decimals of the column, and the rest is cut off; avg has 3.75
# Hits: medians and quartiles of half stars and prices; a cast to double has the exact value
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install duckdb==2.0.1
python - <<'END' | expect "decimals: median 3.7, quartiles of four 1.8 and 3.1, mean 3.75
doubles: median 3.75, quartiles of four 1.875 and 3.125, mean 3.75"
import duckdb

for name, kind in (("decimals", "decimal(2, 1)"), ("doubles", "double")):
    two, mean = duckdb.sql(
        f"select median(x::{kind}), avg(x::{kind}) from (values (3.5), (4.0)) t(x)"
    ).fetchall()[0]
    low, high = duckdb.sql(
        f"select quantile_cont(x::{kind}, .25), quantile_cont(x::{kind}, .75)"
        " from (values (1.5), (2.0), (3.0), (3.5)) t(x)"
    ).fetchall()[0]
    print(f"{name}: median {two}, quartiles of four {low} and {high}, mean {mean}")
END
