#!/usr/bin/env bash
# Package: ranx 0.3.21
# Expected: the metric does not depend on the order in which a run is written
# Seen: items with equal scores stay in that order: a run has an MRR of 1.0, and the same run in another order 0.33
# Hits: scores with ties, such as clipped or rounded ratings, whose items are listed with the relevant ones first
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install ranx==0.3.21 numba==0.68.1 numpy==2.4.6
python -W ignore - <<'END' | expect "abc 1.0 bca 0.33 cba 0.33"
from ranx import Qrels, Run, evaluate

liked = Qrels({"user": {"a": 1}})
seen = []
for order in ("abc", "bca", "cba"):
    seen += [order, round(float(evaluate(liked, Run({"user": dict.fromkeys(order, 1.0)}), "mrr")), 2)]
print(*seen)
END
