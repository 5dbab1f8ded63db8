#!/usr/bin/env bash
# Package: numpyro 0.22.0
# Expected: the columns 5.0% and 95.0% of summary() are these quantiles: of an exponential law .05 and 3.00
# Seen: they are the ends of the shortest interval with 90 %: 0.00 and 2.3, of which the latter is the 90 % quantile; print_summary, which MCMC prints, has the same names
# Hits: skewed posteriors, such as of precisions and rates, read as one-sided bounds: 10 % of the draws, not 5 %, lie above the column 95.0%
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install numpyro==0.22.0 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
python - <<'END' | expect "columns 0.00 and 2.30, quantiles 0.05 and 3.00, exact 0.05 and 3.00
of the draws, 0 % lie below the column 5.0%, and 10 % above the column 95.0%"
import math

import numpy as np
from numpyro.diagnostics import summary

draws = np.random.default_rng(0).exponential(size=(4, 50_000))
found = summary({"rate": draws})["rate"]
low, high = found["5.0%"], found["95.0%"]
quantiles = np.quantile(draws, (0.05, 0.95))
print(
    f"columns {low:.2f} and {high:.2f}, quantiles {quantiles[0]:.2f} and {quantiles[1]:.2f},"
    f" exact {-math.log(0.95):.2f} and {-math.log(0.05):.2f}"
)
below = 100 * np.mean(draws < low)
above = 100 * np.mean(draws > high)
print(
    f"of the draws, {below:.0f} % lie below the column 5.0%, and {above:.0f} % above the column 95.0%"
)
END
