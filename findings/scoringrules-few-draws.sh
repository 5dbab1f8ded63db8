#!/usr/bin/env bash
# Package: scoringrules 0.10.0, properscoring 0.1
# Expected: the CRPS of draws from the true law is on average that law's CRPS, as crps_normal has it
# Seen: crps_ensemble is 1.20 times as large with 5 draws, 1.10 times with 10, 1.01 times with 100, in both packages: the pairs of a draw with itself count as spread
# Hits: posterior predictive draws scored beside a closed form, or beside runs that saved another number of draws: 10 draws are 10 % worse by their number alone; estimator="fair" is right on average
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scoringrules==0.10.0 properscoring==0.1 numpy==2.4.6 scipy==1.17.1
python - <<'END' | expect "5 draws: scoringrules 1.20, properscoring 1.20, fair 1.00 times the exact one
10 draws: scoringrules 1.10, properscoring 1.10, fair 1.00 times the exact one
100 draws: scoringrules 1.01, properscoring 1.01, fair 1.00 times the exact one"
import numpy as np
import properscoring
import scoringrules

rng = np.random.default_rng(0)
for m in (5, 10, 100):
    seen = rng.normal(size=5_000_000 // m)
    draws = rng.normal(size=(len(seen), m))
    exact = scoringrules.crps_normal(seen, 0, 1).mean()
    plain = scoringrules.crps_ensemble(seen, draws).mean() / exact
    other = properscoring.crps_ensemble(seen, draws).mean() / exact
    fair = scoringrules.crps_ensemble(seen, draws, estimator="fair").mean() / exact
    print(
        f"{m} draws: scoringrules {plain:.2f}, properscoring {other:.2f}, fair {fair:.2f}"
        " times the exact one"
    )
END
