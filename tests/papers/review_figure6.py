"""Figure 6 of [Nemeth 2021]: a factorisation of MovieLens 100K by stochastic gradients, on the five official folds.

    for k in 1 2 3 4 5; do dsgmcmc prepare ml-100k/u$k.base u$k.h5 --test ml-100k/u$k.test; done
    python tests/papers/review_figure6.py u1.h5 u2.h5 u3.h5 u4.h5 u5.h5 --out docs/figures --quick

K = 20, tau = 3, centred ratings, no biases, the published priors; ten random parts, so a tenth of the ratings in an
iteration. Chains with control variates start from the mode, which is their anchor, as in the paper; the others from
N(0, 0.1^2). The steps of "tuned" rows are the best of four by the RMSE of the mean prediction on the first fold; "as
published" are the steps of the paper's code with control variates, 1e-10 and 1e-12 in its h. Exact Gibbs, a sweep for
ten iterations, is the truth.

RMSE is shown as in the paper, of single states, and of the mean of the predictions since the first fifth; both clipped
to the scale. Writes ``review_figure6.png`` and prints the page's table. Without --quick 20,000
iterations a chain; with it `QUICK`. Needs matplotlib (the extra `report`). Not part of the tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from mpi4py import MPI

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics.scores import coverage, pit, rmse
from dsgmcmc.kernels.normal_rows import draw_normal_rows
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.samplers.base import NORMAL
from dsgmcmc.types import Factor, Float64

Theta = dict[Factor, Float64]

GRID, TAU, ITERATIONS, QUICK, LOOKS, ASCENT = 10, 3.0, 20_000, 3000, 50, 40
MODEL: dict[str, Any] = {
    "rank": 20,
    "noise_precision": TAU,
    "biases": False,
    "standardise": False,
    "prior": "normal-gamma",
    "prior_precision": 1.0,
    "hyper_start": 3,
    "initial_sd": 0.1,
    "grid": GRID,
    "schedule": "random",
    "until": "none",
    "thin": 3,
}


@dataclass(frozen=True)
class Method:
    """A row of the table: its sampler, the steps to try, and whether it starts at the mode."""

    section: dict[str, Any]
    steps: tuple[float, ...] = ()
    colour: str = "black"
    style: str = "-"

    @property
    def anchored(self) -> bool:
        """Whether it has control variates."""
        return self.section.get("gradient") == "control-variate"


PLAIN = {"warm_up": 0, "metric": "identity"}
HMC = {"name": "sghmc", "splitting": "published", "gamma": 0.5, **PLAIN}
NHT = {"name": "sgnht", "thermostat": "scalar", **PLAIN}
CV = {"gradient": "control-variate"}
LARGE, SMALL = (0.03, 0.1, 0.3, 0.6), (3e-3, 1e-2, 3e-2, 1e-1)
TUNED = {
    "SGLD": Method({"name": "sgld"}, LARGE, "C0"),
    "SGHMC, published": Method({**HMC, "refresh": 5}, SMALL, "C1"),
    "SGHMC, metric": Method({"name": "sghmc", "warm_up": 0}, SMALL, "C4"),
    "SGNHT": Method(NHT, SMALL, "C2"),
    "SGLD-CV": Method({"name": "sgld", **CV}, LARGE, "C0", "--"),
    "SGHMC-CV": Method({**HMC, "refresh": 5, **CV}, SMALL, "C1", "--"),
    "SGNHT-CV": Method({**NHT, **CV}, SMALL, "C2", "--"),
}
#: Of the paper's code, in its h: half of that is eps.
PUBLISHED = {
    "SGLD-CV, step as published": (Method({"name": "sgld", **CV}, (), "C0", ":"), 1e-10),
    "SGHMC-CV, step as published": (Method({**HMC, **CV}, (), "C1", ":"), 1e-12),
}


class Chain:
    """A chain on this process, state by state; test ratings are in their own unit."""

    def __init__(self, path: Path, iterations: int, burn_in: int, sampler: Any) -> None:
        source = RatingsSource(path)
        self.config = source.build(
            MODEL | {"iterations": iterations, "burn_in": burn_in, "sampler": sampler}
        ).resolved()
        make, _ = source.open(self.config, Ring(MPI.COMM_SELF, GRID))
        self.sampler = self.config.make_sampler()
        self.target: Any = make(0, self.sampler)
        with open_ratings(path) as ratings:
            indptr, self.columns, self.values = ratings.slab("test", 0, ratings.n_rows)
            self.rows = np.repeat(np.arange(ratings.n_rows), np.diff(indptr))
            self.limits = ratings.minimum, ratings.maximum
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

    def place(self, theta: Theta) -> None:
        """Set the state."""
        for block in self.target.blocks():
            block["theta"][:] = theta[block.factor][block.start : block.start + len(block.counts)]

    def predict(self) -> Float64:
        """Predicted test ratings, in their own unit."""
        theta, ratings = self.theta(), self.target.ratings
        eta = np.einsum("nk,nk->n", theta[Factor.W][self.rows], theta[Factor.H][self.columns])
        found: Float64 = ratings.centre + ratings.scale * eta
        return found

    def mode(self) -> Theta:
        """The mode next to the state, given the hyperparameters: rows and columns take their means in turns."""
        target = self.target
        target.model.draw = lambda context: None
        for _ in range(ASCENT):
            target.begin(target.stream.iteration + 1)
            for factor in Factor:
                for block in target.conditionals(factor, "theta"):
                    block.update(NORMAL, sd=0.0)
                    block.rowwise(draw_normal_rows, "theta")
        return self.theta()


@dataclass
class Found:
    """What a chain has found, along its way and at its end."""

    iterations: list[int] = field(default_factory=list)
    single: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    sd: float = 0.0
    covered: float = 0.0

    @property
    def last(self) -> np.ndarray:
        """RMSE of single states (mean over the last half) and of the mean, sd, and coverage of 90 % intervals."""
        half = len(self.single) // 2
        return np.array([np.mean(self.single[half:]), self.mean[-1], self.sd, 100 * self.covered])


def follow(chain: Chain, iterations: int, per: int) -> Found:
    """Run a chain, an iteration of which counts as `per`, and look at it now and then."""
    found, n, values = Found(), 0, chain.values
    mean, square = np.zeros(len(values)), np.zeros(len(values))
    every = max(iterations // LOOKS // per, 1)
    for made in chain:
        if made % every:
            continue
        predicted = chain.predict()
        if made * per > iterations // 5:
            n += 1
            change = predicted - mean
            mean += change / n
            square += change * (predicted - mean)
        found.iterations.append(made * per)
        found.single.append(rmse(values, np.clip(predicted, *chain.limits)))
        found.mean.append(rmse(values, np.clip(mean, *chain.limits)) if n else float("nan"))
        if not np.isfinite(found.single[-1]) or found.single[-1] > 3:
            return found
    variance = square / max(n - 1, 1)
    found.sd = float(np.sqrt(variance).mean())
    found.covered = coverage(pit(Gaussian.predictive_of_moments(Moments(mean, variance + 1 / TAU)), values))[0.9]
    return found


def exact(data: Path, iterations: int) -> tuple[Found, Theta]:
    """Gibbs, and the mode that its last state is next to."""
    sweeps = iterations // GRID
    chain = Chain(data, sweeps, sweeps // 5, "gibbs")
    return follow(chain, iterations, GRID), chain.mode()


def run(data: Path, method: Method, step: float, start: Theta, iterations: int, published: bool = False) -> Found:
    """Sample with a method at a step: its own unit or, as `published`, the paper's h."""
    section = {**method.section, "step_size": step}
    if published:  # theta moves as by a step of h / 2 of SGLD, or of h = eta of SGHMC
        section["step_size"] = step / 2 * Chain(data, 1, 0, method.section).target.curvature_bound
    chain = Chain(data, iterations, 0 if method.anchored else 1, section)
    if method.anchored:  # and the iteration that burn-in ends with is the first
        chain.place(start)
    with np.errstate(all="ignore"):
        return follow(chain, iterations, 1)


