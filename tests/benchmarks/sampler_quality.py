"""Samplers and metrics on one file: whether they are calibrated, and how many independent predictions they make.

    python tests/benchmarks/sampler_quality.py ml-1m.h5 --out quality --gibbs 300
    python tests/benchmarks/sampler_quality.py ml-1m.h5 --out quality baoab baoab,metric=kronecker -- --rank 64

A word is a sampler and settings of it; without any it is `ALL`. What follows ``--`` are options of every ``dsgmcmc
sample``. Each is sampled alone on one process, one after another. With --gibbs exact Gibbs comes first, with so many
sweeps, on the same model and split: predictive standard deviations of test ratings are compared with its, mean(sd) /
mean(sd of Gibbs) and their correlation, and how long it takes until the RMSE of the mean prediction is within `CLOSE`
of its last one. A pass is one gradient of all ratings, or what takes as many looks at them: two in a sweep of Gibbs, of
HAMCMC and with control variates. ESS is the median over the followed predictions. Prints a table in Markdown. Not part
of the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics.convergence import diagnose
from dsgmcmc.diagnostics.scores import coverage, pit, rmse
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import RunDirectory

ALL = (
    *("baoab", "baoab,metric=kronecker", "sghmc", "sghmc,gradient=control-variate", "sgnht", "sgrld", "psgld"),
    *("sgld", "sgld,gradient=control-variate", "hamcmc", "hamcmc,metric=diagonal"),
)
CLOSE = 0.002
TITLES = (
    *("", "RMSE", "seconds, passes", f"until RMSE is within {CLOSE} of Gibbs", "tau", "mean sd / that of Gibbs"),
    *("correlation", "50 / 90 % intervals hold", "ESS of predictions in 1,000 passes", "a second"),
)


@dataclass
class Reference:
    """What exact Gibbs has found: the RMSE of the mean prediction, and the standard deviations of the predictors."""

    rmse: float
    sd: np.ndarray


def sample(word: str, data: Path, folder: Path, options: list[str]) -> str:
    """Sample; what went wrong, or nothing."""
    name, *settings = word.split(",")
    arguments = ["sample", str(data), "--out", str(folder), "--sampler", name, "--until", "none", *options]
    arguments += [part for setting in settings for part in ("--set", f"sampler.{setting}")]
    done = run_dsgmcmc(arguments)
    said = [line for line in done.stderr.splitlines() if line.startswith("dsgmcmc:")]
    return (said or ["failed"])[0] if done.returncode else ""


def passes(config: Any) -> int:
    """Looks at all the data in a sweep."""
    twice = config.sampler.name in ("gibbs", "hamcmc") or config.sampler.config.gradient == "control-variate"
    return 2 if twice else 1


def line(word: str, data: Path, folder: Path, exact: Reference | None) -> tuple[str, Reference]:
    """A line of the table, and what the run may serve others for."""
    directory, opened = RunDirectory(folder), Run(folder)
    found, summary = predict_test(opened), json.loads(directory.summary_file.read_text(encoding="utf-8"))
    with open_ratings(data) as ratings:
        values = ratings.slab("test", 0, ratings.n_rows)[2]
    sd, last = np.sqrt(found.variance), rmse(values, found.mean)
    exact = exact or Reference(last, sd)
    config, lines = opened.config, list(directory.metrics())
    each = passes(config) / config.sweep_length
    seconds, made = lines[-1]["time_s"], config.iterations * each
    near = next((at for at in lines if at["rmse_mean"] and at["rmse_mean"] < exact.rmse + CLOSE), None)
    covered = coverage(pit(found.predictive(Gaussian, None), values))
    ess = diagnose(opened)["predictions"]["ess_bulk"]
    median = float(np.median(ess)) if ess else float("nan")
    drawn = 1 - config.burn_in / config.iterations
    cells = (
        *(f"`{word}`", f"{last:.4f}", f"{seconds:.0f} s, {made:,.0f}"),
        f"{near['time_s']:.0f} s, {near['iteration'] * each:,.0f}" if near else "not reached",
        *(f"{summary['tau']:.2f}", f"{sd.mean() / exact.sd.mean():.3f}", f"{np.corrcoef(sd, exact.sd)[0, 1]:.3f}"),
        f"{100 * covered[0.5]:.1f} / {100 * covered[0.9]:.1f} %",
        *(f"{1000 * median / (made * drawn):.0f}", f"{median / (seconds * drawn):.1f}"),
    )
    return f"| {' | '.join(cells)} |", Reference(last, sd)


def main() -> None:
    """Sample with everything that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("samplers", nargs="*", default=ALL, metavar="NAME[,SETTING=VALUE...]")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs; must not have them yet")
    parser.add_argument("--gibbs", type=int, default=0, metavar="SWEEPS", help="of exact Gibbs, a fifth of it burn-in")
    given, options = sys.argv[1:], []
    if "--" in given:
        given, options = given[: given.index("--")], given[given.index("--") + 1 :]
    arguments = parser.parse_intermixed_args(given)
    print(f"| {' | '.join(TITLES)} |\n|{'---|' * len(TITLES)}")
    runs = [(word, options) for word in arguments.samplers]
    if arguments.gibbs:
        length = [f"--iterations={arguments.gibbs}", f"--burn-in={arguments.gibbs // 5}", "--set=evaluate_every=5"]
        runs.insert(0, ("gibbs", [*options, *length]))
    exact = None
    for word, more in runs:
        folder = arguments.out / word.replace("=", "-").replace(",", "-")
        failed = sample(word, arguments.data, folder, more)
        if failed:
            print(f"| `{word}` | {failed} |", flush=True)
            continue
        text, found = line(word, arguments.data, folder, exact)
        exact = exact or (found if arguments.gibbs else None)
        print(text, flush=True)


if __name__ == "__main__":
    main()
