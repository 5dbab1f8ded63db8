"""What ``dsgmcmc plan`` counts, against real rings: messages, bytes, sums and memory, on any number of processes."""

from __future__ import annotations

from typing import Any

import pytest
from mpi4py import MPI

from dsgmcmc.cluster.constants import builtin
from dsgmcmc.config.layers import build
from dsgmcmc.parallel.ring import Move
from dsgmcmc.runs.calibrate import CYCLE, CalibrationChain, CountingRing, MadeUp, Shape
from dsgmcmc.runs.forecast import Forecast, Nodes
from dsgmcmc.runs.plan import Costs

pytestmark = pytest.mark.mpi

SHAPE = Shape(rows=960, columns=480, per_row=20)


class Watched(CountingRing):
    """A ring that counts what arrives, too."""

    messages = received = largest = 0

    def move(self, *given: Any, **named: Any) -> Move:
        """See `Ring.move`; a block handed over in shared memory counts like one that is sent."""
        going = super().move(*given, **named)
        sizes = [buffer.nbytes for buffer in going._arriving.values()]
        self.messages, self.received = self.messages + len(sizes), self.received + sum(sizes)
        self.largest = max([self.largest, *sizes])
        return going


@pytest.mark.parametrize("grid", [8, 20])
@pytest.mark.parametrize("sampler", ["baoab", "psgld"])
def test_messages_and_memory_are_what_the_plan_says(comm: MPI.Comm, together, sampler: str, grid: int) -> None:
    """Messages, their bytes and the sums of a cycle of sweeps, to the last one; memory of the largest process.

    The rank is one whose sums the constants have; at others these are interpolated. Of psgld the parts follow each
    other at random, and what is sent is so on average: to 12 % in 10 sweeps.
    """
    if comm.size > grid:
        pytest.skip("more processes than blocks")
    settings = {"sampler": sampler, "rank": 32, "grid": grid, "iterations": "700sweeps", "save_draws": 0}
    config, ratings = build(settings).resolved(), MadeUp(SHAPE)
    ring = Watched(comm, grid)
    chain = CalibrationChain(config, ratings, ring)
    ring.messages = ring.received = ring.largest = ring.sums = ring.summed = 0
    chain.cycle()
    work = builtin().work_of("baoab", "shared", 32)
    work = work.model_copy(update={"sampler": sampler, "tours": work.tours if sampler == "baoab" else 0})
    machine = builtin().model_copy(update={"work": [work]})
    said = Forecast.of(config, ratings, machine, Nodes(1, comm.size, 1e9, 1e-6))
    messages, received = comm.allreduce(ring.messages), comm.allreduce(ring.received)
    largest = comm.allreduce(ring.largest, op=max)
    held = sum(
        array.nbytes
        for block in chain.target.ratings.train.values()
        for array in (block.indptr, block.indices, block.values)
    )
    state = sum(block.buffer.nbytes + block["g"].nbytes for block in chain.target.blocks())
    held, state = comm.allreduce(held, op=max), comm.allreduce(state, op=max)
    costs = Costs.of(config, ratings, comm.size)
    with together():
        exactly = 1e-9 if sampler == "baoab" else 0.12
        assert messages == pytest.approx(CYCLE * said.messages_per_sweep, rel=exactly)
        assert received == pytest.approx(CYCLE * said.sent_per_sweep, rel=exactly)
        assert largest == said.message
        if sampler == "baoab":  # of which the built-in constants know the sums
            assert ring.sums == pytest.approx(CYCLE * work.sums)
            assert ring.summed == pytest.approx(CYCLE * work.summed)
        everywhere = 2 * 8 * (SHAPE.rows + SHAPE.columns)
        assert held + everywhere == pytest.approx(costs.ratings_per_process, rel=0.03)
        assert state == pytest.approx(costs.state_per_process, rel=0.1)  # blocks have as many ratings, not columns
