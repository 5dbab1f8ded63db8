"""What checking a ratings file costs a process that reads it: processor seconds with and without, in turns.

    dsgmcmc synthetic r.csv --ratings 20000000 --rows 200000 --cols 30000
    dsgmcmc prepare r.csv r.h5
    python tests/benchmarks/reading_cost.py r.h5

The file lies in the page cache, where reading is fastest and checking weighs most.
"""

from __future__ import annotations

import sys
from statistics import median
from time import process_time

from mpi4py import MPI

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.parallel.ring import Ring

RING = Ring(MPI.COMM_SELF, 4)


def read(path: str, checksums: bool) -> float:
    """Seconds for the ratings as a process of a run holds them."""
    begin = process_time()
    with open_ratings(path, checksums) as ratings:
        RatingBlocks(ratings, RING, ratings.mean)
    return process_time() - begin


if __name__ == "__main__":
    read(sys.argv[1], True)  # compiles
    pairs = [(read(sys.argv[1], False), read(sys.argv[1], True)) for _ in range(40)]
    without, checked = (median(column) for column in zip(*pairs, strict=True))
    print(f"{without:.3f} s without, {checked:.3f} s with checksums: {checked / without - 1:.1%} more")
