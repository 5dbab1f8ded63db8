"""Strong scaling to more processes than there are cores: time is dilated, so that D processes share one core fairly.

    python tests/benchmarks/dilated.py                                          # as root
    python tests/benchmarks/dilated.py --processes 1,2 --dilations 1,8,16       # dilated beside undilated

A process sleeps D - 1 seconds for every second that it has computed (`dilated.c`), nodes are namespaces, and the links
between them D times slower and later (`network.py`): computation, exchange and their overlap keep their proportions.
All times are printed divided by D. With D = 1 nothing is preloaded, and processes that wait are busy. *Late* is what a
sweep took besides work and waiting: processors that did not come to it in time.

A dilated process finds its caches cold after every sleep: calls take longer than on processes that do not sleep.

Sweeps are those of a settled chain; the fastest of several times ten counts. Needs Open MPI with `mpicc`, `ip netns`,
and a machine without other work. Not part of the tests.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from network import Network
from shared import quietly
from synthetic import SyntheticOptions, generate

USERS, ITEMS = 6040, 3706  # of a million ratings, as in MovieLens; items do not grow with the ratings
HEADINGS = ("P", "nodes", "B", "a sweep, ms", "waiting", "late")


def clock_of(dilation: float, preloaded: str) -> tuple[Callable[[], float], ctypes.CDLL | None]:
    """Seconds, which begin to pass more slowly when it is first looked at; and what makes them do so."""
    library = ctypes.CDLL(preloaded) if preloaded else None

    def clock() -> float:
        if library:
            library.dilate(ctypes.c_double(dilation))
        return perf_counter() / dilation

    return clock, library


def worker(data: str, settings: dict[str, Any], dilation: float, preloaded: str, cycles: int, at_cells: bool) -> None:
    """Time sweeps, and print seconds of one: of the slowest process, and how long all have waited and been late."""
    from mpi4py import MPI
    from scaling import CYCLE, Sweeps

    comm = MPI.COMM_WORLD
    chain = Sweeps(Path(data), settings, comm)
    clock, library = clock_of(dilation, preloaded)

    circulation = chain.target.circulation
    cell = circulation._cell

    def after_a_sleep(*blocks: Any) -> Any:
        MPI.Request.Testall([])
        return cell(*blocks)

    if at_cells:
        circulation._cell = after_a_sleep

    def counted() -> Any:
        if library is None:
            return np.full(2, np.nan)
        waited, worked = (ctypes.c_double.in_dll(library, name).value for name in ("waited", "worked"))
        return np.array([waited / dilation, clock() - waited / dilation - worked])

    chain.cycle()
    comm.Barrier()
    before = counted()
    seconds = chain.seconds(cycles, clock)
    each = comm.gather((seconds, (counted() - before) / (cycles * CYCLE)))
    if each:
        slowest = np.max([times for times, _ in each], axis=0)
        waited, late = np.mean([means for _, means in each], axis=0)
        print(json.dumps({"seconds": slowest.min(), "waited": waited, "late": late}))


def made(folder: Path, millions: float) -> Path:
    """A ratings file of so many million synthetic ratings."""
    raw, out = folder / f"{millions:g}.parquet", folder / f"{millions:g}.h5"
    if not out.exists():
        generate(raw, SyntheticOptions(round(USERS * millions), ITEMS, round(millions * 1e6)))
        quietly("prepare", raw, out, "--test-fraction=0")
        raw.unlink()
    return out


def measure(network: Network, data: Path, library: Path, options: argparse.Namespace) -> None:
    """Print a line for each rate, dilation and number of processes."""
    for rate, dilation in product(numbers(options.rates), numbers(options.dilations)):
        print(f"{rate:g} MB a second, {options.latency:g} microseconds, times divided by {dilation:g}", flush=True)
        print("".join(f"{heading:>13}" for heading in HEADINGS))
        network.rate, network.latency = 1e6 * rate / dilation, 1e-6 * options.latency * dilation
        preload = str(library) if dilation > 1 else ""
        for processes in map(int, numbers(options.processes)):
            each, grid = min(options.each, processes), options.grid or max(processes, 2)
            settings = {"sampler": options.sampler, "rank": options.rank, "grid": grid}
            given = json.dumps([str(data), settings, dilation, preload, options.cycles, options.at_cells])
            command = [sys.executable, __file__, "--worker", given]
            seen = json.loads(network.mpirun(processes, each, command, preload).splitlines()[-1])
            line = [str(processes), f"{processes // each} x {each}", str(grid)]
            line += [f"{1e3 * seen[name]:.2f}" for name in ("seconds", "waited", "late")]
            print("".join(f"{word:>13}" for word in line), flush=True)


def numbers(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [float(each) for each in text.split(",")]


def main() -> None:
    """Read the command line; this file starts itself as what runs on the nodes, too."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", default="1,2,4,8,16")
    parser.add_argument("--each", type=int, default=4, help="processes of a node")
    parser.add_argument("--dilations", default="16")
    parser.add_argument("--rates", default="1250", help="MB a second of a node's link")
    parser.add_argument("--latency", type=float, default=50, help="microseconds between nodes")
    parser.add_argument("--millions", type=float, default=20, help="of synthetic ratings")
    parser.add_argument("--data", type=Path, help="a ratings file, in place of synthetic ratings")
    parser.add_argument("--sampler", default="baoab")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--grid", type=int, help="number of blocks; as many as processes, and two at least")
    parser.add_argument("--cycles", type=int, default=3, help="times ten sweeps")
    parser.add_argument("--at-cells", action="store_true", help="sleep at every cell, which cools the caches")
    parser.add_argument("--folder", type=Path, help="where the ratings are kept; made anew without")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*json.loads(options.worker))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        library = Path(temporary) / "dilated.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["mpicc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
        data = options.data or made(folder, options.millions)
        network = Network(max(int(max(numbers(options.processes))) // options.each, 1), 1e9)
        try:
            measure(network, data, library, options)
        finally:
            network.close()


if __name__ == "__main__":
    main()
