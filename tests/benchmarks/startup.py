"""What a person waits for before anything is computed.

    python tests/benchmarks/startup.py ml-1m.h5

prints, as medians of repetitions that take turns,

- seconds from the command to the end of the first sweep of ``mpirun -n 2 dsgmcmc sample``, with kernels in the cache,
  and with nothing compiled; aims at 1.0 and 6;
- wall seconds of ``predict`` and ``recommend`` of one user, ``info`` and ``--help``; aims at 0.7, 0.8, 0.7 and 0.25;
- what the start of a process is made of.

Modules are compiled beforehand, as those of an installed package are. Seconds mean something on a quiet machine only.
Not part of the tests.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dsgmcmc.parallel.mpirun import find_mpirun, openmpi_environment
from dsgmcmc.posterior.run import Run

#: Steps of a process before it samples, in this order.
STEPS = {
    "MPI": "from dsgmcmc.parallel.comm import world_comm; world_comm()",
    "NumPy": "import numpy",
    "Numba": "import dsgmcmc.kernels.compiler",
    "HDF5": "import dsgmcmc.data.ratings",
    "samplers": "from dsgmcmc.config.layers import build; build({})",
    "first kernel": "from numpy import uint32, zeros; from dsgmcmc.kernels.philox import philox4x32; "
    "philox4x32(zeros((1, 4), uint32), zeros(2, uint32))",
}
TIMED = """
import json, time
from dsgmcmc.parallel.machine import seconds_since_start
seconds = {"Python": seconds_since_start()}
for name, step in %r.items():
    begin = time.perf_counter()
    exec(step)
    seconds[name] = time.perf_counter() - begin
print(json.dumps(seconds))
"""
SHORT = ("--iterations", "40sweeps", "--burn-in", "10sweeps")


def command(*arguments: str | Path, processes: int = 1, **environment: str) -> float:
    """Wall seconds of a ``dsgmcmc`` command."""
    launcher = [find_mpirun() or "mpirun", "-n", str(processes)] if processes > 1 else []
    begin = time.perf_counter()
    subprocess.run(
        [*launcher, sys.executable, "-m", "dsgmcmc", *map(str, arguments)],
        env={**openmpi_environment(oversubscribe=True), **os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - begin


def first_sweep(data: Path, out: Path, processes: int, **environment: str) -> dict[str, float]:
    """Seconds until the first sweep of a new run, in which kernels are compiled or loaded, is done."""
    command("sample", data, "--out", out, *SHORT, processes=processes, **environment)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return {"until the first sweep is done": summary["seconds_startup"]}


def measure(data: Path, processes: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of everything, `repeats` of each, by name."""
    seconds: dict[str, list[float]] = {}

    def note(what: str, found: dict[str, float]) -> None:
        for name, value in found.items():
            seconds.setdefault(f"{what}: {name}", []).append(value)

    with tempfile.TemporaryDirectory(prefix="dsgmcmc-bench-") as name:
        folder = Path(name)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        run, pairs = folder / "run", folder / "pairs.csv"
        command("sample", data, "--out", run, *SHORT, processes=processes)
        opened = Run(run)
        user, item = opened.users.ids[0], opened.items.ids[0]
        with pairs.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("user", "item"), (user, item)])
        commands: dict[str, tuple[str | Path, ...]] = {
            "predict": ("predict", run, pairs),
            "recommend": ("recommend", run, "--user", str(user)),
            "info": ("info", run),
            "--help": ("--help",),
        }
        for line in commands.values():
            command(*line)  # compiles
        for number in range(repeats):
            note("sample, warm", first_sweep(data, folder / f"warm-{number}", processes))
            fresh = {"DSGMCMC_CACHE_DIR": str(folder / f"cache-{number}")}
            note("sample, cold", first_sweep(data, folder / f"cold-{number}", processes, **fresh))
            for name, line in commands.items():
                note(name, {"wall": command(*line)})
            note("a process", json.loads(subprocess.check_output([sys.executable, "-c", TIMED % STEPS], text=True)))
    return seconds


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA.h5", help="ratings file")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for name, values in measure(given.data, given.processes, given.repeats).items():
        print(f"{name:40} {statistics.median(values):6.2f} s   ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
