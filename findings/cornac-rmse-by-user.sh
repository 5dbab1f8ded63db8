#!/usr/bin/env bash
# Package: cornac 3.0.1
# Expected: the RMSE of an Experiment is the root of the mean squared error of all test ratings: .995
# Seen: it is the mean over users of each user's RMSE: .5, where one user has 100 ratings with an error of 1, and another has one rating with none; user_based=False has .995
# Hits: RMSE and MAE beside those of other packages and of papers: users with few ratings count as much as those with hundreds
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install cornac==3.0.1
python - 2>&1 <<'END' | grep "^default" | expect "default 0.500, user_based=False 0.995, root of the mean squared error of all 101 ratings 0.995"
from math import sqrt

import cornac
from cornac.eval_methods import BaseMethod
from cornac.metrics import RMSE
from cornac.models import GlobalAvg

known = [3.0] * 98 + [1.0, 5.0]  # mean 3; predictions are clipped to the scale of training
train = [("one", f"item{i}", x) for i, x in enumerate(known)] + [("other", "item0", 3.0)]
test = [("one", f"item{i}", 4.0) for i in range(100)] + [("other", "item1", 3.0)]
method = BaseMethod.from_splits(train, test, rating_threshold=1.0)


def rmse(**options):
    experiment = cornac.Experiment(method, [GlobalAvg()], [RMSE()], verbose=False, **options)
    experiment.run()
    return experiment.result[0].metric_avg_results["RMSE"]


found = rmse(), rmse(user_based=False)
exact = sqrt(100 / 101)
print(
    f"default {found[0]:.3f}, user_based=False {found[1]:.3f},"
    f" root of the mean squared error of all 101 ratings {exact:.3f}"
)
END
