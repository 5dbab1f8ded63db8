"""Processor time of a sweep of a small factorisation, beside twenty lines of NumPy.

    python tests/benchmarks/small_models.py
    python tests/benchmarks/small_models.py --rounds 9 --samplers gibbs

The ratings are a full table of 25 x 15, the rank is 2, and all other settings are the defaults:
with biases, and with drawn priors and noise. NumPy draws from the same conditionals by Gibbs
sampling, without exchanges of means and biases, checks for divergence, averages or saved draws.

Each figure is the difference of two runs whose lengths differ by `SWEEPS`, so start and end do not
count. NumPy and dsgmcmc run in turns in one process; the table has the medians over rounds, and the
least. Not part of the tests.
"""

import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from bench import arguments, say, say_head

from dsgmcmc.bpmf import BPMF

SHAPE = (25, 15)
RANK = 2
SWEEPS = 2000

Array = np.ndarray[Any, np.dtype[Any]]


def table() -> Array:
    """A table of ratings of this rank, with noise of variance 1."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(SHAPE[0], RANK))
    h = rng.normal(size=(SHAPE[1], RANK))
    return np.asarray(w @ h.T + rng.normal(size=SHAPE))


def plain_gibbs(ratings: Array, sweeps: int) -> None:
    """Gibbs sampling in NumPy: rows theta = (row, bias), then means, precisions and noise."""
    rng = np.random.default_rng(2)
    x = ratings - ratings.mean()
    d = RANK + 1
    theta = [rng.normal(size=(n, d)) for n in SHAPE]
    mean = [np.zeros(d), np.zeros(d)]
    precision = [np.ones(d), np.ones(d)]
    tau = 1.0
    for _ in range(sweeps):
        for side, data in enumerate((x, x.T)):
            phi = theta[1 - side].copy()
            bias = phi[:, -1].copy()
            phi[:, -1] = 1.0
            # the table is full, so all rows have the same precision
            root = np.linalg.cholesky(np.diag(precision[side]) + tau * phi.T @ phi)
            linear = precision[side] * mean[side] + tau * (data - bias) @ phi
            z = rng.normal(size=(d, len(data)))
            theta[side] = np.linalg.solve(root.T, np.linalg.solve(root, linear.T) + z).T
            n = len(data)
            average = theta[side].mean(axis=0)
            scatter = ((theta[side] - average) ** 2).sum(axis=0)
            rate = 1.0 + (scatter + n * average**2 / (n + 1)) / 2
            precision[side] = rng.gamma(1.0 + n / 2, 1 / rate)
            noise = rng.normal(size=d) / np.sqrt((n + 1) * precision[side])
            mean[side] = n * average / (n + 1) + noise
        w, h = theta
        errors = x - w[:, :-1] @ h[:, :-1].T - w[:, -1:] - h[:, -1]
        tau = rng.gamma(1.0 + x.size / 2, 1 / (1.0 + (errors**2).sum() / 2))


def fit(ratings: Array, sampler: str, sweeps: int) -> None:
    """Sample the factorisation, in this process."""
    row, column = np.indices(SHAPE)
    frame = pd.DataFrame({"user": row.ravel(), "item": column.ravel(), "rating": ratings.ravel()})
    BPMF(rank=RANK, sampler=sampler, burn_in=100, iterations=sweeps, random_state=1).fit(frame)


def milliseconds_of(work: Callable[[int], None]) -> float:
    """Processor time of a sweep in ms."""
    times = [time.process_time()]
    for sweeps in (SWEEPS // 2, SWEEPS + SWEEPS // 2):
        work(sweeps)
        times.append(time.process_time())
    begin, middle, end = times
    return 1e3 * ((end - middle) - (middle - begin)) / SWEEPS


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samplers", nargs="+", default=["gibbs", "baoab"])
    options = parser.parse_args()
    logging.disable(logging.INFO)
    ratings = table()
    say_head("sampler", "ms a sweep", "least", "NumPy, ms", "least", "ratio")
    for sampler in options.samplers:
        fit(ratings, sampler, 200)  # compiles kernels
        ours = []
        plain = []
        for _ in range(options.rounds):
            ours.append(milliseconds_of(partial(fit, ratings, sampler)))
            plain.append(milliseconds_of(partial(plain_gibbs, ratings)))
        ratio = statistics.median(ours) / statistics.median(plain)
        times = [f(x) for x in (ours, plain) for f in (statistics.median, min)]
        say(sampler, *(f"{value:.3f}" for value in times), f"{ratio:.1f}")


if __name__ == "__main__":
    main()
