"""Variance of a part's gradient with a control variate over that without, at draws of the posterior of a factorisation.

    dsgmcmc prepare ml-100k/u1.base u1.h5 --test ml-100k/u1.test
    python tests/benchmarks/control_variate.py u1.h5

Exact Gibbs draws states; at each, the gradients of all parts of a grid of 10 by 10, parts drawn at random, in closed
form, less those at an anchor. Variance is added up over all parameters in the metric of the Fisher information, so that
rows of few and of many ratings count alike. Anchors: the state a number of sweeps before; the mean of the states of the
same chain; the mode next to the last of them, given its hyperparameters. Not part of the tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import sparse
from shared import triplets

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.kernels.normal_rows import draw_normal_rows
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.samplers.base import NORMAL
from dsgmcmc.types import Factor, Float64

Theta = dict[Factor, Float64]

GRID, BURN_IN, DRAWS, ASCENT = 10, 100, 100, 40
AGES = (1, 10, 50)


class Chain:
    """A chain with settings of ``dsgmcmc sample`` on this process, state by state; ratings are in their own unit."""

    def __init__(self, path: Path, **settings: Any) -> None:
        source = RatingsSource(path)
        self.config = source.build(settings).resolved()
        make, _ = source.open(self.config, Ring(MPI.COMM_SELF, self.config.grid))
        self.sampler = self.config.make_sampler()
        self.target: Any = make(0, self.sampler)
        with open_ratings(path) as ratings:
            self.rows, self.columns, values = triplets(ratings, "train")
        self.values = values.astype(np.float64)
        self.target.reset()
        self.sampler.start(self.target, self.config.initial_sd)

    def __iter__(self) -> Iterator[int]:
        """Iterate; the number of iterations made, after each."""
        for iteration in range(self.config.iterations):
            self.target.begin(iteration)
            self.sampler.step(self.target, iteration)
            yield iteration + 1

    def theta(self) -> Theta:
        """State of all rows of both factors, in the unit of the chain."""
        blocks = sorted(self.target.blocks(), key=lambda block: block.index)
        return {f: np.concatenate([b["theta"] for b in blocks if b.factor == f]).astype(np.float64) for f in Factor}

    def predict(self, theta: Theta) -> np.ndarray:
        """Predicted training ratings, in their own unit."""
        w, h = theta[Factor.W][self.rows], theta[Factor.H][self.columns]
        k, ratings = self.config.rank, self.target.ratings
        eta = np.einsum("nk,nk->n", w[:, :k], h[:, :k]) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)
        return ratings.centre + ratings.scale * eta


class Noise:
    """Gradients of the parts of a chain's ratings, and their variance."""

    def __init__(self, chain: Chain) -> None:
        self.chain, ratings = chain, chain.target.ratings
        row, column = (
            np.searchsorted(bounds, at, side="right") - 1
            for bounds, at in ((ratings.row_bounds, chain.rows), (ratings.column_bounds, chain.columns))
        )
        part = (column - row) % chain.config.grid
        self.parts = [np.flatnonzero(part == t) for t in range(chain.config.grid)]
        self.p = np.array([len(chosen) for chosen in self.parts]) / len(part)

    def gradients(self, theta: Theta) -> list[np.ndarray]:
        """Of each part, over its probability, times tau; both factors below each other."""
        chain = self.chain
        error = (chain.values - chain.predict(theta)) / chain.target.ratings.scale
        features = {factor: value.copy() for factor, value in theta.items()}
        for value in features.values():
            value[:, chain.config.rank :] = 1.0
        found = []
        for chosen, p in zip(self.parts, self.p, strict=True):
            at = (error[chosen], (chain.rows[chosen], chain.columns[chosen]))
            e = sparse.csr_array(at, shape=(len(theta[Factor.W]), len(theta[Factor.H])))
            both = np.vstack([e @ features[Factor.H], e.T @ features[Factor.W]])
            found.append(-chain.target.noise_precision / p * both)
        return found

    def variance(self, theta: Theta, anchor: Theta | None, metric: np.ndarray) -> float:
        """Of a random part's gradient, in the metric, all parameters together."""
        taken = np.array(self.gradients(theta))
        if anchor is not None:
            taken -= np.array(self.gradients(anchor))
        mean = np.tensordot(self.p, taken, 1)
        return float(np.tensordot(self.p, (taken - mean) ** 2 / metric, 1).sum())

    def metric(self) -> np.ndarray:
        """Fisher information of the state as it is, both factors below each other."""
        found = self.chain.target.information("theta")
        blocks = sorted(found.n, key=lambda block: (block.factor, block.index))
        rows = [found.tau * found.n[b][:, None] * found.c[b.factor] + found.lambda_[b.factor] for b in blocks]
        return np.concatenate(rows).astype(np.float64)


def mode(chain: Chain) -> Theta:
    """The mode that the state is next to, given the hyperparameters: rows and columns set to their means in turns."""
    target = chain.target
    target.model.draw = lambda context: None
    for _ in range(ASCENT):
        target.begin(target.stream.iteration + 1)
        for factor in Factor:
            for block in target.conditionals(factor, "theta"):
                block.update(NORMAL, sd=0.0)
                block.rowwise(draw_normal_rows, "theta")
    return chain.theta()


def ratios(path: Path, rank: int, tau: float | str) -> dict[str, list[float]]:
    """Variances with control variates over those without, by anchor, at several draws."""
    settings = {"sampler": "gibbs", "rank": rank, "grid": GRID, "noise_precision": tau, "until": "none"}
    chain = Chain(path, **settings, iterations=BURN_IN + DRAWS)
    noise, states = Noise(chain), []
    for made in chain:
        if made > BURN_IN:
            states.append(chain.theta())
    metric, at = noise.metric(), range(AGES[-1], DRAWS, 7)
    mean = {f: np.mean([state[f] for state in states], axis=0) for f in Factor}
    anchors = {"mean of the chain": lambda n: mean}
    anchors |= {f"state {age} sweeps before": lambda n, age=age: states[n - age] for age in AGES}
    best = mode(chain)
    anchors["mode"] = lambda n: best
    found: dict[str, list[float]] = {name: [] for name in anchors}
    for n in at:
        plain = noise.variance(states[n], None, metric)
        for name, anchor in anchors.items():
            found[name].append(noise.variance(states[n], anchor(n), metric) / plain)
    return found


def main() -> None:
    """Print a table for tau sampled, and at the value of [Nemeth 2021, section 6.3]."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rank", type=int, default=20)
    arguments = parser.parse_args()
    for tau in ("sampled", 3.0):
        print(f"tau {tau}: variance with the control variate over that without")
        for name, values in ratios(arguments.data, arguments.rank, tau).items():
            print(f"  anchor: {name:24} {np.mean(values):.2f}  ({min(values):.2f} to {max(values):.2f})", flush=True)


if __name__ == "__main__":
    main()
