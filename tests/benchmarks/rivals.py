"""Time to a given RMSE: our samplers and other tools, on one file and its split.

    python tests/benchmarks/rivals.py ml-1m.h5 --out rivals [--processes 2] [--gibbs 400]

Rivals are installed from PyPI into OUT/environment at the first call: SMURFF (Gibbs, threads), myFM (Gibbs, one core)
and LIBMF (a point estimate, several lengths). For a file with features there are models with features, and with
implicit features, too, and SMURFF's Macau and myFM with both. Ours run under mpirun. Everything runs alone, one after
another, on the same number of cores; seconds are those of sampling, without loading and start-up. With --gibbs also a
long run of Gibbs sampling, with whose predictive standard deviations the others' are compared. Prints a table in
Markdown. Not part of the tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, export, python_with, quietly, run_program, say, say_head

from dsgmcmc.diagnostics.scores import coverage, pit, rmse
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import RunDirectory

RANK = 32
PACKAGES = ["smurff", "myfm", "libmf", "scipy"]
#: Ours, with the options of `sample`; models without features first.
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
EARLY = ("--burn-in", "30sweeps", "--set", "evaluate_every=5sweeps", "--save-draws", "0")


def run_ours(label: str, data: Path, out: Path, processes: int, iterations: str) -> dict[str, Any]:
    """Sample with one of our samplers; the curve and the predictions."""
    folder = out / label.replace(", ", "-").replace(" ", "-")
    options = (*OURS[label].split(), f"--grid={max(4, 2 * processes)}", f"--iterations={iterations}", *EARLY)
    quietly("sample", data, "--out", folder, f"--rank={RANK}", *options, processes=processes)
    run = RunDirectory(folder)
    test = predict_test(Run(folder))
    return {
        "curve": [(line["time_s"], line["rmse_mean"]) for line in run.metrics() if line["rmse_mean"] is not None],
        "tau": json.loads(run.summary_file.read_text(encoding="utf-8"))["tau"],
        "mean": test.mean,
        "sd": np.sqrt(test.variance),
        "predictive": test.predictive(Gaussian, None),
    }


def run_rival(name: str, out: Path, threads: int) -> dict[str, Any]:
    """Run a rival in its own process and environment; the curve and the predictions."""
    python, result = python_with(out / "environment", *PACKAGES), out / f"{name.replace(', ', '-')}.npz"
    script = Path(__file__).with_name("rivals_run.py")
    run_program(python, script, name, out / "split.npz", result, RANK, threads)
    with np.load(result) as arrays:
        return {"tau": None, **arrays}


def line(results: dict[str, Any], values: np.ndarray, target: float, gibbs: np.ndarray | None) -> list[str]:
    """A line of the table."""
    curve = np.reshape(results["curve"], (-1, 2))
    reached = curve[curve[:, 1] <= target, 0]
    numbers = [rmse(values, results["mean"]), curve[-1, 0], reached[0] if len(reached) else None, results["tau"]]
    covered: dict[float, float] = {}
    if "sd" in results:
        sd, predicted = results["sd"], results["predictive"]
        numbers.append(predicted.log_density(values).mean())
        if gibbs is not None:
            numbers += [sd.mean() / gibbs.mean(), np.corrcoef(sd, gibbs)[0, 1]]
        covered = coverage(pit(predicted, values))
    cells = ["-" if number is None else f"{number:.4f}" for number in [*numbers, *[None] * (7 - len(numbers))]]
    return [*cells, " / ".join(f"{share:.3f}" for share in covered.values()) or "-"]


def main() -> None:
    """Run everything, one after another."""
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path, help="ratings file made by dsgmcmc prepare")
    parser.add_argument("--out", type=Path, default=Path("rivals"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--iterations", default="700sweeps")
    parser.add_argument("--only", help="labels, by commas, with ' / ' for a comma in a label")
    parser.add_argument("--gibbs", type=int, default=0, metavar="SWEEPS", help="also run exact Gibbs so long")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    arrays = export(given.data, given.out / "split.npz")
    labels = [label for label in (*OURS, *RIVALS) if "users_features" in arrays or "features" not in label]
    if given.only:
        labels = [label.replace(" / ", ", ") for label in given.only.split(",")]
    results: dict[str, dict[str, Any]] = {}
    for label in labels:
        try:
            if label in OURS:
                length = LENGTHS.get(label, given.iterations)
                results[label] = run_ours(label, given.data, given.out, given.processes, length)
            else:
                results[label] = run_rival(label, given.out, given.processes)
        except RuntimeError as error:
            print(f"{label} {error}", file=sys.stderr)
    gibbs, target, end = None, -np.inf, "the end of SMURFF"
    if given.gibbs:
        long = run_ours("Gibbs", given.data, given.out / "long", given.processes, f"{given.gibbs}sweeps")
        results["Gibbs, long"], gibbs = long, long["sd"]
    if "smurff" in results:
        target = results["smurff"]["curve"][-1][1]
        end = f"RMSE {target:.4f}, {end}"
    titles = ("RMSE", "seconds", f"until {end}", "tau", "log predictive density", "sd / Gibbs", "correlation")
    say_head("", *titles, "50 / 80 / 90 / 95 % intervals hold")
    for label, result in results.items():
        say(label, *line(result, arrays["test_values"], target, gibbs))


if __name__ == "__main__":
    main()
