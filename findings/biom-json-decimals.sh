#!/usr/bin/env bash
# Package: biom-format 2.1.18
# Expected: a table that is written to BIOM 1.0 and read again has the same observed cells
# Seen: numbers have six decimals: 1e-7 becomes 0 and is no longer an observed cell, and 1/3 is 0.333333
# Hits: relative abundances and other small measurements; the HDF5 format, BIOM 2.1, keeps them
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install biom-format==2.1.18 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
python -W ignore - <<'END' | expect "3 [[1e-07, 0.3333333333333333], [2.0, 0.0]]
2 [[0.0, 0.333333], [2.0, 0.0]]"
import io

import numpy as np
from biom import Table
from biom.parse import parse_biom_table

table = Table(np.array([[1e-7, 1 / 3], [2.0, 0.0]]), ["o1", "o2"], ["s1", "s2"])
again = parse_biom_table(io.StringIO(table.to_json("nobody")))
for seen in (table, again):
    print(seen.nnz, seen.matrix_data.toarray().tolist())
END
