#!/usr/bin/env bash
# Package: numba 0.68.1, numpy 2.4.6
# Expected: np.median of values with a NaN is NaN, as NumPy and np.percentile within the same kernel have it
# Seen: it is the median with the NaN as the largest value: 2.0 of (1, 2, NaN)
# Hits: medians of predictions, a failed one among them
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install numba==0.68.1 numpy==2.4.6
python - <<'END' | expect "2.0 nan nan"
import warnings

import numba
import numpy as np


@numba.njit
def compiled(x):
    return np.median(x), np.percentile(x, 50)


x = np.array([1.0, 2.0, np.nan])
warnings.simplefilter("ignore")
print(*compiled(x), np.median(x))
END
