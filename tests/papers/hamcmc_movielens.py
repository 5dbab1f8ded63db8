"""Section 4.3 of [Simsekli 2016]: DSGLD, PSGLD and HAMCMC on MovieLens, distributed matrix
factorisation.

    python tests/papers/hamcmc_movielens.py ml-1m.h5 --out figures
    python tests/papers/hamcmc_movielens.py ml-1m.h5 --quick    # to see that it works

K = 10, all variances 1, no biases, a 4 x 4 grid, parts drawn at random, constant steps, burn-in 50
iterations, M = 2, 10 % of the ratings held out, and ratings centred at their mean. DSGLD is SGLD on
blocks. Every method is tried with 6 settings, 6 steps or 3 steps and 2 values of its lambda; the
one with the least RMSE of the posterior mean prediction after 1,000 iterations is run again with
other seeds: RMSE against iterations and against seconds, all inclusive, also the evaluation. Runs
are those of ``dsgmcmc sample`` on one process.

Writes ``hamcmc_movielens.png`` and prints a table. Needs matplotlib (the extra `report`).
"""

import tempfile
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import axes, command, head, row, save

from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.storage.rundir import RunDirectory

BURN_IN = 50
MODEL = [
    *(
        "--rank=10",
        "--no-biases",
        "--prior=fixed",
        "--set=prior_precision=1",
        "--noise-precision=1",
    ),
    *("--grid=4", "--set=schedule=random", f"--burn-in={BURN_IN}"),
    *("--thin=3", "--set=evaluate_every=10", "--save-draws=0"),
]


class Effort(NamedTuple):
    """Iterations of a run, runs of each method, and settings that are tried; None for all."""

    iterations: int = 1000
    seeds: int = 3
    settings: int | None = None


def trials(
    options: str, steps: Iterable[float], setting: str = "", values: Iterable[float] = (0.0,)
) -> list[list[str]]:
    """Options of a sampler with every step, and every value of a second setting."""
    second = [[f"--set=sampler.{setting}={value}"] if setting else [] for value in values]
    return [
        [*options.split(), f"--step-size={step}", *more] for step, more in product(steps, second)
    ]


#: Options that are tried.
METHODS = {
    "DSGLD": trials("--sampler=sgld", np.geomspace(0.05, 8.0, 6).round(3).tolist()),
    "PSGLD": trials(
        "--sampler=psgld --set=sampler.adapt=always", (0.07, 0.15, 0.3), "lambda_n", (9.0, 30.0)
    ),
    "HAMCMC": trials("--sampler=hamcmc", (0.7, 1.4, 2.8), "trust", (1.0, 0.2)),
}


def run(data: Path, options: list[str], seed: int, effort: Effort) -> list[dict[str, float]]:
    """Lines of metrics of a run; none if it diverged."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        length = (f"--iterations={effort.iterations}", f"--seed={seed}")
        ended = run_dsgmcmc(["sample", str(data), "--out", str(out), *MODEL, *options, *length])
        if "diverged" in ended.stderr:
            return []
        if ended.returncode:
            raise SystemExit(ended.stderr)
        return RunDirectory(out).metrics()


def tune(data: Path, tried: list[list[str]], effort: Effort) -> list[str]:
    """Options with the least RMSE of the mean prediction in the end, on a seed that the table does
    not have.
    """

    def loss(options: list[str]) -> float:
        lines = run(data, options, 100, effort)
        return lines[-1]["rmse_mean"] if lines else np.inf

    return min(tried[: effort.settings], key=loss)


def main() -> None:
    """Tune, run, draw."""
    parser = command(__doc__, "the figure")
    parser.add_argument("data", type=Path, help="ratings file made by `dsgmcmc prepare`")
    arguments = parser.parse_args()
    effort = Effort(iterations=100, seeds=1, settings=1) if arguments.quick else Effort()
    panels = axes(1, 2, size=(9, 3.5), sharey="row")[0]
    head("", "RMSE of the mean prediction", "of the last state", "seconds", "options", "diverged")
    for colour, (name, tried) in enumerate(METHODS.items()):
        best = tune(arguments.data, tried, effort)
        runs = [run(arguments.data, best, seed, effort) for seed in range(effort.seeds)]
        ends = [lines[-1] for lines in runs if lines]
        mean, state, seconds = (
            np.mean([end[key] for end in ends]) for key in ("rmse_mean", "rmse", "time_s")
        )
        figures = (f"{mean:.4f}", f"{state:.4f}", f"{seconds:.1f}")
        row(name, *figures, " ".join(best), effort.seeds - len(ends))
        for number, lines in enumerate(runs):
            shown = [line for line in lines if line["rmse_mean"] is not None]
            rmse = [line["rmse_mean"] for line in shown]
            for panel, key in zip(panels, ("iteration", "time_s"), strict=True):
                x = [line[key] for line in shown]
                panel.plot(x, rmse, color=f"C{colour}", lw=1, label=None if number else name)
    panels[0].set(ylabel="RMSE", ylim=(0.84, 0.96), xlabel="iterations")
    panels[1].set_xlabel("seconds, all inclusive")
    panels[0].legend(fontsize=8)
    save(panels, arguments.out, "hamcmc_movielens.png")


if __name__ == "__main__":
    main()
