"""Calibration of the probability of being best: made-up trials of 80 varieties, 20 environments.

    python tests/benchmarks/best.py 20  # seeds; a minute

A variety's true mean is that over all environments; two fifths of the cells are measured once. One
line for each range of probabilities: their number, their mean, and the share that was best. The
time is that of a ranking of 400 rows over 60 columns from 50 draws.
"""

import sys
import warnings
from itertools import pairwise
from time import perf_counter

import numpy as np

from dsgmcmc import BPMF

ENDS = (0.05, 0.2, 0.4, 0.6, 0.8, 1.01)


def trial(seed: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true cells, and measurements with holes, (rows, columns)."""
    rng = np.random.default_rng(seed)
    truth = 5 + rng.normal(0, 0.3, (rows, 1)) + rng.normal(0, 1, columns)
    truth = truth + rng.normal(size=(rows, 1)) * rng.normal(0, 0.4, columns)
    measured = truth + rng.normal(0, 0.5, truth.shape)
    measured[rng.random(truth.shape) < 0.6] = np.nan
    return truth, measured


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    probabilities = []
    hits = []
    for seed in range(int(sys.argv[1])):
        truth, measured = trial(seed, 80, 20)
        model = BPMF(rank=1, iterations=1200, burn_in=200, random_state=seed).fit(measured)
        table = model.ranking("user")
        best = truth.mean(axis=1).argmax()
        probabilities += table["p_best"].tolist()
        hits += (table["user_id"] == best).tolist()
    p = np.array(probabilities)
    hit = np.array(hits)
    for low, high in pairwise(ENDS):
        chosen = (p >= low) & (p < high)
        if chosen.any():
            print(f"{low}-{high}: {chosen.sum()}, {p[chosen].mean():.3f}, {hit[chosen].mean():.3f}")
    print(f"slope of hits on probabilities {(p * hit).sum() / np.square(p).sum():.3f}")
    _, measured = trial(0, 400, 60)
    model = BPMF(rank=2, iterations=300, burn_in=50, options={"save_draws": 50}).fit(measured)
    start = perf_counter()
    model.ranking("user")
    print(
        f"{len(model.run_.draws)} draws of 400 rows over 60 columns: {perf_counter() - start:.2f} s"
    )


if __name__ == "__main__":
    main()
