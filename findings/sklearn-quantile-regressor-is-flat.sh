#!/usr/bin/env bash
# Package: scikit-learn 1.9.1
# Expected: QuantileRegressor(quantile=.9) of 1,000 points with y = .8 x + noise has a slope near .8, as quantile regression without a penalty has
# Seen: the slope is exactly 0: the default penalty, alpha=1, outweighs the loss, which falls by less than 1 for each unit of slope; alpha=0 has 0.83
# Hits: intervals by two quantile regressions: they are those of y alone, of one width everywhere: of points with x above 1.5, 81 % are above the 90 % quantile, without a warning
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
python - <<'END' | expect "default: slope 0.00, above for large x 0.81
alpha=0: slope 0.83, above for large x 0.13"
import numpy as np
from sklearn.linear_model import QuantileRegressor

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 1))
y = 0.8 * x[:, 0] + 0.5 * rng.normal(size=1000)
large = x[:, 0] > 1.5
for name, settings in (("default", {}), ("alpha=0", {"alpha": 0})):
    model = QuantileRegressor(quantile=0.9, **settings).fit(x, y)
    above = np.mean(y[large] > model.predict(x[large]))
    print(f"{name}: slope {model.coef_[0]:.2f}, above for large x {above:.2f}")
END
