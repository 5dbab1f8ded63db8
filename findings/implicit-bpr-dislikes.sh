#!/usr/bin/env bash
# Package: implicit 0.7.3
# Expected: a stored -1 is no like, as in ALS of the same package, which scores such pairs 0
# Seen: BPR takes every stored value for a like: the factors are the same, bit for bit, with all values 5 or some -1
# Hits: one matrix for both models, in which a dislike is negative
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install implicit==0.7.3 numpy==2.4.6 scipy==1.17.1
OPENBLAS_NUM_THREADS=1 python - 2>/dev/null <<'END' | expect "True"
import numpy as np
import scipy.sparse as sp
from implicit.bpr import BayesianPersonalizedRanking


def items(values):
    model = BayesianPersonalizedRanking(factors=4, random_state=1, num_threads=1, iterations=10)
    model.fit(values, show_progress=False)
    return model.item_factors


liked = sp.random_array((60, 40), density=0.3, rng=1, format="csr", dtype=np.float32)
liked.data[:] = 5
disliked = liked.copy()
disliked.data[::2] = -1
print(np.array_equal(items(sp.csr_matrix(liked)), items(sp.csr_matrix(disliked))))
END
