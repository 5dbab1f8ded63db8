"""What the factors and their prior are worth on few ratings: exact Gibbs against biases alone, on subsamples.

The priors that are used by default and the published ones, both on standardised ratings, at the rank that
``--rank auto`` chooses. Printed are the changes of the held-out RMSE and of the log predictive density; one line a
size, means over data sets. ``python tests/benchmarks/small_data.py ml-100k.h5 --sizes 50,200,1000``; with ``--dense``
the ratings are those of the most active rows and columns, so that K is larger.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
from gibbs import from_ratings, gibbs

from dsgmcmc.config.run import automatic_rank
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Moments

PRIORS = {"published": False, "default": True}
MAX_TEST = 4000


def all_ratings(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of a ratings file, training and test."""
    parts = from_ratings(path)[:2]
    rows = [np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) for indptr, _, _ in parts]
    return tuple(np.concatenate(each) for each in (rows, *zip(*(part[1:] for part in parts), strict=True)))


def most_active(ratings, n: int, rng):
    """Ratings of some of the most active rows and columns, about four for one of n."""
    rows, columns, _ = ratings
    side = int(2 * np.sqrt(n)) + 3
    few = [rng.choice(np.argsort(-np.bincount(index))[: 4 * side], side, replace=False) for index in (rows, columns)]
    chosen = np.isin(rows, few[0]) & np.isin(columns, few[1])
    return tuple(each[chosen] for each in ratings)


def subsample(ratings, n: int, rng):
    """Train on n ratings, test on others of the same rows and columns; CSR each, and the shape."""
    rows, columns, values = ratings
    order = rng.permutation(len(values))
    n = min(n, int(0.8 * len(order)))
    train, test = order[:n], order[n:]
    names = [np.unique(index[train]) for index in (rows, columns)]
    test = test[np.isin(rows[test], names[0]) & np.isin(columns[test], names[1])][:MAX_TEST]
    mean, sd = values[train].mean(), values[train].std()

    def csr(chosen):
        i, j = (np.searchsorted(name, index[chosen]) for name, index in zip(names, (rows, columns), strict=True))
        by_row = np.lexsort((j, i))
        indptr = np.searchsorted(i[by_row], np.arange(len(names[0]) + 1))
        return indptr, j[by_row], (values[chosen][by_row] - mean) / sd

    return csr(train), csr(test), (len(names[0]), len(names[1]))


def measure(train, test, shape, rank: int, standardise: bool, sweeps: int, seed: int) -> np.ndarray:
    """Held-out RMSE and log predictive density."""
    options = {"centre": False, "sweeps": sweeps, "burn_in": sweeps // 4, "seed": seed, "standardise": standardise}
    found = gibbs(train, test, shape, rank=rank, **options)
    variance = found.sd**2 + found.noise_variance
    density = Gaussian.predictive_of_moments(Moments(found.mean, variance)).log_density(test[2])
    return np.array([found.rmse_mean, density.mean()])


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="ratings file made by `dsgmcmc prepare`")
    parser.add_argument("--sizes", default="50,200,1000,2577", help="training ratings, separated by commas")
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--seeds", type=int, default=5, help="data sets of each size")
    parser.add_argument("--sweeps", type=int, default=300)
    arguments = parser.parse_args()
    ratings = all_ratings(arguments.data)
    print(f"| training ratings | K | {' | '.join(PRIORS)} |\n|---|---|{'---|' * len(PRIORS)}")
    for n in map(int, arguments.sizes.split(",")):
        gains = []
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            train, test, shape = subsample(most_active(ratings, n, rng) if arguments.dense else ratings, n, rng)
            rank = automatic_rank(len(train[2]), sum(shape))
            biases = measure(train, test, shape, 0, True, arguments.sweeps, seed)
            for standardise in PRIORS.values():
                found = measure(train, test, shape, rank, standardise, arguments.sweeps, seed)
                gains.append([found[0] / biases[0] - 1, found[1] - biases[1]])
        means = np.mean(np.reshape(gains, (-1, len(PRIORS), 2)), axis=0)
        cells = [f"{100 * rmse:+.1f} %, {density:+.3f}" for rmse, density in means]
        print(f"| {n:,} | {rank} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
