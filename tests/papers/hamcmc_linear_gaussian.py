"""Section 4.1 of [Simsekli 2016] by the samplers of this package: a linear Gaussian model with a
known posterior.

    python tests/papers/hamcmc_linear_gaussian.py --out figures
    python tests/papers/hamcmc_linear_gaussian.py --quick    # to see that it works

theta ~ N(0, I), x_n ~ N(a_n . theta, 10), n = 1 .. 1000, the a_n correlated; gradients from N / 100
data drawn with replacement; steps (a / t)^0.51. SGLD, PSGLD, HAMCMC with M = 2, and, as in the
paper, SGRLD with the constant metric (sum a a^T / 10 + I)^-1, which is the posterior covariance:
what the others can hope for. Every method is tuned over 15 settings on one seed: 15 steps, or 5
steps and 3 values of lambda. The tables are of five other seeds.

Writes ``hamcmc_scatter.png`` (figure 1 of the paper: D = 2, 10,000 iterations, the second half
shown, tuned for the divergence of the draws' Gaussian from the posterior) and ``hamcmc_error.png``
(figure 2: error of the posterior mean for D = 10 and 100, tuned for that error), and prints what
they show. Seconds are CPU seconds of the whole loop, in which Python's share is large at these
dimensions. Needs matplotlib (the extra `report`).
"""

from collections.abc import Callable
from itertools import product
from math import sqrt
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from common import axes, command, head, prepare, row, save

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import sample
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.base import Target

N = 1000
VARIANCE = 10.0
BATCH = 10
POWER = 0.51
#: Settings to try: first step, in units of 1 / the largest curvature in the metric, and lambda, in
#: units of its own.
STEPS = [(step, 0.0) for step in np.geomspace(0.01, 10.0, 15)]
STEPS_AND_LAMBDAS = list(product(np.geomspace(0.03, 10.0, 5), (0.003, 0.03, 0.3)))


class Effort(NamedTuple):
    """How long and how often each method runs.

    Attributes
    ----------
    iterations, seeds : int
        Length of a run, and runs of each figure.
    settings : int or None
        Number of settings that are tried; None for all.
    """

    iterations: int = 10_000
    seeds: int = 5
    settings: int | None = None

    @property
    def at(self) -> np.ndarray:
        """Iterations whose errors are shown."""
        return np.unique(np.geomspace(10, self.iterations, 60).astype(int))


