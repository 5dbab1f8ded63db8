"""Time to a given RMSE: our samplers and the tools that people pick today, on one file and its own split.

    python tests/benchmarks/rivals.py ml-1m.h5 --out rivals [--processes 2] [--gibbs 400]

Rivals are installed from PyPI into OUT/environment at the first call: SMURFF (Gibbs, threads), myFM (Gibbs, one core)
and LIBMF (a point estimate, several lengths). Of a file with features there are models with these, and with implicit
features, too, and SMURFF's Macau and myFM with both beside them. Ours run under mpirun. Everything runs alone, one
after another, on the same number of cores; seconds are those of sampling, all inclusive, without loading and start-up,
for all alike. With --gibbs also a long run of Gibbs sampling, whose predictive standard deviations the others' are
compared with. Writes rivals.json and rivals.png and prints a table. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from shared import python_with, quietly, triplets

from dsgmcmc.data.ratings import SIDES, open_ratings
from dsgmcmc.diagnostics.scores import coverage, pit
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import RunDirectory

HERE = Path(__file__).resolve().parent
PACKAGES = ["smurff", "myfm", "libmf", "scipy"]
OURS: dict[str, list[str]] = {
    "BAOAB, tau 1.6": ["--sampler", "baoab", "--noise-precision", "1.6"],
    "BAOAB": ["--sampler", "baoab"],
    "BAOAB, own noise": ["--sampler", "baoab", "--noise", "both"],
    "PSGLD": ["--sampler", "psgld"],
    "HAMCMC": ["--sampler", "hamcmc"],
    "SGLD": ["--sampler", "sgld"],
    "Gibbs": ["--sampler", "gibbs"],
}
PLAIN = ["--features", "no"]
OURS_WITH_FEATURES = {
    "BAOAB, own noise, features": ["--noise", "both"],
    "BAOAB, own noise, features, implicit": ["--noise", "both", "--implicit-features", "both"],
}
ALL_OURS = {label: [*given, *PLAIN] for label, given in OURS.items()} | OURS_WITH_FEATURES
LENGTHS = {"Gibbs": "100sweeps"}  # as many as SMURFF makes
RIVALS = ("smurff", "myfm", "libmf")
RIVALS_WITH_FEATURES = ("smurff, features", "myfm, features", "myfm, features, implicit")
EARLY = ["--burn-in", "30sweeps", "--set", "evaluate_every=5sweeps", "--save-draws", "0"]


def export(data: Path, out: Path) -> np.ndarray:
    """Write the split, and features of both sides, as plain arrays for the rivals; the test ratings are returned."""
    arrays: dict[str, Any] = {}
    with open_ratings(data) as ratings:
        for part in ("train", "test"):
            names = (f"{part}_{name}" for name in ("rows", "columns", "values"))
            arrays |= zip(names, triplets(ratings, part), strict=True)
        for side, n in zip(SIDES, (ratings.n_rows, ratings.n_cols), strict=True) if ratings.features else ():
            found = ratings.feature_slab(side, 0, n)
            arrays |= {f"{side}_features_{name}": getattr(found, name) for name in ("indptr", "indices", "values")}
            arrays[f"{side}_features_shape"] = np.array([n, len(found.names)])
        np.savez(out, shape=[ratings.n_rows, ratings.n_cols], mean=ratings.mean, **arrays)
    return arrays["test_values"]


def run_ours(label: str, data: Path, out: Path, processes: int, rank: int, iterations: str) -> dict[str, Any]:
    """Sample with one of our samplers; the curve and the predictions."""
    folder = out / label.replace(", ", "-").replace(" ", "-")
    arguments = ["sample", str(data), "--out", str(folder), "--rank", str(rank), *ALL_OURS[label]]
    arguments += ["--grid", str(max(4, 2 * processes)), "--iterations", iterations, *EARLY]
    quietly(*arguments, processes=processes)
    run = RunDirectory(folder)
    lines = [line for line in run.metrics() if line["rmse_mean"] is not None]
    found = predict_test(Run(run.path))
    summary = json.loads(run.summary_file.read_text(encoding="utf-8"))
    return {
        "curve": [(line["time_s"], line["rmse_mean"]) for line in lines],
        "tau": summary["tau"],
        "mean": found.mean,
        "sd": np.sqrt(found.variance),
        "noise_variance": found.noise_variance,
    }


def run_rival(name: str, python: Path, split: Path, out: Path, rank: int, threads: int) -> dict[str, Any] | None:
    """Run a rival in its own process and environment; None if it fails."""
    result = out / f"{name.replace(', ', '-')}.npz"
    command = [python, HERE / "rivals_run.py", name, split, result, str(rank), str(threads)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    with np.load(result) as arrays:
        found = {key: arrays[key] for key in arrays.files}
    return {**found, "curve": found["curve"].tolist(), "tau": float(found["tau"])}


def describe(
    found: dict[str, Any], ratings: np.ndarray, target: float | None, reference: np.ndarray | None
) -> dict[str, Any]:
    """One line of the table."""
    curve = np.array(found["curve"]).reshape(-1, 2)
    line: dict[str, Any] = {"rmse": float(np.sqrt(np.mean((found["mean"] - ratings) ** 2)))}
    line["seconds"] = float(curve[-1, 0]) if len(curve) else None
    reached = curve[curve[:, 1] <= target, 0] if target is not None else []
    line["seconds_to_target"] = float(reached[0]) if len(reached) else None
    line["tau"] = found["tau"] if np.isfinite(found["tau"]) else None
    if "sd" in found:
        total = found["sd"] ** 2 + found["noise_variance"]
        line["predictive_sd"] = float(found["sd"].mean())
        predicted = Gaussian.predictive_of_moments(Moments(found["mean"], total))
        line["log_predictive_density"] = float(predicted.log_density(ratings).mean())
        line["coverage"] = {str(level): share for level, share in coverage(pit(predicted, ratings)).items()}
        if reference is not None:
            line["sd_ratio_to_gibbs"] = float(np.mean(found["sd"]) / np.mean(reference))
            line["sd_correlation_with_gibbs"] = float(np.corrcoef(found["sd"], reference)[0, 1])
    return line


def show(table: dict[str, dict[str, Any]], target: float | None) -> None:
    """Print the table."""
    print(f"target: RMSE {target:.4f}, SMURFF's end" if target else "no target: SMURFF did not run")
    columns = ("rmse", "seconds", "seconds_to_target", "tau", "predictive_sd", "log_predictive_density")
    columns += ("sd_ratio_to_gibbs", "sd_correlation_with_gibbs")
    print(f"{'':38}" + "".join(f"{name.replace('seconds_to_', 's to ')[:13]:>15}" for name in columns) + "  coverage")
    for label, line in table.items():
        cells = "".join(f"{'-' if line.get(name) is None else format(line[name], '.4f'):>15}" for name in columns)
        inside = " ".join(f"{share:.3f}" for share in line.get("coverage", {}).values())
        print(f"{label:38}{cells}  {inside}")


def draw(curves: dict[str, list], target: float | None, path: Path) -> None:
    """RMSE against seconds."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    for label, curve in curves.items():
        if len(curve):
            seconds, rmse = np.array(curve).T
            ours = label in ALL_OURS
            axes.plot(seconds, rmse, "-" if ours else "--", lw=1.8 if ours else 1.2, label=label)
    if target:
        axes.axhline(target, color="0.6", lw=0.8)
        axes.set_ylim(target - 0.012, target + 0.035)
    axes.set_xscale("log")
    axes.set_xlabel("seconds of sampling")
    axes.set_ylabel("RMSE of the posterior mean, test ratings")
    axes.legend(fontsize=8, ncols=2)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run everything, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="ratings file made by dsgmcmc prepare")
    parser.add_argument("--out", type=Path, default=Path("rivals"))
    parser.add_argument(
        "--environment", type=Path, help="of the rivals, made if it is not there; default OUT/environment"
    )
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--iterations", default="700sweeps")
    parser.add_argument("--only", help="labels, by commas, with ' / ' for a comma of their own")
    parser.add_argument("--gibbs", type=int, default=0, metavar="SWEEPS", help="also run exact Gibbs so long")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with open_ratings(arguments.data) as opened:
        featured = bool(opened.features)
    ours = (*OURS, *(OURS_WITH_FEATURES if featured else ()))
    rivals = (*RIVALS, *(RIVALS_WITH_FEATURES if featured else ()))
    wanted = [label.replace(" / ", ", ") for label in arguments.only.split(",")] if arguments.only else [*ours, *rivals]
    ratings = export(arguments.data, arguments.out / "split.npz")
    found: dict[str, dict[str, Any] | None] = {}
    for label in (label for label in ours if label in wanted):
        length = LENGTHS.get(label, arguments.iterations)
        found[label] = run_ours(label, arguments.data, arguments.out, arguments.processes, arguments.rank, length)
    if set(wanted) & set(rivals):
        python = python_with(arguments.environment or arguments.out / "environment", *PACKAGES)
        for name in (name for name in rivals if name in wanted):
            found[name] = run_rival(
                name, python, arguments.out / "split.npz", arguments.out, arguments.rank, arguments.processes
            )
    if arguments.gibbs:
        long, length = arguments.out / "long", f"{arguments.gibbs}sweeps"
        found["Gibbs, long"] = run_ours("Gibbs", arguments.data, long, arguments.processes, arguments.rank, length)
    complete = {label: result for label, result in found.items() if result is not None}
    smurff = complete.get("smurff")
    target = smurff["curve"][-1][1] if smurff else None
    reference = complete["Gibbs, long"]["sd"] if arguments.gibbs else None
    table = {label: describe(result, ratings, target, reference) for label, result in complete.items()}
    show(table, target)
    (arguments.out / "rivals.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    draw({label: result["curve"] for label, result in complete.items()}, target, arguments.out / "rivals.png")


if __name__ == "__main__":
    main()
