"""Expected values at the default rank where few factors are real: intervals, widths and errors.

    python tests/benchmarks/spare_factors.py [--axes 1,2,3,5] [--samplers gibbs,baoab] [--seeds 1]

Made-up tables of 400 x 60, of which a quarter of the cells is known, with one to three replicates:
x = 6 + a_i + b_j + W_i . H_j + noise of sd 0.6, with 1 to 5 axes. Each is sampled at the default
rank and at that of the axes. Prints the share of the true means of the other cells inside their 90
% intervals, the mean width of intervals and the RMSE, both relative to those at the true rank, and
how many factors hold 99 % of the variance.
"""

import time
from typing import Any

import numpy as np
import pandas as pd
from bench import arguments, say, say_head

from dsgmcmc import BPMF

SHAPE = (400, 60)
SIZES = np.array([0.7, 0.4, 0.35, 0.3, 0.25])


def table(seed: int, axes: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Return the true means of all cells, and the measurements."""
    rng = np.random.default_rng(seed)
    n, m = SHAPE
    truth = 6 + rng.normal(0, 0.8, (n, 1)) + rng.normal(0, 1.2, (1, m))
    truth = truth + rng.normal(size=(n, axes)) * SIZES[:axes] @ rng.normal(size=(axes, m))
    rows, columns = np.nonzero(rng.random(SHAPE) < 0.25)
    replicates = rng.integers(1, 4, rows.size)
    rows, columns = np.repeat(rows, replicates), np.repeat(columns, replicates)
    measured = truth[rows, columns] + rng.normal(0, 0.6, rows.size)
    return truth, pd.DataFrame({"user": rows, "item": columns, "rating": measured})


def fit(data: pd.DataFrame, truth: np.ndarray, **settings: Any) -> dict[str, float]:
    """Return the coverage, width and RMSE of the expected values of unknown cells."""
    start = time.process_time()
    model = BPMF(duplicates="keep", noise="shared", **settings).fit(data)
    hole = np.ones(SHAPE, bool)
    hole[data.user, data.item] = False
    rows, columns = np.nonzero(hole)
    pairs = pd.DataFrame({"user": rows, "item": columns})
    low, high = model.predict_interval(pairs, 0.9, of_mean=True)
    mean = np.asarray(model.predict(pairs))
    true = truth[hole]
    return {
        "inside": float(((true > low) & (true < high)).mean()),
        "width": float((high - low).mean()),
        "rmse": float(np.sqrt(np.mean((mean - true) ** 2))),
        "factors": model.loadings().n_factors,
        "seconds": time.process_time() - start,
    }


def main() -> int:
    """Print a line for each table and sampler."""
    parser = arguments(__doc__)
    parser.add_argument("--axes", default="1,2,3,5")
    parser.add_argument("--samplers", default="gibbs,baoab")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--priors", default="half-cauchy")
    asked = parser.parse_args()
    say_head("axes", "seed", "sampler", "prior", "inside", "width", "RMSE", "factors", "seconds")
    for axes in map(int, asked.axes.split(",")):
        for seed in range(asked.seeds):
            truth, data = table(seed, axes)
            for sampler in asked.samplers.split(","):
                settings = {"sampler": sampler, "iterations": asked.iterations}
                true = fit(data, truth, rank=axes, **settings)
                for prior in asked.priors.split(","):
                    found = fit(data, truth, options={"prior": prior}, **settings)
                    say(
                        axes,
                        seed,
                        sampler,
                        prior,
                        f"{100 * found['inside']:.1f} ({100 * true['inside']:.1f})",
                        f"{found['width'] / true['width']:.3f}",
                        f"{found['rmse'] / true['rmse']:.3f}",
                        found["factors"],
                        f"{found['seconds']:.0f}",
                    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
