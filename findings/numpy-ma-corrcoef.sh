#!/usr/bin/env bash
# Package: numpy 2.4.6
# Expected: np.ma.corrcoef of two rows that are equal wherever both are observed is 1, as pandas' corr has it, and never above 1
# Seen: it is 1.528 if one row has four values near its mean where the other has none, and 0.061 if it has one that is far away: covariances are those of the shared cells, and standard deviations those of all cells of a row
# Hits: correlations of items or genes with holes: some are above 1, and others fade; the matrix is no correlation matrix
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install numpy==2.4.6 pandas==3.1.1
python - <<'END' | expect "near: numpy 1.528, pandas 1.000
far: numpy 0.061, pandas 1.000"
import numpy as np
import pandas as pd

hole = np.nan
near = np.array([[1, 2, 3, 4, 2.5, 2.5, 2.5, 2.5], [1, 2, 3, 4, hole, hole, hole, hole]])
far = np.array([[1, 2, 3, 4, 50], [1, 2, 3, 4, hole]])
for name, rows in (("near", near), ("far", far)):
    masked = np.ma.corrcoef(np.ma.masked_invalid(rows))[0, 1]
    pairwise = pd.DataFrame(rows.T).corr().to_numpy()[0, 1]
    print(f"{name}: numpy {masked:.3f}, pandas {pairwise:.3f}")
END
