"""``dsgmcmc plan`` against sweeps: seconds that the model says, beside seconds that were measured in the same minutes.

    python tests/benchmarks/plan.py [--millions 1,5,20] [--rank 16,32,64] [--sampler baoab] [--noise both]
    mpirun -n 2 python tests/benchmarks/plan.py

Constants are measured and sweeps timed in turns, so that both see the same machine; of all turns the quickest counts.
One process is timed in seconds of the processor, which other work on the machine disturbs little; several in seconds of
the clock, since waiting is a part of what they do: these need a machine without other work. The data are synthetic,
with users in proportion to the ratings; neither their sizes nor their law are those that the constants are fitted to.
Not part of the tests.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from cost_of_size import prepared
from mpi4py import MPI

from dsgmcmc.cluster.constants import builtin
from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.runs.calibrate import CalibrationChain, CountingRing, measure_exchange, measure_work
from dsgmcmc.runs.forecast import Forecast, Nodes


def compare(comm: MPI.Comm, files: dict[int, Path], rank: int, options: argparse.Namespace) -> None:
    """Print a line for each file."""
    sampler, noise, grid = options.sampler, options.noise, options.grid
    settings = {"sampler": sampler, "rank": rank, "noise": noise, "grid": grid}
    settings |= {"iterations": "700sweeps", "save_draws": 0}
    config, chains, found = build(settings).resolved(), {}, {}
    for millions, path in files.items():
        with open_ratings(path) as ratings:
            chains[millions] = CalibrationChain(config, ratings, CountingRing(comm, grid)), ratings
    machine, clock = builtin(), process_time if comm.size == 1 else perf_counter
    for _ in range(options.turns):
        works = comm.allgather(measure_work(MPI.COMM_SELF, sampler, noise, rank, repeats=1))
        work = max(works, key=lambda each: sum(each.rating))
        exchange = measure_exchange(comm) if comm.size > 1 else machine.exchange
        machine = machine.model_copy(update={"work": [work], "exchange": exchange})
        for millions, (chain, ratings) in chains.items():
            said = Forecast.of(config, ratings, machine, Nodes(1, comm.size, 1e10, 0.0)).seconds
            measured = comm.allreduce(chain.cost(1, clock), op=max)
            found.setdefault(millions, []).append((said, measured))
    for millions, pairs in found.items():
        said, measured = (min(times) for times in zip(*pairs, strict=True))
        if comm.rank == 0:
            times = f"{1e3 * said:>12.2f}{1e3 * measured:>12.2f}{said / measured:>8.2f}"
            print(f"{comm.size:>9}{millions:>10} M{rank:>6}{times}", flush=True)


def main() -> None:
    """Make the data, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--millions", default="1,5,20")
    parser.add_argument("--rank", default="16,32,64")
    parser.add_argument("--sampler", default="baoab")
    parser.add_argument("--noise", default="shared")
    parser.add_argument("--grid", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the data are kept; made anew without")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(comm.bcast(temporary))
        sizes = [int(millions) for millions in options.millions.split(",")]
        if comm.rank == 0:
            for millions in sizes:
                if not (folder / f"{millions}.h5").exists():
                    prepared(folder, millions)
            print(f"{'processes':>9}{'ratings':>12}{'K':>6}{'said, ms':>12}{'seen, ms':>12}{'ratio':>8}")
        comm.Barrier()
        for rank in options.rank.split(","):
            compare(comm, {each: folder / f"{each}.h5" for each in sizes}, int(rank), options)
        comm.Barrier()


if __name__ == "__main__":
    main()
