#!/usr/bin/env bash
# Package: duckdb 2.0.1
# Expected: lines of three fields before a line of four are read, or the file is refused
# Seen: the lines before the longest one are left out, the header with them: one row of twelve is read
# Hits: ratings with an optional fourth field, such as a time, on some lines
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install duckdb==2.0.1
python - <<'END' | expect "(['column0', 'column1', 'column2', 'column3'], [(3, 4, 5, 978300760)])"
import duckdb

with open("ratings.csv", "w") as file:
    file.write("user,item,rating\n" + "1,2,3\n" * 11 + "3,4,5,978300760\n")
table = duckdb.sql("FROM 'ratings.csv'")
print((table.columns, table.fetchall()))
END
