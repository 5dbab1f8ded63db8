#!/usr/bin/env bash
# Package: implicit 0.7.3
# Expected: fewer than N items are left, so fewer come back
# Seen: N come back: items that the user has, scored -3.4e38, and then item 0 again and again with the score 0
# Hits: users who have rated most of a small catalogue; item 0 seems to be popular
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install implicit==0.7.3 numpy==2.4.6 scipy==1.17.1
OPENBLAS_NUM_THREADS=1 python - 2>/dev/null <<'END' | expect "10 ids, 2 of them new; seen again: 6; the last two: [0, 0] [0.0, 0.0]"
import numpy as np
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares

rated = (np.random.default_rng(0).random((20, 8)) < 0.5).astype(np.float32)
rated[0] = [1, 1, 1, 1, 1, 1, 0, 0]
model = AlternatingLeastSquares(factors=2, random_state=1, num_threads=1)
model.fit(sp.csr_matrix(rated), show_progress=False)
ids, scores = model.recommend(0, sp.csr_matrix(rated)[0], N=10)
new, again = set(ids[:8].tolist()) - set(range(6)), int((scores < -1e38).sum())
print(f"{len(ids)} ids, {len(new)} of them new; seen again: {again}; the last two: {ids[-2:].tolist()} {scores[-2:].tolist()}")
END
