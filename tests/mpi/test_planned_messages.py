"""What ``dsgmcmc plan`` counts, against real rings: messages, bytes, sums and memory, on any number of processes."""

from __future__ import annotations

from typing import Any

import pytest
from mpi4py import MPI

from dsgmcmc.cluster.constants import builtin
from dsgmcmc.config.layers import build
from dsgmcmc.runs.calibrate import CYCLE, CalibrationChain, CountingRing, MadeUp, Shape
from dsgmcmc.runs.forecast import Forecast, Nodes
from dsgmcmc.runs.plan import Costs

pytestmark = pytest.mark.mpi

SHAPE = Shape(rows=960, columns=480, per_row=20)


class WatchedComm:
    """A communicator that counts what arrives by its gathers."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self.messages, self.numbers = comm, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def _count(self, received: Any, root: int) -> None:
        if self._comm.rank == root:
            counts = received[1]
            self.messages += sum(1 for p, n in enumerate(counts) if n and p != root)
            self.numbers += sum(counts)

    def Gatherv(self, sent: Any, received: Any, root: int = 0) -> None:
        """See `MPI.Comm.Gatherv`."""
        self._count(received, root)
        self._comm.Gatherv(sent, received, root=root)

    def Igatherv(self, sent: Any, received: Any, root: int = 0) -> MPI.Request:
        """See `MPI.Comm.Igatherv`."""
        self._count(received, root)
        return self._comm.Igatherv(sent, received, root=root)


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
    gathers = WatchedComm(comm)
    ring = CountingRing(gathers, grid)
    chain = CalibrationChain(config, ratings, ring)
    gathers.messages = gathers.numbers = 0
    ring.clear()
    chain.cycle()
    work = builtin().work_of("baoab", "shared", 32)
    work = work.model_copy(update={"sampler": sampler, "tours": work.tours if sampler == "baoab" else 0})
    machine = builtin().model_copy(update={"work": [work]})
    said = Forecast.of(config, ratings, machine, Nodes(1, comm.size, 1e9, 1e-6))
    messages, received = comm.allreduce(ring.messages), comm.allreduce(ring.received)
    largest = comm.allreduce(ring.largest, op=max)
    gathered, added = comm.allreduce(gathers.messages), comm.bcast(gathers.numbers)
    held = sum(
        array.nbytes
        for block in chain.target.ratings.train.values()
        for array in (block.indptr, block.indices, block.stored)
    )
    blocks = [*chain.target.blocks(), *chain.target.circulation.factors.left.values()]
    state = sum(block.buffer.nbytes + block["g"].nbytes for block in blocks)
    held, state = comm.allreduce(held, op=max), comm.allreduce(state, op=max)
    costs = Costs.of(config, ratings, comm.size)
    with together():
        exactly = 1e-9 if sampler == "baoab" else 0.12
        assert messages == pytest.approx(CYCLE * said.messages_per_sweep, rel=exactly)
        assert received == pytest.approx(CYCLE * said.sent_per_sweep, rel=exactly)
        assert largest == said.message
        if sampler == "baoab":  # of which the built-in constants know the sums
            assert ring.sums == {width: round(CYCLE * n) for n, width in zip(work.sums, work.summed, strict=True)}
            assert gathered == pytest.approx(CYCLE * said.sum_messages_per_sweep)
            if comm.size > 1:
                assert added == pytest.approx(CYCLE * said.sum_bytes_per_sweep / 8)
        everywhere = 2 * 8 * (SHAPE.rows + SHAPE.columns)
        assert held + everywhere == pytest.approx(costs.ratings_per_process, rel=0.03)
        assert state == pytest.approx(costs.state_per_process, rel=0.1)  # blocks have as many ratings, not columns
