#!/usr/bin/env bash
# Package: anndata 0.12.19
# Expected: concat(join='outer') marks a gene that a part lacks in the same way, however parts are stored
# Seen: it is NaN if all parts are dense, and 0 if one is sparse: not to be told from a count of 0
# Hits: joined measurements of which one part is sparse: genes that nobody measured count as zeros
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install anndata==0.12.19 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
python -W ignore - <<'END' | expect "[[1.0, nan, nan], [nan, 3.0, 4.0]]
[[1.0, 0.0, 0.0], [0.0, 3.0, 4.0]]"
import anndata
import numpy as np
import pandas as pd
from scipy import sparse


def part(matrix, cell, genes):
    return anndata.AnnData(matrix, obs=pd.DataFrame(index=[cell]), var=pd.DataFrame(index=genes))


first = part(np.array([[1.0]]), "c1", ["g1"])
second = np.array([[3.0, 4.0]])
for matrix in (second, sparse.csr_matrix(second)):
    joined = anndata.concat([first, part(matrix, "c2", ["g2", "g3"])], join="outer").X
    print((joined.toarray() if sparse.issparse(joined) else joined).tolist())
END
