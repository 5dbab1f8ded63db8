#!/usr/bin/env bash
# Package: numba 0.68.1, numpy 2.4.6
# Expected: the mean of 20 million float32 of 3.5 is 3.5, as NumPy has it
# Seen: it is 3.36, and the sum of 20 million ones is 16,777,216: numbers are added one by one in float32
# Hits: np.sum and np.mean over float32 ratings within a kernel
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install numba==0.68.1 numpy==2.4.6
python - <<'END' | expect "3.36 16777216.0 3.5 20000000"
import numba
import numpy as np


@numba.njit
def compiled(x):
    return np.mean(x), np.sum(x)


ones = np.ones(20_000_000, np.float32)
print(round(float(compiled(3.5 * ones)[0]), 2), compiled(ones)[1], (3.5 * ones).mean(), int(ones.sum()))
END
