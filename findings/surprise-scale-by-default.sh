#!/usr/bin/env bash
# Package: scikit-surprise 1.1.5
# Expected: ratings from 1 to 10 give predictions from 1 to 10, or Reader() refuses ratings above its scale
# Seen: all predictions are 5: the scale of Reader() is 1 to 5 whatever the ratings are, and predictions are clipped to it
# Hits: scales of ten, half stars from 0.5, percentages; RMSE and rankings of ties, without a warning
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scikit-surprise==1.1.5 numpy==2.4.6 pandas==3.1.1
python - <<'END' | expect "10.0 6.9 [5.0]"
import numpy as np
import pandas as pd
from surprise import SVD, Dataset, Reader

rng = np.random.default_rng(0)
table = pd.DataFrame({"user": rng.integers(0, 40, 600), "item": rng.integers(0, 30, 600)})
table["rating"] = np.clip(np.round(7 + 1.5 * rng.normal(size=600)), 1, 10)
train = Dataset.load_from_df(table, Reader()).build_full_trainset()
model = SVD(random_state=1).fit(train)
guesses = {float(model.predict(user, item).est) for user in range(40) for item in range(30)}
print(table.rating.max(), round(float(train.global_mean), 2), sorted(guesses))
END
