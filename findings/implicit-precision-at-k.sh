#!/usr/bin/env bash
# Package: implicit 0.7.3
# Expected: precision_at_k(K=10) is the share of the ten items that were liked: 0.1 with one hit
# Seen: it is hits / min(10, liked items): 1.0 for users with one liked item
# Hits: comparisons with other packages' precision
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install implicit==0.7.3 numpy==2.4.6 scipy==1.17.1
OPENBLAS_NUM_THREADS=1 python - 2>/dev/null <<'END' | expect "1.0"
import numpy as np
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from implicit.evaluation import precision_at_k

seen, liked = np.zeros((10, 11), np.float32), np.zeros((10, 11), np.float32)
seen[:, 0] = liked[:, 5] = 1  # ten items are left for a list of ten, so that the liked one is in it
model = AlternatingLeastSquares(factors=2, random_state=1, num_threads=1)
model.fit(sp.csr_matrix(seen + liked), show_progress=False)
print(precision_at_k(model, sp.csr_matrix(seen), sp.csr_matrix(liked), K=10, show_progress=False))
END
