"""Calibration of samplers and metrics on one file, and their number of independent predictions.

    python tests/benchmarks/sampler_quality.py ml-1m.h5 --out quality --gibbs 300
    python tests/benchmarks/sampler_quality.py ml-1m.h5 --out quality baoab,metric=kronecker

A word is a sampler with its settings; the default is `ALL`. Options after ``--`` go to every
``dsgmcmc sample``. Each sampler runs alone on one process, one after another. With --gibbs exact
Gibbs comes first, with so many sweeps, on the same model and split. It is the reference for
predictive standard deviations of test ratings, by mean(sd) / mean(sd of Gibbs) and their
correlation, and for the time until the RMSE of the mean prediction is within `CLOSE` of the last
RMSE of Gibbs. A pass looks at all ratings once, as one gradient does; a sweep of Gibbs, of HAMCMC
or with control variates takes two. ESS is the median over the followed predictions. Prints a table
in Markdown. Not part of the tests.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench import arguments, say, say_head

from dsgmcmc.diagnostics.convergence import diagnose
from dsgmcmc.diagnostics.scores import rmse
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.scores import coverage
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.storage.rundir import RunDirectory

ALL = (
    *(
        "baoab",
        "baoab,metric=kronecker",
        "sghmc",
        "sghmc,gradient=control-variate",
        "sgnht",
        "sgrld",
        "psgld",
    ),
    *("sgld", "sgld,gradient=control-variate", "hamcmc", "hamcmc,metric=diagonal"),
)
CLOSE = 0.002
TITLES = (
    *(
        "sampler",
        "RMSE",
        "seconds",
        "passes",
        "seconds to Gibbs",
        "tau",
        "sd / Gibbs",
        "correlation",
        "50 %",
        "90 %",
    ),
    *("ESS in 1,000 passes", "ESS a second"),
)


class Reference(NamedTuple):
    """RMSE of the mean prediction, and standard deviations of the predictors, by exact Gibbs
    sampling.
    """

    rmse: float
    sd: np.ndarray


def sample(word: str, data: Path, folder: Path, options: list[str]) -> str:
    """Sample; the error, or empty."""
    name, *settings = word.split(",")
    command = [
        "sample",
        str(data),
        "--out",
        str(folder),
        "--sampler",
        name,
        "--until",
        "none",
        *options,
    ]
    command += [part for setting in settings for part in ("--set", f"sampler.{setting}")]
    done = run_dsgmcmc(command)
    errors = [line for line in done.stderr.splitlines() if line.startswith("dsgmcmc:")]
    return (errors or ["failed"])[0] if done.returncode else ""


def line(
    word: str, data: Path, folder: Path, exact: Reference | None
) -> tuple[list[str], Reference]:
    """Cells of a line of the table, and the run as a reference for others."""
    directory = RunDirectory(folder)
    opened = Run(folder)
    test = predict_test(opened)
    summary = json.loads(directory.summary_file.read_text(encoding="utf-8"))
    with Ratings(data) as ratings:
        values = ratings.slab("test", 0, ratings.n_rows).values
    sd = np.sqrt(test.variance)
    last = rmse(values, test.mean)
    exact = exact or Reference(last, sd)
    config = opened.config
    lines = list(directory.metrics())
    twice = (
        config.sampler.name in ("gibbs", "hamcmc")
        or config.sampler.config.gradient == "control-variate"
    )
    passes_of_iteration = (2 if twice else 1) / config.sweep_length
    seconds = lines[-1]["time_s"]
    passes = config.iterations * passes_of_iteration
    near = next(
        (at for at in lines if at["rmse_mean"] and at["rmse_mean"] < exact.rmse + CLOSE), None
    )
    covered = coverage(test.predictive(GaussianRatings, None).pit(values))
    ess = diagnose(opened)["predictions"]["ess_bulk"]
    median = float(np.median(ess)) if ess else float("nan")
    drawn = 1 - config.burn_in / config.iterations
    cells = [
        *(
            f"`{word}`",
            f"{last:.4f}",
            f"{seconds:.1f}",
            f"{passes:,.0f}",
            f"{near['time_s']:.1f}" if near else "not",
        ),
        *(
            f"{summary['tau']:.2f}",
            f"{sd.mean() / exact.sd.mean():.3f}",
            f"{np.corrcoef(sd, exact.sd)[0, 1]:.3f}",
        ),
        *(f"{100 * covered[level]:.1f}" for level in (0.5, 0.9)),
        *(f"{1000 * median / (passes * drawn):.0f}", f"{median / (seconds * drawn):.1f}"),
    ]
    return cells, Reference(last, sd)


def main() -> None:
    """Sample with everything that is asked for."""
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("samplers", nargs="*", default=ALL, metavar="NAME[,SETTING=VALUE...]")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the runs; must not have them yet"
    )
    parser.add_argument(
        "--gibbs",
        type=int,
        default=0,
        metavar="SWEEPS",
        help="of exact Gibbs, a fifth of it burn-in",
    )
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    parsed = parser.parse_intermixed_args(words[:end])
    options = words[end + 1 :]
    say_head(*TITLES)
    runs = [(word, options) for word in parsed.samplers]
    if parsed.gibbs:
        length = [
            f"--iterations={parsed.gibbs}",
            f"--burn-in={parsed.gibbs // 5}",
            "--set=evaluate_every=5",
        ]
        runs.insert(0, ("gibbs", [*options, *length]))
    exact = None
    for word, more in runs:
        folder = parsed.out / word.replace("=", "-").replace(",", "-")
        failure = sample(word, parsed.data, folder, more)
        if failure:
            say(f"`{word}`", failure)
            continue
        cells, reference = line(word, parsed.data, folder, exact)
        exact = exact or (reference if parsed.gibbs else None)
        say(*cells)


if __name__ == "__main__":
    main()
