"""Samplers and metrics on one file: whether they are calibrated, and how many independent predictions they make.

    python tests/benchmarks/sampler_quality.py ml-100k.h5 --out quality --gibbs 1000 baoab sghmc sgrld
    python tests/benchmarks/sampler_quality.py ml-1m.h5 --out quality baoab baoab,metric=kronecker -- --rank 64

A word is a sampler and settings of it; what follows ``--`` are options of every ``dsgmcmc sample``. Each is sampled
alone on one process, one after another. With --gibbs the exact sampler of the tests runs first, on the same model and
split, and predictive standard deviations of test ratings are compared with its: mean(sd) / mean(sd of Gibbs), and their
correlation. ESS is the median over the followed predictions, for a thousand sweeps and a second. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics.convergence import diagnose
from dsgmcmc.diagnostics.scores import coverage
from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.posterior.heldout import test_predictions
from dsgmcmc.posterior.run import open_run
from dsgmcmc.storage.rundir import RunDirectory

HEADER = f"{'':44}  RMSE    tau     sd   sd/Gibbs  corr.  50 %   90 %   ESS/1000 sweeps  ESS/s  sweeps/s"


def reference(data: Path, rank: int, draws: int) -> tuple[np.ndarray, str]:
    """Predictive standard deviations by exact Gibbs, and its line of the table."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
    from gibbs import from_ratings, gibbs

    train, test, shape = from_ratings(data)
    found = gibbs(train, test, shape, rank=rank, sweeps=draws + 50, burn_in=50)
    covered = coverage(test[2], found.mean, found.sd**2 + found.noise_variance)
    line = f"{found.rmse_mean:.4f}  {found.tau.mean():.3f}  {found.sd.mean():.4f}  1.000  1.000"
    return found.sd, f"{line}  {100 * covered[0.5]:.1f}  {100 * covered[0.9]:.1f}"


def run(word: str, data: Path, folder: Path, options: list[str], exact: np.ndarray | None) -> str:
    """Sample, and make a line of the table."""
    name, *settings = word.split(",")
    arguments = ["sample", str(data), "--out", str(folder), "--sampler", name, *options]
    arguments += [part for setting in settings for part in ("--set", f"sampler.{setting}")]
    done = run_dsgmcmc(arguments, 1, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1]
    directory, opened = RunDirectory(folder), open_run(folder)
    found, summary = test_predictions(directory), json.loads(directory.summary_file.read_text(encoding="utf-8"))
    with open_ratings(data) as ratings:
        values = ratings.slab("test", 0, ratings.n_rows)[2]
    sd = np.sqrt(found.variance)
    covered = coverage(values, found.mean, found.variance + found.noise_variance)
    ratio = f"{sd.mean() / exact.mean():.3f}  {np.corrcoef(sd, exact)[0, 1]:.3f}" if exact is not None else "-  -"
    config, seconds = opened.config, list(directory.metrics())[-1]["time_s"]
    sweeps = config.iterations / config.sweep_length
    sampled = (config.iterations - config.burn_in) / config.sweep_length
    ess = diagnose(opened)["predictions"]["ess_bulk"]
    per_sweep = float(np.median(ess)) / sampled if ess else float("nan")
    rmse = float(np.sqrt(np.mean((found.mean - values) ** 2)))
    half, most = 100 * covered[0.5], 100 * covered[0.9]
    return (
        f"{rmse:.4f}  {summary['tau']:.3f}  {sd.mean():.4f}  {ratio}  {half:.1f}  {most:.1f}"
        f"  {1000 * per_sweep:.0f}  {per_sweep * sweeps / seconds:.1f}  {sweeps / seconds:.0f}"
    )


def main() -> None:
    """Sample with everything that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("samplers", nargs="+", metavar="NAME[,SETTING=VALUE...]")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs; must not have them yet")
    parser.add_argument("--gibbs", type=int, default=0, metavar="DRAWS", help="draws of exact Gibbs, at the same rank")
    given, options = sys.argv[1:], []
    if "--" in given:
        given, options = given[: given.index("--")], given[given.index("--") + 1 :]
    arguments = parser.parse_args(given)
    rank = int(options[options.index("--rank") + 1]) if "--rank" in options else 32
    print(HEADER)
    exact = None
    if arguments.gibbs:
        exact, line = reference(arguments.data, rank, arguments.gibbs)
        print(f"{'exact Gibbs':44}  {line}", flush=True)
    for word in arguments.samplers:
        folder = arguments.out / word.replace("=", "-").replace(",", "-")
        print(f"{word:44}  {run(word, arguments.data, folder, options, exact)}", flush=True)


if __name__ == "__main__":
    main()
