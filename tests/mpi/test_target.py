"""The factorisation on several processes: where blocks are, what a sampler sees, what it costs to move them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, factor_target

from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.costs import Costs
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, ScheduleName

pytestmark = pytest.mark.mpi
SCHEDULES: tuple[ScheduleName, ...] = ("shuffled", "cyclic", "random")


def columns_here(target: FactorTarget) -> dict[int, np.ndarray]:
    return {block.index: block["theta"].copy() for block in target.blocks() if block.factor == Factor.H}


def stamp(target: FactorTarget) -> None:
    """Give every element of a column block its global row and column."""
    for block in target.blocks():
        if block.factor == Factor.H:
            n, d = block["theta"].shape
            block["theta"][:] = (block.start + np.arange(n))[:, None] * 10 + np.arange(d)


def is_stamped(target: FactorTarget, column: ParameterBlock) -> bool:
    """Whether a column block is whole, and in its place."""
    start, stop = target.ratings.bounds(Factor.H, column.index)
    rows = column["theta"][:, 1].tolist()
    return rows == [10 * j + 1 for j in range(start, stop)] and (column.start, len(column.counts)) == (start, len(rows))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_meet_as_the_schedule_says(comm: MPI.Comm, together, data: Path, schedule: ScheduleName) -> None:
    """Every block of the part is visited once by the owner of its row, with the ratings and the columns of its own."""
    target = factor_target(comm, data, grid=5, schedule=schedule)
    stamp(target)
    for iteration in range(15):
        target.begin(iteration)
        part = target.circulation.schedule.part(iteration)
        visited = []
        faults = []
        for row, column, _ in target.circulation.visit(iteration, send=True):
            visited.append((row.index, column.index))
            faults += [] if is_stamped(target, column) else [column.index]
        with together():
            assert sorted(visited) == [(b, column_of(b, part, 5)) for b in target.ring.blocks]
            assert not faults
            after = target.circulation.schedule.part(iteration + 1)
            assert sorted(columns_here(target)) == sorted(column_of(b, after, 5) for b in target.ring.blocks)


def test_a_target_is_placed_anywhere(comm: MPI.Comm, together, data: Path) -> None:
    """Resuming begins at any iteration: the blocks that rest there are those that a run would have there."""
    running = factor_target(comm, data, grid=5, schedule="random")
    placed = factor_target(comm, data, grid=5, schedule="random")
    for iteration in range(9):
        placed.circulation.place(iteration)
        with together():
            assert placed.circulation.part == running.circulation.part
            assert placed.circulation.part_probability == running.circulation.part_probability
            assert sorted(columns_here(placed)) == sorted(columns_here(running))
        running.begin(iteration)
        for _ in running.visit(send=True):
            pass


def test_all_processes_know_the_data_alike(comm: MPI.Comm, together, data: Path) -> None:
    """Sizes of parts, peaks and counts are those that one process finds, whoever reads which rows."""
    target = factor_target(comm, data, grid=5)
    alone = factor_target(MPI.COMM_SELF, data, grid=5)
    with together():
        assert target.ratings.part_sizes.tolist() == alone.ratings.part_sizes.tolist()
        assert target.ratings.part_peaks.tolist() == alone.ratings.part_peaks.tolist()
        assert target.ratings.part_sizes.sum() == target.n_data == alone.n_data
        assert target.curvature_bound == alone.curvature_bound
        for (b, c), block in target.ratings.train.items():
            assert b in target.ring.blocks
            assert block.values.tobytes() == alone.ratings.train[b, c].values.tobytes()
            assert block.indices.tobytes() == alone.ratings.train[b, c].indices.tobytes()


def test_sums_add_rows_and_columns_in_block_order(comm: MPI.Comm, together, data: Path) -> None:
    """The bits of one process, at every iteration, wherever the columns rest."""
    targets = [factor_target(c, data, grid=5) for c in (comm, MPI.COMM_SELF)]
    for iteration in range(6):
        totals = []
        for target in targets:
            target.begin(iteration)
            partials = {}
            for block in target.blocks():
                scale = 10.0 ** ((7 * block.index + 3 * block.factor) % 13)
                partials[block] = {"scale": np.array([scale / 3]), "number": np.ones((1, 1))}
            shapes = {"both": (2,), "constant": ()}
            totals.append(target.sum(partials, both_of, shapes))
            for _ in target.visit(send=True):
                pass
        with together():
            assert totals[0]["both"].tobytes() == totals[1]["both"].tobytes()
            assert totals[0]["both"][1] == 10.0
            assert totals[0]["constant"] == 2.0


def both_of(sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"constant": np.array(2.0), "both": np.append(sums["scale"], sums["number"])}


def test_a_tour_shows_the_state_without_changing_it(comm: MPI.Comm, together, data: Path) -> None:
    """At any part: every row block sees all columns, from the one of its own number on, and nothing moves."""
    target = factor_target(comm, data, grid=5, schedule="random")
    stamp(target)
    for iteration in range(4):
        before = columns_here(target)
        seen: dict[int, list[int]] = {b: [] for b in target.ring.blocks}
        faults = []
        for cell in target.circulation.tour(("theta",)):
            seen[cell.row.index].append(cell.column.index)
            faults += [] if is_stamped(target, cell.column) else [cell.column.index]
        at_home = list(target.home(("theta",)))
        with together():
            assert not faults
            assert all(order == [(b + s) % 5 for s in range(5)] for b, order in seen.items())
            places = sorted((block.factor, block.index) for block in at_home)
            assert places == [(factor, b) for factor in Factor for b in target.ring.blocks]
            assert all(is_stamped(target, block) for block in at_home if block.factor == Factor.H)
            after = columns_here(target)
            assert before.keys() == after.keys()
            assert all((before[c] == after[c]).all() for c in before)
        target.begin(iteration)
        for _ in target.visit(send=True):
            pass


def test_what_returns_from_a_tour_has_what_all_added(comm: MPI.Comm, together, data: Path) -> None:
    """In the order in which one process adds it; what does not return stays as it was."""
    targets = [factor_target(c, data, 5, sampler=SGLD(SGLDConfig(gradient="full"), 0)) for c in (comm, MPI.COMM_SELF)]
    found = []
    for target in targets:
        stamp(target)
        for cell in target.circulation.tour(("g", "theta"), returning=("g",)):
            cell.column["g"][:] = 3 * cell.column["g"] + cell.row.index + cell.column["theta"]
        found.append({block.index: block["g"].copy() for block in target.blocks() if block.factor == Factor.H})
    with together():
        assert found[0].keys() == set(targets[0].ring.blocks)
        assert all(g.tobytes() == found[1][c].tobytes() for c, g in found[0].items())
        assert all(is_stamped(targets[0], block) for block in targets[0].blocks() if block.factor == Factor.H)


@pytest.mark.parametrize("heteroscedastic", [(), (Factor.W, Factor.H)])
def test_full_gradients_and_information_have_the_bits_of_one_process(
    comm: MPI.Comm, together, data: Path, heteroscedastic: tuple[Factor, ...]
) -> None:
    """Gradient, squared errors, and everything that BAOAB's metric is made of."""
    model = replace(MODEL, heteroscedastic=heteroscedastic)
    found = []
    for each in (comm, MPI.COMM_SELF):
        sampler = SGLD(SGLDConfig(gradient="full"), 0)
        target = factor_target(each, data, 5, model=model, sampler=sampler)
        sampler.start(target, 1.0)
        if heteroscedastic:
            for block in target.blocks():
                block.row("weight")[:] = 1 + np.arange(len(block.counts)) % 3
        target.full_gradient("theta", "g")
        information = target.information("theta")
        blocks = {
            (block.factor, block.index): (block["g"], information.n[block], information.bound[block])
            for block in target.blocks()
        }
        everywhere = [information.c[f] for f in Factor] + [information.lambda_[f] for f in Factor]
        errors = dict(zip(target.ring.blocks, target.model.noise.squared_error[:, 0].tolist(), strict=True))
        found.append((blocks, everywhere, errors))
    with together():
        (many, c, errors), (one, c_of_one, errors_of_one) = found
        assert all(a.tobytes() == b.tobytes() for a, b in zip(c, c_of_one, strict=True))
        assert all(errors_of_one[b] == error for b, error in errors.items())
        for place, arrays in many.items():
            assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays, one[place], strict=True))


