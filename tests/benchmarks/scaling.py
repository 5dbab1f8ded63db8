"""How far an allocation scales: sweeps through the same ratings on 1, 2, 4, ... of its processes, table and plot.

    python data/synthetic.py ratings.csv && dsgmcmc prepare ratings.csv ratings.h5
    mpirun -n 8 python tests/benchmarks/scaling.py ratings.h5 --out scaling.png
    srun --mpi=pmix python tests/benchmarks/scaling.py ratings.h5 --rank 64 --grid 256      # in a job of Slurm

The sweeps are those of a settled chain, without draws, evaluation and checkpoints: the median of several times ten, of
the slowest process, with the fastest and the slowest. *Waiting* is the mean share of a process's time in exchange and
ordered sums; *sent* is the figure of `sample --dry-run`. Processes that are not measured sleep. The grid is that of the
whole allocation for all numbers of processes, as for a run that is resumed on fewer.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments
from mpi4py import MPI
from support import rest

from dsgmcmc.config.run import build
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.source import targets_of

SETTLED = 50  # sweeps after which metrics are renewed, and means and biases exchanged, at a constant rate
CYCLE = 10  # sweeps after which the updates of a metric repeat


class Sweeps:
    """A chain that only makes sweeps. Collective."""

    def __init__(self, data: Path, settings: dict[str, Any], comm: MPI.Comm) -> None:
        config = build({"iterations": "700sweeps", **settings}).resolved()
        self.ring, self.sampler = Ring(comm, config.grid), config.make_sampler()
        with Ratings(data) as ratings:
            self.costs = Costs.of(config, ratings, comm.size)
            self.target = targets_of(config, ratings, self.ring)(0, self.sampler)
        self.target.reset()
        self.sampler.start(self.target, config.initial_sd)
        self._made = 0
        self.cycle()
        self._made = SETTLED
        self.cycle()

    def cycle(self) -> None:
        """Make ten sweeps."""
        length = self.target.sweep_length
        for _ in range(CYCLE):
            self.sampler.advance(self.target, self._made * length, length)
            self._made += 1

    def seconds(self, repeats: int) -> list[float]:
        """Seconds of a sweep in each of `repeats` cycles; phases of the ring count from zero."""
        self.ring.phases.clear()
        taken = []
        with np.errstate(all="ignore"):
            for _ in range(repeats):
                begin = time.perf_counter()
                self.cycle()
                taken.append((time.perf_counter() - begin) / CYCLE)
        return taken


def measure(data: Path, settings: dict[str, Any], comm: MPI.Comm, repeats: int) -> dict[str, float]:
    """Figures of the processes of `comm`."""
    sweeps = Sweeps(data, settings, comm)
    comm.Barrier()
    seconds = np.max(comm.allgather(sweeps.seconds(repeats)), axis=0)
    waited = sum(sweeps.ring.phases.seconds[name] for name in ("exchange", "reduce"))
    return {
        "processes": comm.size,
        "seconds": float(np.median(seconds)),
        "fastest": float(seconds.min()),
        "slowest": float(seconds.max()),
        "waiting": comm.allreduce(waited) / comm.size / float(seconds.sum()) / CYCLE,
        "sent": sweeps.costs.sent_per_sweep,
    }


def plot(lines: list[dict[str, float]], out: Path) -> None:
    """Draw the speed by the number of processes, beside a perfect one."""
    from matplotlib import pyplot as plt

    processes = [line["processes"] for line in lines]
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.loglog(processes, processes, "--", color="grey", label="perfect")
    axes.loglog(processes, [lines[0]["seconds"] / line["seconds"] for line in lines], "o-", label="measured")
    axes.set_xticks(processes, [str(number) for number in processes])
    axes.set(xlabel="processes", ylabel="speed, times that of one process")
    axes.legend()
    figure.savefig(out, dpi=150)


def main() -> None:
    """Measure, and print a line for each number of processes."""
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path, metavar="DATA.h5", help="ratings file, which all processes see")
    parser.add_argument("--sampler", default="baoab")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--grid", type=int, help="number of blocks; as many as processes, and two at least")
    parser.add_argument("--repeats", type=int, default=5, help="times ten sweeps")
    parser.add_argument("--out", type=Path, help="picture to write; needs matplotlib")
    given, world = parser.parse_args(), MPI.COMM_WORLD
    settings = {"sampler": given.sampler, "rank": given.rank, "grid": given.grid or max(world.size, 2)}
    lines = []
    if world.rank == 0:
        print("processes  a sweep, ms  (fastest, slowest)  efficiency  waiting  sent, MB", flush=True)
    for number in [2**k for k in range(world.size.bit_length()) if 2**k < world.size] + [world.size]:
        comm = world.Split(int(world.rank >= number), world.rank)
        if world.rank < number:
            lines.append(line := measure(given.data, settings, comm, given.repeats))
            if world.rank == 0:
                spread = f"({1e3 * line['fastest']:.2f}, {1e3 * line['slowest']:.2f})"
                efficiency = lines[0]["seconds"] / line["seconds"] / number
                print(
                    f"{number:9}{1e3 * line['seconds']:13.2f}{spread:>20}{efficiency:12.0%}{line['waiting']:9.0%}"
                    f"{line['sent'] / 1e6:10.2f}",
                    flush=True,
                )
        rest(world)
        comm.Free()
    if world.rank == 0 and given.out:
        plot(lines, given.out)


if __name__ == "__main__":
    main()
