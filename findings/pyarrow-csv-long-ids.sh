#!/usr/bin/env bash
# Package: pyarrow 26.0.1
# Expected: ids of 21 digits, which no integer of 64 bits holds, are texts, or an error; duckdb 2.0.1, polars 2.1.0 and pandas 3.1.1 keep each digit
# Seen: read_csv makes doubles of them without a warning: the three users 103563353519118155776, ...777 and ...778 are one
# Hits: ids of Google's accounts, as in data sets of local reviews; column_types={"user": pa.string()} keeps them
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 numpy==2.4.6
printf 'user,rating\n103563353519118155776,4\n103563353519118155777,5\n103563353519118155778,2\n' >ratings.csv
python -W error - <<'END' | expect "double 1, users of the others: 3 3 3"
import duckdb
import pandas
import polars
from pyarrow import csv

read = csv.read_csv("ratings.csv").column("user")
others = [
    len(set(duckdb.read_csv("ratings.csv").project("user::varchar").fetchall())),
    polars.read_csv("ratings.csv")["user"].n_unique(),
    pandas.read_csv("ratings.csv")["user"].nunique(),
]
print(f"{read.type} {len(set(read.to_pylist()))}, users of the others:", *others)
END
