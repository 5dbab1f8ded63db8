"""What checkpoints cost: time of the same sampling with one every so many seconds, and with none.

    python tests/benchmarks/checkpoint_cost.py DATA.h5 [--every 60] [--seconds 180] [--rank 32] [--processes 2]

Runs both ways in turn, `--repeats` times. Prints JSON: the cost as a fraction of the sampling time, and of the
processor time (on a busy machine the better figure, with one process, which does not wait for others); the peak memory
of both, which shows that no second copy of the data is made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from isolated import processor_seconds

TRIAL = 100  # iterations from which one learns how many take so long


def sample(data: Path, out: Path, every: str, iterations: int, rank: int, processes: int) -> dict[str, Any]:
    """Sample so many iterations; the run's summary."""
    launcher = ["mpirun", "-n", str(processes)] if processes > 1 else []
    options = [f"--checkpoint-every={every}", f"--iterations={iterations}", f"--rank={rank}", "--burn-in=100000000"]
    command = [*launcher, sys.executable, "-m", "dsgmcmc", "sample", str(data), "--out", str(out), *options]
    before = processor_seconds()
    subprocess.run([*command, "--set=evaluate_every=100000000"], check=True, stdout=subprocess.DEVNULL)
    return {**json.loads((out / "summary.json").read_text()), "cpu_seconds": processor_seconds() - before}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between checkpoints")
    parser.add_argument("--seconds", type=float, default=180.0, help="about how long each run samples")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dir", type=Path, help="where to write; by default the system's temporary directory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        trial = sample(given.data, Path(folder) / "trial", "100h", TRIAL, given.rank, given.processes)
        busy = trial["seconds_sampling"] - trial["phases"]["checkpoint"]["max"] - trial["phases"]["evaluate"]["max"]
        iterations = max(TRIAL, int(given.seconds * TRIAL / busy))
        runs: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
        for number in range(given.repeats):
            for name, every in (("without", "100h"), ("with", f"{given.every:g}s")):
                out = Path(folder) / f"{name}-{number}"
                runs[name].append(sample(given.data, out, every, iterations, given.rank, given.processes))
    # the last checkpoint is written in both, and only there does the chain wait for it
    seconds = {name: statistics.median(run["seconds_sampling"] for run in several) for name, several in runs.items()}
    cpu = {name: statistics.median(run["cpu_seconds"] for run in several) for name, several in runs.items()}
    peak = {name: max(max(run["peak_rss_bytes"]) for run in several) for name, several in runs.items()}
    print(
        json.dumps(
            {
                "cost": seconds["with"] / seconds["without"] - 1,
                "cpu_cost": cpu["with"] / cpu["without"] - 1,
                "iterations": iterations,
                "checkpoints": int(seconds["with"] / given.every),
                "seconds": seconds,
                "cpu_seconds": cpu,
                "phase_seconds": {n: [run["phases"]["checkpoint"]["max"] for run in s] for n, s in runs.items()},
                "peak_rss_bytes": peak,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