@pytest.mark.parametrize("sampler", ["psgld", "hamcmc"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_as_many_blocks_and_bytes_are_sent_as_the_dry_run_says(
    comm: MPI.Comm, together, data: Path, schedule: ScheduleName, sampler: str
) -> None:
    """On average over many sweeps, counted by the blocks that arrive."""
    config = build({"rank": 2, "grid": 7, "schedule": schedule, "sampler": sampler}).resolved()
    made = config.make_sampler()
    target = factor_target(comm, data, grid=7, schedule=schedule, sampler=made)
    received, arrived, sweeps = 0, 0, 100
    for iteration in range(sweeps * target.sweep_length):
        before = {block.index for block in target.blocks() if block.factor == Factor.H}
        target.begin(iteration)
        for _ in target.visit(send=True):
            pass
        columns = [block for block in target.blocks() if block.factor == Factor.H and block.index not in before]
        received, arrived = received + sum(block.buffer.nbytes for block in columns), arrived + len(columns)
    counted = [comm.allreduce(number) / sweeps for number in (received, arrived)]
    with open_ratings(data) as ratings:
        said = Costs.of(config, ratings, comm.size)
    with together():
        assert [said.sent_per_sweep, said.messages_per_sweep] == pytest.approx(counted, rel=0.06)
        assert (said.messages_per_sweep == 0) == (comm.size == 1)


@pytest.mark.parametrize(
    ("sampler", "noise", "tours"),
    [
        ("baoab", "shared", [(3 + 3, True)]),  # position and gradient
        ("baoab", "both", [(3 + 3 + 2, True)]),  # weight and error, too
        ("gibbs", "shared", [(3, False), (10, True)]),  # positions; then 6 of a Gram matrix, 3 of a moment, a square
        ("gibbs", "both", [(4, False), (10, True)]),
    ],
)
def test_as_many_blocks_and_bytes_are_sent_in_a_tour_as_the_dry_run_says(
    comm: MPI.Comm, together, data: Path, sampler: str, noise: str, tours: list[tuple[int, bool]]
) -> None:
    """A tour passes every column block once round the ring, and home if it comes back changed."""
    config = build({"rank": 2, "grid": 7, "sampler": sampler, "noise": noise}).resolved()
    ring = Ring(comm, 7)
    with open_ratings(data) as ratings:
        bounds = RatingBlocks(ratings, ring, 0.0).column_bounds
        said = Costs.of(config, ratings, comm.size)

    def received(width: int, returns: bool) -> list[int]:
        def length(c: int) -> int:
            return width * int(bounds[c + 1] - bounds[c])

        buffers = {c: np.zeros(length(c), np.float32) for c in ring.blocks}
        met = [c for _, c, _ in ring.tour(buffers, length, come_home=returns)]
        here = [set(met[at : at + len(ring.blocks)]) for at in range(0, len(met), len(ring.blocks))]
        here += [set(ring.blocks)] if returns else []
        arrived = [c for before, now in pairwise(here) for c in now - before]
        return [sum(4 * length(c) for c in arrived), len(arrived)]

    sent, messages = (
        comm.allreduce(sum(numbers)) for numbers in zip(*(received(*tour) for tour in tours), strict=True)
    )
    with together():
        assert said.sent_per_sweep == pytest.approx(sent, rel=0.06)
        assert said.messages_per_sweep == messages
