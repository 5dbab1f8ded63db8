"""Figure 6 of [Nemeth 2021]: a factorisation of MovieLens 100K by stochastic gradients, on the five
official folds.

    for k in 1 2 3 4 5; do dsgmcmc prepare ml-100k/u$k.base u$k.h5 --test ml-100k/u$k.test; done
    python tests/papers/review_figure6.py u1.h5 u2.h5 u3.h5 u4.h5 u5.h5 --out docs/figures --quick

K = 20, tau = 3, centred ratings, no biases, the published priors; ten random parts, so a tenth of
the ratings in an iteration. Chains with control variates start from the mode, which is their
anchor, as in the paper; the others from N(0, 0.1^2). The steps of "tuned" rows are the best of four
by the RMSE of the mean prediction on the first fold; "as published" are the steps of the paper's
code with control variates, 1e-10 and 1e-12 in its h. Exact Gibbs, a sweep for ten iterations, is
the truth.

RMSE is shown as in the paper, of single states, and of the mean of the predictions since the first
fifth; both clipped to the scale. Writes ``review_figure6.png`` and prints the page's table. Without
--quick 20,000 iterations a chain; with it `QUICK`. Needs matplotlib (the extra `report`). Not part
of the tests.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import PLAIN, PUBLISHED, axes, command, head, row, save

# isort: split
from chain_states import iterate, start_chain
from support import cells_of, predictors, rows_of

from dsgmcmc.config.run import build
from dsgmcmc.diagnostics.scores import rmse
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.posterior.scores import coverage
from dsgmcmc.samplers.base import NORMAL
from dsgmcmc.types import Factor, Float64

Theta = dict[Factor, Float64]

SCALE = (1.0, 5.0)
GRID = 10
TAU = 3.0
ITERATIONS = 20_000
QUICK = 3000
LOOKS = 50
ASCENT = 40
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

HMC = {"name": "sghmc", "gamma": 0.5, **PUBLISHED}
NHT = {"name": "sgnht", "thermostat": "scalar", **PLAIN}
CV = {"gradient": "control-variate"}
LARGE = (0.03, 0.1, 0.3, 0.6)
SMALL = (3e-3, 1e-2, 3e-2, 1e-1)
#: Settings of every row, steps to try, and colour and style; with one step, that is h of the
#: paper's code.
METHODS: dict[str, tuple[dict[str, Any], tuple[float, ...], str]] = {
    "SGLD": ({"name": "sgld"}, LARGE, "C0-"),
    "SGHMC, published": ({**HMC, "refresh": 5}, SMALL, "C1-"),
    "SGHMC, metric": ({"name": "sghmc", "warm_up": 0}, SMALL, "C4-"),
    "SGNHT": (NHT, SMALL, "C2-"),
    "SGLD-CV": ({"name": "sgld", **CV}, LARGE, "C0--"),
    "SGHMC-CV": ({**HMC, "refresh": 5, **CV}, SMALL, "C1--"),
    "SGNHT-CV": ({**NHT, **CV}, SMALL, "C2--"),
    "SGLD-CV, step as published": ({"name": "sgld", **CV}, (1e-10,), "C0:"),
    "SGHMC-CV, step as published": ({**HMC, **CV}, (1e-12,), "C1:"),
}


class Chain:
    """A chain on this process, state by state; test ratings are in their own unit."""

    def __init__(self, path: Path, iterations: int, burn_in: int, sampler: Any) -> None:
        self.iterations = iterations
        settings = MODEL | {"iterations": iterations, "burn_in": burn_in, "sampler": sampler}
        self.target, self.sampler = start_chain(path, MODEL["initial_sd"], build(settings))
        self.rows, self.columns, self.values = cells_of(path, "test")

    def theta(self) -> Theta:
        """State of all rows of both factors, in the unit of the chain."""
        return {factor: rows_of(self.target, factor) for factor in Factor}

    def predict(self) -> Float64:
        """Predicted test ratings, in their own unit."""
        ratings = self.target.ratings
        return ratings.centre + ratings.scale * predictors(self.target, self.rows, self.columns)

    def mode(self) -> Theta:
        """The mode next to the state, given the hyperparameters: rows and columns take their means
        in turns.
        """
        target: Any = self.target
        target.draw_parts = lambda context: None
        for _ in range(ASCENT):
            target.begin(target.stream.iteration + 1)
            for factor in Factor:
                for rows, conditional in target.conditionals(factor, "theta"):
                    rows.update(NORMAL, sd=0.0)
                    rows.draw_normal("theta", conditional)
        return self.theta()


class Found(NamedTuple):
    """What a chain has found, along its way and at its end.

    `curve` has iterations, RMSE of single states, and RMSE of the mean: (looks, 3). `last` has RMSE
    of single states (mean over the last half) and of the mean, sd, and coverage of 90 % intervals,
    in %; NaN if the chain diverged.
    """

    curve: np.ndarray
    last: np.ndarray


def follow(chain: Chain, iterations: int, per: int) -> Found:
    """Run a chain, an iteration of which counts as `per`, and look at it now and then."""
    curve = []
    late = []
    values = chain.values
    every = max(iterations // LOOKS // per, 1)
    for made in (
        iteration + 1 for iteration in iterate(chain.target, chain.sampler, chain.iterations)
    ):
        if made % every:
            continue
        predicted = chain.predict()
        if made * per > iterations // 5:
            late.append(predicted)
        mean = np.mean(late, axis=0) if late else np.full(len(values), np.nan)
        errors = (rmse(values, np.clip(state, *SCALE)) for state in (predicted, mean))
        curve.append((made * per, *errors))
        if not curve[-1][1] <= 3:
            return Found(np.array(curve), np.full(4, np.nan))
    found = np.array(curve)
    variance = np.var(late, axis=0, ddof=1)
    covered = coverage(
        GaussianRatings.predictive_of_moments(Moments(mean, variance + 1 / TAU)).pit(values)
    )[0.9]
    single = found[len(found) // 2 :, 1].mean()
    return Found(found, np.array([single, found[-1, 2], np.sqrt(variance).mean(), 100 * covered]))


def exact(data: Path, iterations: int) -> tuple[Found, Theta]:
    """Gibbs, and the mode that its last state is next to."""
    sweeps = iterations // GRID
    chain = Chain(data, sweeps, sweeps // 5, "gibbs")
    return follow(chain, iterations, GRID), chain.mode()


def run(data: Path, name: str, step: float, start: Theta, iterations: int) -> Found:
    """Sample with a method at a step in its own unit, or in the paper's; those with control
    variates from the mode.
    """
    section, tried, _ = METHODS[name]
    if len(tried) == 1:  # theta moves as by a step of h / 2 of SGLD, or of h = eta of SGHMC
        step = step / 2 * Chain(data, 1, 0, section).target.curvature_bound
    anchored = "gradient" in section
    chain = Chain(data, iterations, 0 if anchored else 1, {**section, "step_size": step})
    if anchored:  # and the iteration that burn-in ends with is the first
        for block in chain.target.blocks():
            block["theta"][:] = start[block.factor][block.start : block.start + len(block.counts)]
    with np.errstate(all="ignore"):
        return follow(chain, iterations, 1)


def tuned(data: Path, name: str, start: Theta, iterations: int) -> float:
    """The step whose mean prediction is best."""
    _, each, _ = METHODS[name]
    if len(each) == 1:
        return each[0]
    tried = {step: run(data, name, step, start, iterations).last[1] for step in each}
    return min(tried, key=lambda step: np.nan_to_num(tried[step], nan=np.inf))


def draw(curves: dict[str, list[Found]], out: Path) -> None:
    """RMSE of single states, and of mean predictions, against iterations: means over the folds."""
    panels = axes(1, 2, size=(11, 4.2), sharey=True)
    titles = ("single states, clipped: as in the paper", "mean of the predictions, clipped")
    for axis, column, title in zip(panels[0], (1, 2), titles, strict=True):
        for name, folds in curves.items():
            shortest = min(len(found.curve) for found in folds)
            mean = np.mean([found.curve[:shortest] for found in folds], axis=0)
            axis.plot(
                mean[:, 0],
                mean[:, column],
                METHODS[name][2] if name in METHODS else "k-",
                label=name,
            )
        axis.set(title=title, xlabel="iterations, a tenth of the ratings each", ylim=(0.9, 1.4))
    panels[0, 0].set_ylabel("RMSE of the test ratings, mean of five folds")
    panels[0, 1].legend(fontsize="small")
    save(panels, out, "review_figure6.png")


def main() -> None:
    """Tune on the first fold, sample all, print the table and draw the figure."""
    parser = command(__doc__, "review_figure6.png")
    parser.add_argument("data", type=Path, nargs="+")
    options = parser.parse_args()
    iterations = QUICK if options.quick else ITERATIONS
    truth = [exact(data, iterations) for data in options.data]
    curves = {"exact Gibbs": [found for found, _ in truth]}
    taken = {"exact Gibbs": ""}
    for name in METHODS:
        step = tuned(options.data[0], name, truth[0][1], max(iterations // 3, 500))
        taken[name] = f"{step:g}"
        folds = zip(options.data, truth, strict=True)
        curves[name] = [run(data, name, step, start, iterations) for data, (_, start) in folds]
        print(f"{name}: step {step:g}", flush=True)
    head("", "step", "RMSE of single states", "of their mean", "mean sd", "90 % intervals hold")
    for name, found in curves.items():
        single, mean, sd, covered = np.mean([each.last for each in found], axis=0)
        if np.isfinite(mean):
            row(name, taken[name], f"{single:.3f}", f"{mean:.3f}", f"{sd:.3f}", f"{covered:.1f} %")
        else:
            row(name, taken[name], "diverged on a fold", "", "", "")
    if options.out:
        draw(curves, options.out)


if __name__ == "__main__":
    main()
