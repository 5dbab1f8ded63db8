#!/usr/bin/env bash
# Package: arviz 0.23.4
# Expected: chains that never moved have an ESS of NaN, as their R-hat, or of 1
# Seen: 4 chains of 1,000 equal draws have a bulk and a tail ESS of 4000, as if all draws were independent
# Hits: checks by the smallest ESS: a sampler that rejects every step, or a parameter that is stuck at its bound, passes
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install arviz==0.23.4 numpy==2.4.6 scipy==1.17.1
python - 2>/dev/null <<'END' | expect "4000 4000 nan"
import arviz
import numpy as np

stuck = np.full((4, 1000), 3.0)
print(*(f"{arviz.ess(stuck, method=method):.0f}" for method in ("bulk", "tail")), arviz.rhat(stuck))
END
