#!/usr/bin/env bash
# Package: duckdb 2.0.1
# Expected: after setseed(0.5) the same query takes the same tenth of the rows by random() < 0.1
# Seen: with one thread five runs take the same rows, with two or four no five do: threads share the generator and take rows in any order, without a warning
# Hits: training and test ratings that are split by random(): another split at each run; a hash of the names, or one thread, repeats
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install duckdb==2.0.1
python - <<'END' | expect "1 thread: five runs take the same rows
2 threads: five runs take different rows
4 threads: five runs take different rows
a hash, 4 threads: five runs take the same rows"
import duckdb

base = duckdb.connect()
base.execute("create table ratings as select range as row from range(1000000)").fetchall()


def taken(threads, condition):
    found = set()
    for _ in range(5):
        base.execute(f"set threads = {threads}").fetchall()
        base.execute("select setseed(0.5)").fetchall()
        query = f"select count(*), sum(row) from ratings where {condition}"
        found.add(base.execute(query).fetchall()[0])
    return "the same rows" if len(found) == 1 else "different rows"


for threads in (1, 2, 4):
    name = "thread" if threads == 1 else "threads"
    print(f"{threads} {name}: five runs take {taken(threads, 'random() < 0.1')}")
print(f"a hash, 4 threads: five runs take {taken(4, 'hash(row) % 10 = 0')}")
END
