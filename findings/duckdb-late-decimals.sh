#!/usr/bin/env bash
# Package: duckdb 2.0.1
# Expected: a column that has 4.5 is read as a decimal column, or the line is refused
# Seen: a column that is whole for 30,001 lines is BIGINT, and 4.5 after them becomes 5 without a word
# Hits: ratings sorted by time or by user, in which half stars come late
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install duckdb==2.0.1
python - <<'END' | expect "[('BIGINT', 3, 1), ('BIGINT', 5, 30001)]"
import duckdb

with open("ratings.csv", "w") as file:
    file.write("user,item,rating\n1,2,3\n" + "3,4,5\n" * 30000 + "4,5,4.5\n")
print(duckdb.sql("SELECT typeof(rating), rating, count(*) FROM 'ratings.csv' GROUP BY ALL ORDER BY 2").fetchall())
END
