"""Calibration of the probability of being best: made-up trials of 80 varieties, 20 environments.

    python tests/benchmarks/best.py 60  # seeds; four minutes
    python tests/benchmarks/best.py 60 500  # with so many saved draws; eight minutes

Two fifths of the cells are measured once. Varieties are ranked over all environments, by their true
means over these, and in each environment alone. One line for each range of probabilities: their
number, their mean, and the share that was best; the last one is of .1 to .9, with the standard
error of the share between trials. The time is that of a ranking of 400 rows over 60 columns
from 50 draws.
"""

import sys
import warnings
from itertools import pairwise
from time import perf_counter

import numpy as np

from dsgmcmc import BPMF

ENDS = (0.1, 0.3, 0.5, 0.7, 0.9)


def trial(seed: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true cells, and measurements with holes, (rows, columns)."""
    rng = np.random.default_rng(seed)
    truth = 5 + rng.normal(0, 0.3, (rows, 1)) + rng.normal(0, 1, columns)
    truth = truth + rng.normal(size=(rows, 1)) * rng.normal(0, 0.4, columns)
    measured = truth + rng.normal(0, 0.5, truth.shape)
    measured[rng.random(truth.shape) < 0.6] = np.nan
    return truth, measured


def judged(table: dict[str, np.ndarray], truth: np.ndarray, seed: int) -> np.ndarray:
    """Return the probabilities of a ranking, whether varieties are best, and the trial, (3, n)."""
    is_best = table["user_id"] == truth.argmax()
    return np.array([table["p_best"], is_best, np.full(len(is_best), seed)])


def show(judged: np.ndarray) -> None:
    """Print how often varieties were best, by ranges of their probabilities."""
    p, is_best, trial = judged
    for low, high in [*pairwise(ENDS), (ENDS[0], ENDS[-1])]:
        chosen = (p >= low) & (p < high)
        number = max(int(chosen.sum()), 1)
        away = np.bincount(trial[chosen].astype(int), (is_best - p)[chosen])
        error = np.sqrt(np.square(away).sum()) / number
        mean = p[chosen].sum() / number
        share = is_best[chosen].sum() / number
        print(f"{low}-{high}: {number}, {mean:.3f}, {share:.3f} +- {error:.3f}")


def main() -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    options = {"save_draws": int(sys.argv[2])} if len(sys.argv) > 2 else {}
    settings = {"rank": 1, "iterations": 1200, "burn_in": 200, "options": options}
    over_all: list[np.ndarray] = []
    in_each: list[np.ndarray] = []
    for seed in range(int(sys.argv[1])):
        truth, measured = trial(seed, 80, 20)
        model = BPMF(**settings, random_state=seed).fit(measured)
        over_all.append(judged(model.ranking("user"), truth.mean(axis=1), seed))
        for column in range(20):
            in_each.append(judged(model.ranking("user", over=[column]), truth[:, column], seed))
    print("over all environments")
    show(np.concatenate(over_all, axis=1))
    print("in one environment")
    show(np.concatenate(in_each, axis=1))
    _, measured = trial(0, 400, 60)
    model = BPMF(rank=2, iterations=300, burn_in=50, options={"save_draws": 50}).fit(measured)
    start = perf_counter()
    model.ranking("user")
    print(
        f"{len(model.run_.draws)} draws of 400 rows over 60 columns: {perf_counter() - start:.2f} s"
    )


if __name__ == "__main__":
    main()