class LinearGaussian:
    """Posterior of theta; a `Density` with minibatches of its own, drawn with replacement."""

    def __init__(self, dimension: int, iterations: int, seed: int) -> None:
        rng = np.random.default_rng(dimension)  # the same data for every seed
        rotation, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
        # standard deviations of the a_n along their axes
        scales = np.geomspace(1.0, 0.1, dimension)
        self.a = rng.standard_normal((N, dimension)) * scales @ rotation.T
        self.x = self.a @ rng.standard_normal(dimension) + rng.normal(0, sqrt(VARIANCE), N)
        self.batches = np.random.default_rng([1, seed]).integers(0, N, (iterations + 1, BATCH))
        self.batch = self.batches[0]
        self.precision = self.a.T @ self.a / VARIANCE + np.eye(dimension)
        self.mean = np.linalg.solve(self.precision, self.a.T @ self.x / VARIANCE)
        self.dimension = dimension
        self.n_data = N
        self.curvature = np.full(dimension, np.linalg.norm(self.precision, 2))
        self.prior_mean = np.zeros(dimension)
        self.prior_precision = np.ones(dimension)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Gradient on the current minibatch, which stands for all data."""
        a = self.a[self.batch]
        x = self.x[self.batch]
        return (theta @ a.T - x) @ a * (N / BATCH / VARIANCE)


NOISE = Formula("n = z")


class SGRLD(Sampler[StepSize, Target]):
    """SGLD in the metric of the posterior covariance, for which Gamma vanishes [Patterson 2013];
    `step_size` is eps.
    """

    Config = StepSize
    scratch = ("g", "n")

    def start(self, target: Target, sd: float) -> None:
        """Draw the initial theta, and compute the metric."""
        super().start(target, sd)
        self.metric = np.linalg.inv(target.density.precision)
        self.root = np.linalg.cholesky(self.metric)

    def step(self, target: Target, iteration: int) -> None:
        """Theta <- theta - eps G^-1 grad U~ + sqrt(2 eps) G^-1/2 z."""
        eps = self.step_size(target, iteration)
        for block in self.gradient(target, "theta"):
            block.update(NOISE)
            block["theta"][:] += (
                sqrt(2 * eps) * block["n"] @ self.root.T - eps * block["g"] @ self.metric
            )


SAMPLERS["posterior-sgrld"] = SGRLD


def decay(step: float) -> dict[str, Any]:
    """Settings of a step `step` (1 + t)^-0.51 for t = 0, 1 ...: the paper's (a / t)^0.51, a =
    step^(1 / 0.51).
    """
    return {"step_size": step, "decay_sweeps": 1.0, "decay_power": POWER}


def psgld(density: LinearGaussian, step: float, other: float) -> dict[str, Any]:
    """Settings of PSGLD; `other` is lambda in units of the typical sqrt v, the root mean square of
    data's gradients.
    """
    v = np.sqrt(np.mean((density.a * density.x[:, None]) ** 2) / BATCH) / VARIANCE
    eps = step * v * (1 + other) / density.curvature[0]
    return {
        **decay(eps * N),
        "burn_in_step_size": eps * N,
        "lambda_n": other * v * N,
        "adapt": "always",
    }


def hamcmc(density: LinearGaussian, step: float, other: float) -> dict[str, Any]:
    """Settings of HAMCMC; `other` is trust: lambda in units of the largest curvature."""
    return {"memory": 2, "trust": other, **decay(step)}


class Method(NamedTuple):
    """A sampler, a function of its settings from a density, a step and lambda; steps and lambdas to
    try; a colour.
    """

    sampler: str
    settings: Callable[[LinearGaussian, float, float], dict[str, Any]]
    grid: list[tuple[float, float]]
    colour: str


METHODS = {
    "SGLD": Method("sgld", lambda density, step, _: decay(step), STEPS, "tab:blue"),
    "PSGLD": Method("psgld", psgld, STEPS_AND_LAMBDAS, "tab:orange"),
    "HAMCMC": Method("hamcmc", hamcmc, STEPS_AND_LAMBDAS, "tab:green"),
    "SGRLD": Method("posterior-sgrld", lambda density, step, _: decay(step), STEPS, "tab:gray"),
}


class Run(NamedTuple):
    """The second half of a run, and at iterations `Effort.at` the time and the error of the mean
    of all draws, weighted.
    """

    draws: np.ndarray
    error: np.ndarray
    seconds: np.ndarray


def run(
    method: Method, dimension: int, settings: tuple[float, float], seed: int, effort: Effort
) -> tuple[Run, LinearGaussian]:
    """Run a method from theta = 0; a path that diverges has infinite errors."""
    density = LinearGaussian(dimension, effort.iterations, seed)
    sampler, target = prepare(
        method.sampler, density, seed=seed, **method.settings(density, *settings)
    )
    at = effort.at
    draws = np.empty((effort.iterations, dimension))
    total = np.zeros(dimension)
    weight = 0.0
    errors, seconds = np.full((2, len(at)), np.inf)
    begin = process_time()
    with np.errstate(all="ignore"):
        for t, theta in enumerate(sample(target, sampler, effort.iterations, sd=0.0)):
            density.batch = density.batches[t + 1]  # of the iteration to come
            w = sampler.weight(target, t)
            total = total + w * theta[0]
            weight = weight + w
            draws[t] = theta[0]
            number = np.searchsorted(at, t + 1)
            if at[number] == t + 1:
                errors[number] = np.linalg.norm(total / weight - density.mean)
                seconds[number] = process_time() - begin
                if not errors[number] < 1e6:
                    errors[number:] = np.inf
                    break
    return Run(draws[effort.iterations // 2 :], errors, seconds), density


def last_error(path: Run, density: LinearGaussian) -> float:
    """Error of the mean of all draws."""
    return float(path.error[-1])


def divergence(path: Run, density: LinearGaussian) -> float:
    """Kullback-Leibler divergence of the Gaussian with the draws' moments from the posterior."""
    if not np.isfinite(path.error[-1]):
        return np.inf
    covariance = np.cov(path.draws.T) @ density.precision
    offset = path.draws.mean(axis=0) - density.mean
    _, log = np.linalg.slogdet(covariance)
    return float(
        0.5 * (np.trace(covariance) + offset @ density.precision @ offset - density.dimension - log)
    )


