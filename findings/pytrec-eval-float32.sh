#!/usr/bin/env bash
# Package: pytrec_eval-terrier 0.5.11
# Expected: the item with the larger score comes first: a reciprocal rank of 1
# Seen: scores are compared as float32: 0.9 + 1e-9 and 0.9, or 16777217 and 16777216, are equal, and the later name comes first: 0.5
# Hits: scores of float64 that differ little, counts above 16.7 million; ir_measures and others that call it
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install pytrec_eval-terrier==0.5.11 numpy==2.4.6
python - <<'END' | expect "1.0 0.5 0.5"
import pytrec_eval

judge = pytrec_eval.RelevanceEvaluator({"user": {"a": 1}}, {"recip_rank"})
for best, second in ((0.91, 0.9), (0.9 + 1e-9, 0.9), (16777217.0, 16777216.0)):
    seen = judge.evaluate({"user": {"a": best, "b": second}})
    print(seen["user"]["recip_rank"], end=" " if best < 1 else "\n")
END