def tuned(data: Path, method: Method, start: Theta, iterations: int) -> float:
    """The step whose mean prediction is best."""
    tried = {step: run(data, method, step, start, iterations).last[1] for step in method.steps}
    return min(tried, key=lambda step: np.nan_to_num(tried[step], nan=np.inf))


def draw(curves: dict[str, list[Found]], looks: dict[str, Method], out: Path) -> None:
    """RMSE of single states, and of mean predictions, against iterations: means over the folds."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for name, folds in curves.items():
        shortest = min(len(found.single) for found in folds)
        for axis, kind in zip(axes, ("single", "mean"), strict=True):
            lines = np.array([getattr(found, kind)[:shortest] for found in folds])
            look = looks.get(name, Method({}))
            axis.plot(folds[0].iterations[:shortest], lines.mean(axis=0), look.style, color=look.colour, label=name)
    for axis, title in zip(
        axes, ("single states, clipped: as in the paper", "mean of the predictions, clipped"), strict=True
    ):
        axis.set(title=title, xlabel="iterations, a tenth of the ratings each", ylim=(0.9, 1.4))
    axes[0].set_ylabel("RMSE of the test ratings, mean of five folds")
    axes[1].legend(fontsize="small")
    figure.savefig(out / "review_figure6.png", dpi=110)


def main() -> None:
    """Tune on the first fold, sample all, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    iterations = QUICK if arguments.quick else ITERATIONS
    truth = [exact(data, iterations) for data in arguments.data]
    curves = {"exact Gibbs": [found for found, _ in truth]}
    steps: dict[str, float] = {}
    for name, method in TUNED.items():
        steps[name] = tuned(arguments.data[0], method, truth[0][1], max(iterations // 3, 500))
        curves[name] = [
            run(data, method, steps[name], start, iterations)
            for data, (_, start) in zip(arguments.data, truth, strict=True)
        ]
        print(f"{name}: step {steps[name]:g} of {method.steps}", flush=True)
    for name, (method, h) in PUBLISHED.items():
        steps[name] = h
        curves[name] = [
            run(data, method, h, start, iterations, published=True)
            for data, (_, start) in zip(arguments.data, truth, strict=True)
        ]
    print("| | step | RMSE of single states | of their mean | mean sd | 90 % intervals hold |")
    print("|---|---|---|---|---|---|")
    for name, folds in curves.items():
        single, mean, sd, covered = np.mean([found.last for found in folds], axis=0)
        if not np.isfinite(mean):
            print(f"| {name} | {steps[name]} | diverged on a fold | | | |")
            continue
        print(f"| {name} | {steps.get(name, '')} | {single:.3f} | {mean:.3f} | {sd:.3f} | {covered:.1f} % |")
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw(curves, TUNED | {name: method for name, (method, _) in PUBLISHED.items()}, arguments.out)


if __name__ == "__main__":
    main()
