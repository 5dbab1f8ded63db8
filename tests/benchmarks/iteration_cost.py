"""What one iteration costs, against the kernels that it cannot do without.

    python tests/benchmarks/iteration_cost.py ml-1m.h5

prints, for every sampler, milliseconds per iteration, its phases, and two ratios:

- to the kernels: (gradient + noise) of the same iteration, each called alone; SGLD and PSGLD aim at 1.35 and BAOAB,
  whose iteration is a sweep, at 1.3. HAMCMC takes two gradients and its noise twice;
- to an SGLD iteration; HAMCMC with M = 2 aims at 2.6.

One process. Samplers and kernels take turns, and the quickest iteration on every part counts, so that a busy machine
hardly changes the ratios; compare figures of one run only. Not part of the tests.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings, open_ratings
from dsgmcmc.kernels.philox import NoiseKey, normals
from dsgmcmc.model.circulation import RatingsCell
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.source import targets_of

CASES: dict[str, dict[str, Any]] = {
    "sgld": {"name": "sgld"},
    "psgld": {"name": "psgld"},
    "hamcmc, M=2": {"name": "hamcmc", "memory": 2},
    "hamcmc, M=2, diagonal": {"name": "hamcmc", "memory": 2, "metric": "diagonal"},
    "hamcmc, M=3": {"name": "hamcmc", "memory": 3},
    "baoab": {"name": "baoab"},
}
STEADY = {"prior": "fixed", "noise_precision": 1.0, "burn_in": 0}  # the factors alone are sampled
WARM_UP = 30  # iterations before the first turn: kernels are compiled, HAMCMC has its pairs


class Run:
    """A chain that only iterates: nothing is evaluated or saved."""

    def __init__(self, config: ResolvedConfig, ratings: Ratings, ring: Ring) -> None:
        self.sampler = config.make_sampler()
        self.target = targets_of(config, ratings, ring)(0, self.sampler)
        self.target.reset()
        self.sampler.start(self.target, config.initial_sd)
        self.iteration = 0
        #: Seconds of the quickest iteration on every part, and of its phases.
        self.best: dict[int, tuple[float, dict[str, float]]] = {}

    def iterate(self, count: int) -> None:
        """Make `count` iterations."""
        for _ in range(count):
            self.target.begin(self.iteration)
            self.sampler.step(self.target, self.iteration)
            self.iteration += 1

    def turn(self, count: int) -> None:
        """Time iterations one by one, after some to fill the caches, and keep the best of every part."""
        phases = self.target.timers
        self.iterate(self.target.sweep_length)
        for _ in range(count):
            part = self.target.circulation.part
            phases.seconds = dict.fromkeys(phases.seconds, 0.0)
            begin = perf_counter()
            self.iterate(1)
            seconds = perf_counter() - begin
            if part not in self.best or seconds < self.best[part][0]:
                self.best[part] = seconds, phases.seconds.copy()

    def cost(self) -> tuple[float, dict[str, float]]:
        """Mean over the parts."""
        total, phases = zip(*self.best.values(), strict=True)
        means = {name: sum(each[name] for each in phases) / len(phases) for name in phases[0]}
        return sum(total) / len(total), means


class Kernels:
    """The gradient of every part, and the noise of one iteration, with nothing around them."""

    def __init__(self, run: Run) -> None:
        self.target = run.target
        self.normal = {block: np.empty(block["theta"].size, np.float32) for block in run.target.blocks()}
        #: The cells of every part.
        self.parts: list[list[RatingsCell]] = [[] for _ in range(run.target.grid)]
        for cell in run.target.circulation.tour(("theta", "g")):
            self.parts[(cell.column.index - cell.row.index) % run.target.grid].append(cell)
        #: Seconds of the quickest call: gradients of all parts, and noise.
        self.best = np.full(run.target.grid + 1, np.inf)

    def turn(self, count: int) -> None:
        """Time all of them `count` times, after once to fill the caches."""
        for number in range(count + 1):
            for index in range(len(self.best)):
                begin = perf_counter()
                self._noise() if index == len(self.parts) else self._gradient(index)
                if number:
                    self.best[index] = min(self.best[index], perf_counter() - begin)

    def _gradient(self, part: int) -> None:
        for cell in self.parts[part]:
            self.target.likelihood.add_gradient(cell, "theta", "g", 1.0, 0.0)

    def _noise(self) -> None:
        for block, normal in self.normal.items():
            normals(normal, NoiseKey(block.start * block.dimension, 0, 0, 0, 0, 0))


def measure(data: Path, settings: dict[str, Any], turns: int, count: int) -> tuple[dict[str, Run], Kernels]:
    """Time all cases, and the kernels."""
    configs = {name: build({**settings, **STEADY, "sampler": case}).resolved() for name, case in CASES.items()}
    first = next(iter(configs.values()))
    ring = Ring(MPI.COMM_SELF, first.grid)
    with open_ratings(data) as ratings:
        runs = {name: Run(config, ratings, ring) for name, config in configs.items()}
        kernels = Kernels(Run(first, ratings, ring))
    for run in runs.values():
        run.iterate(WARM_UP)
    for _ in range(turns):
        for timed in (*runs.values(), kernels):
            timed.turn(count)
    return runs, kernels


def report(runs: dict[str, Run], kernels: Kernels) -> None:
    """Print a table."""
    *parts, noise = kernels.best
    print(f"gradient of all data {sum(parts) * 1e3:.3f} ms, of a part {np.mean(parts) * 1e3:.3f} ms")
    print(f"noise of an iteration {noise * 1e3:.3f} ms\n")
    print(f"{'sampler':24}{'ms':>8}{'gradient':>10}{'update':>8}{'reduce':>8}{'rest':>8}{'/kernels':>10}{'/SGLD':>8}")
    sgld, _ = runs["sgld"].cost()
    for name, run in runs.items():
        seconds, phases = run.cost()
        gradient = sum(parts) if run.target.sweep_length == 1 else np.mean(parts)
        shown = [phases[phase] for phase in ("gradient", "update", "reduce")]
        columns = zip((seconds, *shown, seconds - sum(shown)), (8, 10, 8, 8, 8), strict=True)
        text = "".join(f"{1e3 * value:{width}.3f}" for value, width in columns)
        print(f"{name:24}{text}{seconds / (gradient + noise):10.2f}{seconds / sgld:8.2f}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="ratings file made by `dsgmcmc prepare`")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--grid", type=int, default=4)
    parser.add_argument("--no-biases", action="store_true")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=12, help="of a turn")
    options = parser.parse_args()
    settings = {"rank": options.rank, "grid": options.grid, "biases": not options.no_biases}
    report(*measure(options.data, settings, options.turns, options.iterations))


if __name__ == "__main__":
    main()