def tune(
    method: Method, dimension: int, loss: Callable[[Run, LinearGaussian], float], effort: Effort
) -> tuple[float, float]:
    """Settings of the grid with the least loss on a seed that is not one of those of the
    figures.
    """
    tried = method.grid[: effort.settings]
    return min(tried, key=lambda settings: loss(*run(method, dimension, settings, 101, effort)))


def scatter(out: Path, effort: Effort) -> None:
    """Draw figure 1: the second half of the draws for D = 2, over the posterior's 1, 2 and 3 sigma
    ellipses.
    """
    figure = axes(1, len(METHODS), size=(3 * len(METHODS), 3), sharex=True, sharey=True)
    panels = figure[0]
    circle = np.stack([np.cos(angles := np.linspace(0, 2 * np.pi, 200)), np.sin(angles)])
    head("D = 2", "first step", "lambda", "divergence", "least", "most")
    for panel, (name, method) in zip(panels, METHODS.items(), strict=True):
        settings = tune(method, 2, divergence, effort)
        paths = [run(method, 2, settings, seed, effort) for seed in range(effort.seeds)]
        found = [divergence(*each) for each in paths]
        row(name, *(f"{x:.3g}" for x in (*settings, np.mean(found), min(found), max(found))))
        path, density = paths[0]
        panel.plot(*path.draws.T, ".", ms=1, alpha=0.3, color=method.colour, rasterized=True)
        ellipse = np.linalg.cholesky(np.linalg.inv(density.precision)) @ circle
        for sigma in (1, 2, 3):
            panel.plot(*(density.mean[:, None] + sigma * ellipse), "k", lw=0.8)
        panel.set_title(f"{name}\ndivergence {np.mean(found):.2f}", fontsize=10)
    reach = 4 * np.sqrt(np.diag(np.linalg.inv(density.precision)))
    panels[0].set(
        xlim=density.mean[0] + [-reach[0], reach[0]], ylim=density.mean[1] + [-reach[1], reach[1]]
    )
    save(figure, out, "hamcmc_scatter.png")


def errors(out: Path, effort: Effort) -> None:
    """Draw figure 2: error of the posterior mean for D = 10 and 100, geometric mean over seeds."""
    panels = axes(2, 2, size=(9, 6.5), sharey="row")
    for (by_iteration, by_seconds), dimension in zip(panels, (10, 100), strict=True):
        head(
            f"D = {dimension}",
            "first step",
            "lambda",
            "error of the mean",
            "standard error",
            "CPU seconds",
        )
        for name, method in METHODS.items():
            settings = tune(method, dimension, last_error, effort)
            paths = [
                run(method, dimension, settings, seed, effort)[0] for seed in range(effort.seeds)
            ]
            error = np.exp(np.mean([np.log(path.error) for path in paths], axis=0))
            seconds = np.mean([path.seconds for path in paths], axis=0)
            spread = np.std([np.log(path.error[-1]) for path in paths]) / sqrt(len(paths))
            tuned = (f"{x:.3g}" for x in settings)
            row(name, *tuned, f"{error[-1]:.3f}", f"{spread:.0%}", f"{seconds[-1]:.1f}")
            by_iteration.loglog(effort.at, error, color=method.colour, label=name)
            by_seconds.loglog(seconds, error, color=method.colour, label=name)
        by_iteration.set_ylabel(f"D = {dimension}: error of the mean")
    panels[1, 0].set_xlabel("iterations")
    panels[1, 1].set_xlabel("CPU seconds")
    panels[0, 0].legend(fontsize=8)
    save(panels, out, "hamcmc_error.png")


def main() -> None:
    """Tune, run, draw."""
    options = command(__doc__, "the figures").parse_args()
    effort = Effort(iterations=200, seeds=1, settings=2) if options.quick else Effort()
    scatter(options.out, effort)
    errors(options.out, effort)


if __name__ == "__main__":
    main()
