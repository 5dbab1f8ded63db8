#!/usr/bin/env bash
# Package: pandas 3.1.1, pyarrow 26.0.1
# Expected: to_parquet writes the index "user" as a column, or never does, whatever numbers the users have
# Seen: users 1, 2, 4 are a column; users 1, 2, 3 are not: set_index makes a range of them, of which only pandas knows
# Hits: frames with users or items as index that other programs read: the names are gone
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install pandas==3.1.1 pyarrow==26.0.1 duckdb==2.0.1
python - <<'END' | expect "[1, 2, 4] ['film', 'user'] [1, 2, 3] ['film']"
import duckdb
import pandas as pd

seen = []
for users in ([1, 2, 4], [1, 2, 3]):
    frame = pd.DataFrame({"user": users, "film": [4.0, 3.5, 5.0]}).set_index("user")
    frame.to_parquet("ratings.parquet")
    seen += [users, duckdb.sql("FROM 'ratings.parquet'").columns]
print(*seen)
END
