#!/usr/bin/env bash
# Package: smurff 1.1
# Expected: a session with a fixed seed has the same predictions when it is run again
# Seen: it has with num_threads=1; with two threads three runs with one seed have three sets of predictions
# Hits: published results with a seed: num_threads is by default the number of cores
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install smurff==1.1 numpy==2.4.6 scipy==1.17.1
python - <<'END' | expect "three runs have 1 set of predictions with one thread, 3 with two"
import numpy as np
import smurff
from scipy import sparse

rng = np.random.default_rng(0)
ratings = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 300))
known = rng.random(ratings.shape) < 0.5
train, test = (sparse.csc_matrix(np.where(part, ratings, 0)) for part in (known, ~known))


def predictions(threads):
    options = {"num_latent": 4, "burnin": 10, "nsamples": 20, "seed": 1, "verbose": 0}
    session = smurff.TrainSession(priors=["normal", "normal"], num_threads=threads, **options)
    session.addTrainAndTest(train, test)
    session.run()
    return tuple(pair.pred_avg for pair in session.getTestPredictions())


different = [len({predictions(threads) for _ in range(3)}) for threads in (1, 2)]
print(f"three runs have {different[0]} set of predictions with one thread, {different[1]} with two")
END
