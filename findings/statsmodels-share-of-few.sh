#!/usr/bin/env bash
# Package: statsmodels 0.15.0
# Expected: the 95 % interval of proportion_confint holds the true share about 19 times of 20, and that of no hit in 10 has a width
# Seen: by default it holds a share of .05 in 63.9 % of samples of 20, and is (0, 0) for no hit in 10; method="beta" holds it in 98.4 %, and is (0, .308)
# Hits: hit rates, click rates and coverage with few successes: models that never hit seem to be certain of it
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install statsmodels==0.15.0 numpy==2.4.6 scipy==1.17.1 pandas==3.1.1
python - <<'END' | expect "normal: no hit in 10 (0.000, 0.000); a share of .05 in samples of 20 is held in 63.9 %
beta: no hit in 10 (0.000, 0.308); a share of .05 in samples of 20 is held in 98.4 %
wilson: no hit in 10 (0.000, 0.278); a share of .05 in samples of 20 is held in 92.5 %"
import inspect

import numpy as np
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

hits = np.arange(21)
chance = binom.pmf(hits, 20, 0.05)
default = inspect.signature(proportion_confint).parameters["method"].default
for method in (default, "beta", "wilson"):
    low, high = proportion_confint(0, 10, method=method)
    lows, highs = proportion_confint(hits, 20, method=method)
    held = 100 * chance[(lows <= 0.05) & (0.05 <= highs)].sum()
    print(
        f"{method}: no hit in 10 ({low:.3f}, {high:.3f});"
        f" a share of .05 in samples of 20 is held in {held:.1f} %"
    )
END
