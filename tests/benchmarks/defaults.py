"""How long a run is by default, against fixed lengths and other accuracies: the table of docs/defaults.md.

    python tests/benchmarks/defaults.py DATA.h5... [--rank 32] [--seed 0] [--options "--noise both"]

Prints, for every data file and length: sweeps, processor seconds (the better figure on a busy machine) as a multiple of
those of 700 sweeps, scores of the test ratings, and how well 95 % of the followed predictions are known: the ESS that
the run tells of itself, the ESS that a run of 5,000 sweeps with another seed gives one of this length, and R-hat.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dsgmcmc.diagnostics.accuracy import accuracy
from dsgmcmc.diagnostics.calibration import calibration
from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import predictions

LENGTHS = {
    "700 sweeps": ["--iterations=700sweeps"],
    "default": [],
    "`--until ess=400`": ["--until=ess=400"],
    "`--until rhat=1.01`": ["--until=rhat=1.01"],
}
LONG = ["--iterations=5000sweeps"]


def sample(data: Path, out: Path, options: list[str]) -> dict[str, Any] | None:
    """Sample on one process; what came out, or None if it diverged."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = ["sample", str(data), "--out", str(out), "--save-draws=0", *options]
    if run_dsgmcmc(arguments, stdout=subprocess.DEVNULL).returncode:
        return None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = Run(out)
    scores, (_, values) = calibration(run), predictions(run)
    config = run.config
    return {
        "sweeps": run.traces[0]["iteration"][-1, 0] / config.sweep_length,
        "seconds": after.ru_utime - before.ru_utime,
        "rmse": scores["rmse"],
        "density": scores["log_predictive_density"],
        "inside": scores["coverage"][0.9],
        "draws": values.shape[0] * values.shape[1],
        **accuracy(values, len(config.make_sampler().positions), ["ess", "rhat"]),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--options", default="", help="further options of dsgmcmc sample")
    given = parser.parse_args()
    print("| data | length | sweeps | time | RMSE | log density | in 90 % | ESS | of a longer run | R-hat |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for data in given.data:
        options = [f"--rank={given.rank}", *shlex.split(given.options)]
        with tempfile.TemporaryDirectory() as folder:
            long = sample(data, Path(folder) / "long", [*LONG, f"--seed={given.seed + 1}", *options])
            found = {
                name: sample(data, Path(folder) / str(number), [*length, f"--seed={given.seed}", *options])
                for number, (name, length) in enumerate(LENGTHS.items())
            }
        for name, row in found.items():
            if row is None:
                print(f"| {data.stem} | {name} | diverged | | | | | | | |", flush=True)
                continue
            first = found["700 sweeps"]
            share = f"{row['seconds'] / first['seconds']:.1f}" if first else ""
            other = f"{long['ess'] * row['draws'] / long['draws']:.0f}" if long else ""
            print(
                f"| {data.stem} | {name} | {row['sweeps']:,.0f} | {share} | {row['rmse']:.4f} | {row['density']:.4f} | "
                f"{row['inside']:.1%} | {row['ess']:.0f} | {other} | {row['rhat']:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
