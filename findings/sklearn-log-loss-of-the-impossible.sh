#!/usr/bin/env bash
# Package: scikit-learn 1.9.1
# Expected: the log loss of an outcome to which a model gives the probability 0 is infinite
# Seen: it is 36.04, 15.94 or 6.93 for probabilities of float64, float32 or float16: zeros become the type's epsilon, without a warning
# Hits: averages over many ratings, where one impossible outcome is 36 of 10,000; the same predictions in float32 get another score
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scikit-learn==1.9.1 numpy==2.4.6
python - <<'END' | expect "float64: 36.04; mean with 9,999 fair coins 0.6967
float32: 15.94; mean with 9,999 fair coins 0.6947
float16: 6.93; mean with 9,999 fair coins 0.6938
exact: inf; mean with 9,999 fair coins inf"
import numpy as np
from sklearn.metrics import log_loss

outcomes = np.ones(10_000, int)
chances = np.full(10_000, 0.5)
chances[0] = 0
for kind in (np.float64, np.float32, np.float16):
    p = chances.astype(kind)
    one = log_loss([1], p[:1], labels=[0, 1])
    mean = log_loss(outcomes, p, labels=[0, 1])
    print(f"{kind.__name__}: {one:.2f}; mean with 9,999 fair coins {mean:.4f}")
with np.errstate(divide="ignore"):
    exact = -np.log(chances)
print(f"exact: {exact[0]}; mean with 9,999 fair coins {exact.mean()}")
END
