#!/usr/bin/env bash
# Package: scikit-surprise 1.1.5
# Expected: predict('3', '4') where the trained names are the numbers 3 and 4 is refused, or impossible
# Seen: the mean of all ratings, with was_impossible False
# Hits: names that came from a web request, or a data set of load_from_file, whose names are texts
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scikit-surprise==1.1.5 pandas
python - <<'END' | expect "True False"
import numpy as np
import pandas as pd
from surprise import SVD, Dataset, Reader

rng = np.random.default_rng(0)
table = pd.DataFrame({"user": rng.integers(0, 9, 60), "item": rng.integers(0, 9, 60), "rating": rng.integers(1, 6, 60)})
train = Dataset.load_from_df(table, Reader()).build_full_trainset()
guess = SVD(random_state=1).fit(train).predict("3", "4")
print(bool(np.isclose(guess.est, train.global_mean)), guess.details["was_impossible"])
END
