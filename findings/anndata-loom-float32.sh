#!/usr/bin/env bash
# Package: anndata 0.12.19, loompy 3.0.8
# Expected: a loom file that stores float64 is read as float64
# Seen: read_loom makes float32 of it: 16777217 becomes 16777216
# Hits: counts above 16.7 million, ids and times in a layer; loompy itself reads them right
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install anndata==0.12.19 loompy==3.0.8 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 setuptools==80.9.0
python -W ignore - <<'END' | expect "float64 16777217 float32 16777216"
import anndata
import loompy
import numpy as np

genes, cells = {"Gene": np.array(["g"])}, {"CellID": np.array(["c1", "c2"])}
loompy.create("large.loom", np.array([[16777217.0, 1.0]]), genes, cells)
with loompy.connect("large.loom") as file:
    stored = file[:, :]
seen = anndata.io.read_loom("large.loom", sparse=False).X
print(stored.dtype, int(stored[0, 0]), seen.dtype, int(seen[0, 0]))
END
