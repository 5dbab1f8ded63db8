"""Time of a BAOAB sweep as the number of ratings grows: 1, 4 and 16 million synthetic ratings.

    python tests/benchmarks/cost_of_size.py [--millions 1,4,16] [--rank 32]

Users grow with the ratings, items stay. The quickest of many sweeps counts for each size, the sizes take turns, and the
time per rating is shown relative to the first. One process. Not part of the tests.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from iteration_cost import STEADY, Run
from made_up import SyntheticOptions, generate
from mpi4py import MPI

from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.parallel.ring import Ring


def prepared(folder: Path, millions: int) -> Path:
    """A ratings file of so many million ratings."""
    raw, out = folder / f"{millions}.csv", folder / f"{millions}.h5"
    generate(raw, SyntheticOptions(rows=6040 * millions, cols=3706, ratings=1_000_000 * millions))
    command = [sys.executable, "-m", "dsgmcmc", "prepare", str(raw), str(out), "--memory", "2GB"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    raw.unlink()
    return out


def main() -> None:
    """Make the data, time the sweeps, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--millions", default="1,4,16")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--turns", type=int, default=12)
    options = parser.parse_args()
    runs: dict[int, Run] = {}
    ratings_of: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for millions in map(int, options.millions.split(",")):
            config = build({"sampler": "baoab", "rank": options.rank, **STEADY}).resolved()
            ring = Ring(MPI.COMM_SELF, config.grid)
            with open_ratings(prepared(Path(folder), millions)) as ratings:
                runs[millions] = Run(config, RatingBlocks(ratings, ring, ratings.mean), ring)
                ratings_of[millions] = ratings.nnz
    for run in runs.values():
        run.iterate(4)
    for _ in range(options.turns):
        for run in runs.values():
            run.turn(4)
    print(f"{'ratings':>12}{'ms a sweep':>12}{'ns a rating':>13}{'relative':>10}")
    first = None
    for millions, run in runs.items():
        seconds, n = run.cost()[0], ratings_of[millions]
        first = first or seconds / n
        print(f"{n:>12,}{1e3 * seconds:>12.2f}{1e9 * seconds / n:>13.3f}{seconds / n / first:>10.3f}")


if __name__ == "__main__":
    main()
