"""The factorisation on several processes: where blocks are, what a sampler sees, what it costs to move them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import factor_world

from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.plan import Costs
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.factorisation.target import FactorWorld
from dsgmcmc.types import ScheduleName

pytestmark = pytest.mark.mpi
SCHEDULES: tuple[ScheduleName, ...] = ("shuffled", "cyclic", "random")


def columns_here(world: FactorWorld) -> dict[int, np.ndarray]:
    return {side.index: side["theta"].copy() for side in world.sides() if side.factor == "H"}


def stamp(world: FactorWorld) -> None:
    """Give every element of a column block its global row and column."""
    for side in world.sides():
        if side.factor == "H":
            n, d = side["theta"].shape
            side["theta"][:] = (side.start + np.arange(n))[:, None] * 10 + np.arange(d)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_meet_as_the_schedule_says(comm: MPI.Comm, together, data: Path, schedule: ScheduleName) -> None:
    """Every block of the part is visited once by the owner of its row, with the ratings and the columns of its own."""
    world = factor_world(comm, data, grid=5, schedule=schedule)
    stamp(world)
    for iteration in range(15):
        world.iteration = iteration
        part = world.schedule.part(iteration)
        visited = []
        faults = []
        for block in world.visit(send=True):
            visited.append((block.row.index, block.column.index))
            start, stop = world.held.bounds("H", block.column.index)
            whole = len(block.column["theta"]) == stop - start == len(block.column.counts)
            stamped = block.column["theta"][:, 0].tolist() == [10 * j for j in range(start, stop)]
            faults += [] if whole and stamped and block.column.start == start else [block.column.index]
        with together():
            assert sorted(visited) == [(b, column_of(b, part, 5)) for b in world.ring.blocks]
            assert not faults
            after = world.schedule.part(iteration + 1)
            assert sorted(columns_here(world)) == sorted(column_of(b, after, 5) for b in world.ring.blocks)


def test_a_world_is_placed_anywhere(comm: MPI.Comm, together, data: Path) -> None:
    """Resuming begins at any iteration: the blocks that rest there are those that a run would have there."""
    running = factor_world(comm, data, grid=5, schedule="random")
    placed = factor_world(comm, data, grid=5, schedule="random")
    for iteration in range(9):
        placed.place(iteration)
        with together():
            assert placed.part == running.part
            assert placed.part_probability == running.part_probability
            assert sorted(columns_here(placed)) == sorted(columns_here(running))
        running.iteration = iteration
        for _ in running.visit(send=True):
            pass


def test_all_processes_know_the_data_alike(comm: MPI.Comm, together, data: Path) -> None:
    """Sizes of parts, peaks and counts are those that one process finds, whoever reads which rows."""
    world = factor_world(comm, data, grid=5)
    alone = factor_world(MPI.COMM_SELF, data, grid=5)
    with together():
        assert world.ratings.part_sizes.tolist() == alone.ratings.part_sizes.tolist()
        assert world.ratings.part_peaks.tolist() == alone.ratings.part_peaks.tolist()
        assert world.ratings.part_sizes.sum() == world.n_data == alone.n_data
        assert world.peak_count == alone.peak_count
        for (b, c), block in world.ratings.train.items():
            assert b in world.ring.blocks
            assert block.values.tobytes() == alone.ratings.train[b, c].values.tobytes()
            assert block.indices.tobytes() == alone.ratings.train[b, c].indices.tobytes()


def test_reduce_adds_rows_and_columns_in_block_order(comm: MPI.Comm, together, data: Path) -> None:
    """The bits of one process, at every iteration, wherever the columns rest."""
    worlds = [factor_world(c, data, grid=5) for c in (comm, MPI.COMM_SELF)]
    for iteration in range(6):
        totals = []
        for world in worlds:
            world.iteration = iteration
            for side in world.sides():
                scale = 10.0 ** ((7 * side.index + 3 * (side.factor == "H")) % 13)
                world.add(side, np.array([scale / 3, 1.0]))
            totals.append(world.reduce(lambda total: np.append(total, 2.0), 3))
            for _ in world.visit(send=True):
                pass
        with together():
            assert totals[0].tobytes() == totals[1].tobytes()
            assert totals[0][1:].tolist() == [10.0, 2.0]


def test_a_tour_shows_the_state_without_changing_it(comm: MPI.Comm, together, data: Path) -> None:
    """At any part: every row block sees all columns, from the one of its own number on, and nothing moves."""
    world = factor_world(comm, data, grid=5, schedule="random")
    stamp(world)
    for iteration in range(4):
        before = columns_here(world)
        seen: dict[int, list[int]] = {b: [] for b in world.ring.blocks}
        faults = []
        for row, c, arrays in world.tour(("theta",)):
            start, stop = world.held.bounds("H", c)
            seen[row.index].append(c)
            faults += [] if arrays["theta"][:, 1].tolist() == [10 * j + 1 for j in range(start, stop)] else [c]
        with together():
            assert not faults
            assert all(order == [(b + s) % 5 for s in range(5)] for b, order in seen.items())
            after = columns_here(world)
            assert before.keys() == after.keys()
            assert all((before[c] == after[c]).all() for c in before)
        world.iteration = iteration
        for _ in world.visit(send=True):
            pass


@pytest.mark.parametrize("sampler", ["psgld", "hamcmc"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_as_many_bytes_are_sent_as_the_dry_run_says(
    comm: MPI.Comm, together, data: Path, schedule: ScheduleName, sampler: str
) -> None:
    """On average over many iterations, counted by what arrives."""
    config = build({"rank": 2, "grid": 7, "schedule": schedule, "sampler": sampler}).resolved()
    world = factor_world(comm, data, grid=7, schedule=schedule, fields=config.make_sampler().fields)
    received, iterations = 0, 700
    for iteration in range(iterations):
        before = {side.index for side in world.sides() if side.factor == "H"}
        world.iteration = iteration
        for _ in world.visit(send=True):
            pass
        received += sum(side.buffer.nbytes for side in world.sides() if side.factor == "H" and side.index not in before)
    mean = comm.allreduce(received) / iterations
    with open_ratings(data) as ratings:
        said = Costs.of(config, ratings, comm.size).sent_per_iteration
    with together():
        assert said == pytest.approx(mean, rel=0.06)
        assert (said == 0) == (comm.size == 1)


@pytest.mark.parametrize("noise", ["shared", "both"])
def test_as_many_bytes_are_sent_in_a_sweep_as_the_dry_run_says(
    comm: MPI.Comm, together, data: Path, noise: str
) -> None:
    """A full gradient passes every column block once round the ring, and home."""
    config = build({"rank": 2, "grid": 7, "sampler": "baoab", "noise": noise}).resolved()
    ring = Ring(comm, 7)
    with open_ratings(data) as ratings:
        bounds = RatingBlocks(ratings, ring, 0.0).column_bounds
        said = Costs.of(config, ratings, comm.size).sent_per_iteration
    width = 2 * 3 + (2 if noise == "both" else 0)  # position and gradient, weight and error

    def length(c: int) -> int:
        return width * int(bounds[c + 1] - bounds[c])

    met = [
        c for _, c, _ in ring.tour({c: np.zeros(length(c), np.float32) for c in ring.blocks}, length, come_home=True)
    ]
    here = [set(met[at : at + len(ring.blocks)]) for at in range(0, len(met), len(ring.blocks))] + [set(ring.blocks)]
    received = sum(4 * length(c) for before, now in pairwise(here) for c in now - before)
    total = comm.allreduce(received)
    with together():
        assert said == pytest.approx(total, rel=0.06)
