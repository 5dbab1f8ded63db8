"""How far an allocation scales: sweeps through the same ratings on 1, 2, 4, ... of its processes,
table and plot.

    python data/synthetic.py ratings.csv && dsgmcmc prepare ratings.csv ratings.h5
    mpirun -n 8 python tests/benchmarks/scaling.py ratings.h5 --out scaling.png
    srun --mpi=pmix python tests/benchmarks/scaling.py ratings.h5 --grid 256  # in a job of Slurm

The sweeps are those of a settled chain, without draws, evaluation and checkpoints: the median of
several times ten, of the slowest process, with the fastest and the slowest. *Waiting* is the mean
share of a process's time in exchange and ordered sums; *sent* is the figure of `sample --dry-run`.
Processes that are not measured sleep. The grid is that of the whole allocation for all numbers of
processes, as for a run that is resumed on fewer.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, say, say_head
from mpi4py import MPI
from support import rest

from dsgmcmc.config.run import build
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.source import targets_of

SETTLED = (
    50  # sweeps after which metrics are renewed, and means and biases exchanged, at a constant rate
)
CYCLE = 10  # sweeps after which the updates of a metric repeat


def measure(data: Path, settings: dict[str, Any], comm: MPI.Comm, repeats: int) -> dict[str, float]:
    """Figures of the processes of `comm`, whose chain only makes sweeps. Collective."""
    config = build({"iterations": "700sweeps", **settings}).resolved()
    ring = Ring(comm, config.grid)
    sampler = config.make_sampler()
    with Ratings(data) as ratings:
        costs = Costs.estimate(config, ratings, comm.size)
        target = targets_of(config, ratings, ring)(0, sampler)
    target.reset()
    sampler.start(target, config.initial_sd)
    length = target.sweep_length
    cycles = []
    for first in (0, *range(SETTLED, SETTLED + (repeats + 1) * CYCLE, CYCLE)):
        begin = time.perf_counter()
        with np.errstate(all="ignore"):
            for sweep in range(first, first + CYCLE):
                sampler.advance(target, sweep * length, length)
        cycles.append((time.perf_counter() - begin) / CYCLE)
        if first == SETTLED:  # what follows is measured
            ring.phases.clear()
            comm.Barrier()
    seconds = np.max(comm.allgather(cycles[2:]), axis=0)
    waited = sum(ring.phases.seconds[name] for name in ("exchange", "reduce"))
    return {
        "processes": comm.size,
        "seconds": float(np.median(seconds)),
        "fastest": float(seconds.min()),
        "slowest": float(seconds.max()),
        "waiting": comm.allreduce(waited) / comm.size / float(seconds.sum()) / CYCLE,
        "sent": costs.sent_per_sweep,
    }


def plot(lines: list[dict[str, float]], out: Path) -> None:
    """Draw the speed by the number of processes, beside a perfect one."""
    from matplotlib import pyplot as plt

    processes = [line["processes"] for line in lines]
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.loglog(processes, processes, "--", color="grey", label="perfect")
    axes.loglog(
        processes, [lines[0]["seconds"] / line["seconds"] for line in lines], "o-", label="measured"
    )
    axes.set_xticks(processes, [str(number) for number in processes])
    axes.set(xlabel="processes", ylabel="speed, times that of one process")
    axes.legend()
    figure.savefig(out, dpi=150)


def main() -> None:
    """Measure, and print a line for each number of processes."""
    parser = arguments(__doc__)
    parser.add_argument(
        "data", type=Path, metavar="DATA.h5", help="ratings file, which all processes see"
    )
    parser.add_argument("--sampler", default="baoab")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument(
        "--grid", type=int, help="number of blocks; as many as processes, and two at least"
    )
    parser.add_argument("--repeats", type=int, default=5, help="times ten sweeps")
    parser.add_argument("--out", type=Path, help="picture to write; needs matplotlib")
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    settings = {
        "sampler": options.sampler,
        "rank": options.rank,
        "grid": options.grid or max(world.size, 2),
    }
    lines = []
    if world.rank == 0:
        say_head(
            "processes", "a sweep, ms", "fastest, slowest", "efficiency", "waiting", "sent, MB"
        )
    for number in [2**k for k in range(world.size.bit_length()) if 2**k < world.size] + [
        world.size
    ]:
        comm = world.Split(int(world.rank >= number), world.rank)
        if world.rank < number:
            lines.append(line := measure(options.data, settings, comm, options.repeats))
            if world.rank == 0:
                times = [f"{1e3 * line[name]:.2f}" for name in ("seconds", "fastest", "slowest")]
                efficiency = lines[0]["seconds"] / line["seconds"] / number
                shares = f"{efficiency:.0%}", f"{line['waiting']:.0%}"
                say(number, times[0], ", ".join(times[1:]), *shares, f"{line['sent'] / 1e6:.2f}")
        rest(world)
        comm.Free()
    if world.rank == 0 and options.out:
        plot(lines, options.out)


if __name__ == "__main__":
    main()
