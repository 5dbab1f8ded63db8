"""The traffic that a factorisation on several processes costs."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import factor_target

from dsgmcmc.config.run import build
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.costs import Costs
from dsgmcmc.types import Factor, ScheduleName

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("sampler", "schedule"), [("psgld", "shuffled"), ("hamcmc", "random"), ("psgld", "cyclic")]
)
def test_as_many_bytes_are_sent_as_the_dry_run_says(
    comm: MPI.Comm, together, data: Path, sampler: str, schedule: ScheduleName
) -> None:
    """The average over many sweeps is counted by the blocks that arrive."""
    config = build({"rank": 2, "grid": 7, "schedule": schedule, "sampler": sampler}).resolved()
    algorithm = config.make_sampler()
    target = factor_target(comm, data, grid=7, schedule=schedule, sampler=algorithm)
    received = 0
    sweeps = 100
    for iteration in range(sweeps * target.sweep_length):
        before = {block.index for block in target.blocks() if block.factor == Factor.H}
        target.begin(iteration)
        for _ in target.visit(send=True):
            pass
        columns = [
            block
            for block in target.blocks()
            if block.factor == Factor.H and block.index not in before
        ]
        received += sum(block.buffer.nbytes for block in columns)
    counted = comm.allreduce(received) / sweeps
    with Ratings(data) as ratings:
        said = Costs.estimate(config, ratings, comm.size)
    with together():
        assert said.sent_per_sweep == pytest.approx(counted, rel=0.06)
        assert (said.sent_per_sweep == 0) == (comm.size == 1)


@pytest.mark.parametrize(
    ("sampler", "noise", "tours"),
    [
        ("baoab", "both", [(3 + 3 + 2, True)]),  # position and gradient, weight and error
        (
            "gibbs",
            "shared",
            [(3, False), (10, True)],
        ),  # positions; then 6 of a Gram matrix, 3 of a moment, a square
    ],
)
def test_as_many_bytes_are_sent_in_a_tour_as_the_dry_run_says(
    comm: MPI.Comm, together, data: Path, sampler: str, noise: str, tours: list[tuple[int, bool]]
) -> None:
    """A tour passes every column block once round the ring, and home if it comes back changed."""
    config = build({"rank": 2, "grid": 7, "sampler": sampler, "noise": noise}).resolved()
    ring = Ring(comm, 7)
    with Ratings(data) as ratings:
        bounds = RatingBlocks(ratings, ring, 0.0).column_bounds
        said = Costs.estimate(config, ratings, comm.size)

    def received(width: int, returns: bool) -> int:
        def length(c: int) -> int:
            return width * int(bounds[c + 1] - bounds[c])

        buffers = {c: np.zeros(length(c), np.float32) for c in ring.blocks}
        met = [c for _, c, _ in ring.tour(buffers, length, come_home=returns)]
        here = [set(met[at : at + len(ring.blocks)]) for at in range(0, len(met), len(ring.blocks))]
        here += [set(ring.blocks)] if returns else []
        arrived = [c for before, now in pairwise(here) for c in now - before]
        return sum(4 * length(c) for c in arrived)

    sent = comm.allreduce(sum(received(*tour) for tour in tours))
    with together():
        assert said.sent_per_sweep == pytest.approx(sent, rel=0.06)
