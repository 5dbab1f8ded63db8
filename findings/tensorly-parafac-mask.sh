#!/usr/bin/env bash
# Package: tensorly 0.10.0
# Expected: what stands in the cells that parafac's mask hides does not matter
# Seen: with zeros there, 500 iterations recover the hidden cells of a tensor of rank 2 to 1e-6; with 1000 there, the error is above 1; with NaN, all is NaN
# Hits: three-way tables with holes: the start is computed from all cells, so the fill decides where the iterations end
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install tensorly==0.10.0 numpy==2.4.6 scipy==1.17.1
python -W ignore - <<'END' | expect "0.0 True
1000.0 False
nan False"
import numpy as np
import tensorly
from tensorly.decomposition import parafac

rng = np.random.default_rng(0)
first, second, third = (rng.normal(size=(n, 2)) for n in (6, 7, 8))
tensor = np.einsum("ir,jr,kr->ijk", first, second, third)
known = rng.random(tensor.shape) > 0.3
for fill in (0.0, 1e3, np.nan):
    filled = np.where(known, tensor, fill)
    found = parafac(filled, 2, mask=known, init="random", n_iter_max=500, tol=1e-12, random_state=1)
    error = np.abs(tensorly.cp_to_tensor(found) - tensor)[~known].max()
    print(fill, bool(error < 1e-6))
END
