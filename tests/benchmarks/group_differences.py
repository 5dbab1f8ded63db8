"""Errors of a group difference by plausible values, on exact data of the 2PL.

    python tests/benchmarks/group_differences.py 40  # seeds; six processor minutes

600 people in two groups whose mean abilities differ by one sd within groups, 30 items, three tenths
missing. The true value is the difference between these people, in sds of their abilities. One line
without and one with the group as a feature of people: the mean error, the root mean square error,
the mean sd over 60 plausible values, and its ratio to that error.
"""

import sys
import warnings

import numpy as np
import pandas as pd

from dsgmcmc import BPMF

PEOPLE = 600
ITEMS = 30


def answers(seed: int) -> tuple[np.ndarray, pd.DataFrame, float]:
    """Return who is in the second group, their answers, and the true difference."""
    rng = np.random.default_rng(seed)
    second = rng.random(PEOPLE) < 0.5
    ability = rng.normal(size=PEOPLE) + second
    slope = np.exp(rng.normal(0, 0.3, ITEMS))
    logits = slope * (ability[:, None] - rng.normal(0.5, 1, ITEMS))
    cells = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(float)
    cells[rng.random(cells.shape) < 0.3] = np.nan
    frame = pd.DataFrame(cells, index=[f"p{k}" for k in range(PEOPLE)])
    frame.columns = [f"q{k}" for k in range(ITEMS)]
    ability /= ability.std()
    return second, frame, float(ability[second].mean() - ability[~second].mean())


def difference(seed: int, *, with_group: bool) -> tuple[float, float]:
    """Return the error of the mean difference over plausible values, and its sd over them."""
    second, frame, truth = answers(seed)
    group = np.where(second, "b", "a")
    features = pd.DataFrame({"user": frame.index, "group": group}) if with_group else None
    model = BPMF(
        rank=0,
        noise="by-item",
        matrix=True,
        user_features=features,
        random_state=seed,
        iterations=1500,
        burn_in=300,
    ).fit(frame)
    table = model.user_parameters(draws=60, unit="sd")
    values = np.column_stack([table[f"ability_{k}"] for k in range(1, 61)])
    found = values[second].mean(axis=0) - values[~second].mean(axis=0)
    return found.mean() - truth, found.std(ddof=1)


def main() -> None:
    """Print both lines."""
    warnings.simplefilter("ignore")
    for with_group in (False, True):
        found = np.array([difference(k, with_group=with_group) for k in range(int(sys.argv[1]))])
        error = np.sqrt(np.square(found[:, 0]).mean())
        sd = np.sqrt(np.square(found[:, 1]).mean())
        name = "with the group" if with_group else "without it"
        print(f"{name}: {found[:, 0].mean():+.4f}, {error:.4f}, {sd:.4f}, {sd / error:.2f}")


if __name__ == "__main__":
    main()
