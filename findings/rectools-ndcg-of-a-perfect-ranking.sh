#!/usr/bin/env bash
# Package: rectools 0.19.0
# Expected: NDCG(k=10) is 1 if all that a user liked comes first, as cornac 3.0.1 has it
# Seen: it is 0.22 for a user with one liked item, 0.36 with two: the gain is divided by that of ten liked items
# Hits: figures beside those of other packages; users with few test items count less; divide_by_achievable=True gives 1
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install rectools==0.19.0 pandas==2.3.3 numpy==1.26.4
python -W ignore - <<'END' | expect "1 0.22 1.0 2 0.36 1.0 10 1.0 1.0"
import pandas as pd
from rectools.metrics import NDCG

seen = []
for liked in (1, 2, 10):
    first = {"user_id": [1] * liked, "item_id": range(liked)}
    recommended = pd.DataFrame({"user_id": [1] * 10, "item_id": range(10), "rank": range(1, 11)})
    seen.append(liked)
    for metric in (NDCG(k=10), NDCG(k=10, divide_by_achievable=True)):
        seen.append(round(float(metric.calc(recommended, pd.DataFrame(first))), 2))
print(*seen)
END
