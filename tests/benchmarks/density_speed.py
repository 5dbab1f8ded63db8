"""CPU microseconds an iteration of `sample_density`, SGLD, beside a NumPy loop, in turns of one run.

    python tests/benchmarks/density_speed.py            # a minute of one core

Logistic regression, 20,000 data, 100 of them an iteration, D = 10; 1e5 iterations, every tenth state kept. The loop
draws its data with replacement; ours come in shuffled parts. A density whose gradient is compiled by Numba is the same.
"""

from __future__ import annotations

import argparse
from time import process_time

import numba
import numpy as np

from dsgmcmc import sample_density

N, D, BATCH, THIN = 20_000, 10, 100, 10
EPS = 1e-6
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, D))
LABELS = (RNG.random(N) < 1 / (1 + np.exp(-FEATURES @ RNG.normal(scale=0.3, size=D)))).astype(np.float64)


class Logistic:
    """As a user writes it."""

    n_data, dimension = N, D
    prior_mean, prior_precision = np.zeros(D), np.ones(D)
    curvature = 0.2 * (FEATURES**2).sum(axis=0)

    def energy(self, theta, data=slice(None)):
        eta = theta @ FEATURES[data].T
        return (np.logaddexp(0, eta) - LABELS[data] * eta).sum(axis=1)

    def gradient(self, theta, data=slice(None)):
        features = FEATURES[data]
        return (1 / (1 + np.exp(-theta @ features.T)) - LABELS[data]) @ features


@numba.njit
def compiled(theta, first, step):
    """Gradient of a part."""
    found = np.zeros_like(theta)
    for row in range(len(theta)):
        for i in range(first, N, step):
            eta = 0.0
            for k in range(D):
                eta += theta[row, k] * FEATURES[i, k]
            slope = 1 / (1 + np.exp(-eta)) - LABELS[i]
            for k in range(D):
                found[row, k] += slope * FEATURES[i, k]
    return found


class Compiled(Logistic):
    """With a compiled gradient."""

    def gradient(self, theta, data=slice(None)):
        return compiled(theta, data.start or 0, data.step or 1)


def loop(iterations):
    """SGLD in NumPy."""
    rng, theta, draws = np.random.default_rng(1), np.zeros(D), []
    for iteration in range(iterations):
        index = rng.integers(0, N, BATCH)
        features = FEATURES[index]
        gradient = N / BATCH * ((1 / (1 + np.exp(-features @ theta)) - LABELS[index]) @ features) + theta
        theta = theta - EPS * gradient + np.sqrt(2 * EPS) * rng.standard_normal(D)
        if iteration % THIN == 0:
            draws.append(theta)


def ours(density, iterations):
    """The same by `sample_density`."""
    settings = {"grid": N // BATCH, "iterations": iterations, "burn_in": 0, "thin": THIN}
    section = {"name": "sgld", "step_size": EPS * float(density.curvature.max())}
    sample_density(density, sampler=section, **settings)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    contenders = {
        "NumPy loop": loop,
        "sample_density": lambda n: ours(Logistic(), n),
        "sample_density, compiled gradient": lambda n: ours(Compiled(), n),
    }
    found = {name: [] for name in contenders}
    for turn in range(options.turns + 1):
        for name, work in contenders.items():
            begin = process_time()
            work(options.iterations if turn else 1000)
            if turn:  # the first compiles
                found[name].append(1e6 * (process_time() - begin) / options.iterations)
    reference = np.median(found["NumPy loop"])
    print("| | CPU microseconds an iteration | times the loop |\n|---|---|---|")
    for name, seen in found.items():
        print(f"| {name} | {np.median(seen):.0f} | {np.median(seen) / reference:.2f} |")


if __name__ == "__main__":
    main()
