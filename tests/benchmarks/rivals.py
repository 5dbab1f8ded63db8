"""Time to a given RMSE: our samplers and the tools that people pick today, on one file and its own split.

    python tests/benchmarks/rivals.py ml-1m.h5 --out rivals [--processes 2] [--gibbs 400]

Rivals are installed from PyPI into OUT/environment at the first call: SMURFF (Gibbs, threads), myFM (Gibbs, one core)
and LIBMF (a point estimate, several lengths). Of a file with features there are models with these, and with implicit
features, too, and SMURFF's Macau and myFM with both beside them. Ours run under mpirun. Everything runs alone, one
after another, on the same number of cores; seconds are those of sampling, all inclusive, without loading and start-up,
for all alike. With --gibbs also a long run of Gibbs sampling, whose predictive standard deviations the others' are
compared with. Prints a table. Not part of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from shared import arguments, python_with, quietly, triplets

from dsgmcmc.data.ratings import SIDES, open_ratings
from dsgmcmc.diagnostics.scores import coverage, pit
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import RunDirectory

HERE = Path(__file__).resolve().parent
RANK = 32
PACKAGES = ["smurff", "myfm", "libmf", "scipy"]
#: Ours, with the options of `sample`; those of which features are no part first.
OURS = {
    "BAOAB, tau 1.6": "--features no --noise-precision 1.6",
    "BAOAB": "--features no",
    "BAOAB, own noise": "--features no --noise both",
    "PSGLD": "--features no --sampler psgld",
    "HAMCMC": "--features no --sampler hamcmc",
    "SGLD": "--features no --sampler sgld",
    "Gibbs": "--features no --sampler gibbs",
    "BAOAB, own noise, features": "--noise both",
    "BAOAB, own noise, features, implicit": "--noise both --implicit-features both",
}
RIVALS = ("smurff", "myfm", "libmf", "smurff, features", "myfm, features", "myfm, features, implicit")
LENGTHS = {"Gibbs": "100sweeps"}  # as many as SMURFF makes
EARLY = ["--burn-in", "30sweeps", "--set", "evaluate_every=5sweeps", "--save-draws", "0"]


def export(data: Path, out: Path) -> tuple[np.ndarray, bool]:
    """Write the split as plain arrays for the rivals; returns the test ratings, and whether there are features."""
    arrays: dict[str, Any] = {}
    with open_ratings(data) as ratings:
        for part in ("train", "test"):
            names = (f"{part}_{name}" for name in ("rows", "columns", "values"))
            arrays |= zip(names, triplets(ratings, part), strict=True)
        for side, n in zip(SIDES, (ratings.n_rows, ratings.n_cols), strict=True) if ratings.features else ():
            found = ratings.feature_slab(side, 0, n)
            arrays |= {f"{side}_features_{name}": getattr(found, name) for name in ("indptr", "indices", "values")}
            arrays[f"{side}_features_shape"] = np.array([n, len(found.names)])
        np.savez(out / "split.npz", shape=[ratings.n_rows, ratings.n_cols], mean=ratings.mean, **arrays)
        return arrays["test_values"], bool(ratings.features)


def run_ours(label: str, data: Path, out: Path, processes: int, iterations: str) -> dict[str, Any]:
    """Sample with one of our samplers; the curve and the predictions."""
    folder = out / label.replace(", ", "-").replace(" ", "-")
    options = ["sample", str(data), "--out", str(folder), "--rank", str(RANK), *OURS[label].split()]
    options += ["--grid", str(max(4, 2 * processes)), "--iterations", iterations, *EARLY]
    quietly(*options, processes=processes)
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


def run_rival(name: str, python: Path, out: Path, threads: int) -> dict[str, Any] | None:
    """Run a rival in its own process and environment; None if it fails."""
    result = out / f"{name.replace(', ', '-')}.npz"
    command = [python, HERE / "rivals_run.py", name, out / "split.npz", result, str(RANK), str(threads)]
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


def main() -> None:
    """Run everything, one after another."""
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path, help="ratings file made by dsgmcmc prepare")
    parser.add_argument("--out", type=Path, default=Path("rivals"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--iterations", default="700sweeps")
    parser.add_argument("--only", help="labels, by commas, with ' / ' for a comma of their own")
    parser.add_argument("--gibbs", type=int, default=0, metavar="SWEEPS", help="also run exact Gibbs so long")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ratings, featured = export(given.data, given.out)
    wanted = [label for label in (*OURS, *RIVALS) if featured or "features" not in label]
    if given.only:
        wanted = [label.replace(" / ", ", ") for label in given.only.split(",")]
    found: dict[str, dict[str, Any] | None] = {}
    for label in wanted:
        if label in OURS:
            length = LENGTHS.get(label, given.iterations)
            found[label] = run_ours(label, given.data, given.out, given.processes, length)
        else:
            python = python_with(given.out / "environment", *PACKAGES)
            found[label] = run_rival(label, python, given.out, given.processes)
    if given.gibbs:
        found["Gibbs, long"] = run_ours(
            "Gibbs", given.data, given.out / "long", given.processes, f"{given.gibbs}sweeps"
        )
    complete = {label: result for label, result in found.items() if result is not None}
    target = complete["smurff"]["curve"][-1][1] if "smurff" in complete else None
    reference = complete["Gibbs, long"]["sd"] if given.gibbs else None
    show({label: describe(result, ratings, target, reference) for label, result in complete.items()}, target)


if __name__ == "__main__":
    main()
