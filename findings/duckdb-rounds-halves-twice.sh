#!/usr/bin/env bash
# Package: duckdb 2.0.1
# Expected: 2.5 becomes the same whole number, however it is typed
# Seen: a decimal 2.5 becomes 3, a double 2.5 becomes 2
# Hits: half stars that are rounded to stars: the literal of a test and the column of a table differ
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install duckdb==2.0.1
python - <<'END' | expect "(3, 2, 4, 4)"
import duckdb

print(duckdb.sql("SELECT 2.5::INT, 2.5::DOUBLE::INT, 3.5::INT, 3.5::DOUBLE::INT").fetchall()[0])
END
