"""A request on one process is done by all, at the same iteration."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.runs.control import Control

pytestmark = pytest.mark.mpi


def answers(comm: MPI.Comm, requests: dict[tuple[int, int], Request], iterations: int = 12) -> list[Request]:
    """Answers of `ask`, by iteration; `requests` by process and iteration are raised before the question."""
    signals = Signals()
    control = Control(comm, signals, None)
    found = []
    for iteration in range(iterations):
        signals.request = max(signals.request, requests.get((comm.rank, iteration), Request.GO_ON))
        found.append(control.ask(busy=False)[0])
        if found[-1] >= Request.STOP:
            break
    control.finish()
    return found


@pytest.mark.parametrize("asked", [Request.STOP, Request.INTERRUPT])
def test_all_stop_at_the_same_iteration(comm: MPI.Comm, together, asked: Request) -> None:
    """They stop soon after the request to any one process; a single process stops at once."""
    for rank in range(comm.size):
        found = answers(comm, {(rank, 4): asked})
        everyone = comm.allgather(found)
        with together():
            assert all(other == found for other in everyone)
            assert found[-1] == asked
            assert set(found[:-1]) <= {Request.GO_ON}
            assert 5 <= len(found) <= 7
            assert comm.size > 1 or len(found) == 5


def test_a_checkpoint_by_the_clock_is_agreed_on(comm: MPI.Comm, together) -> None:
    """Process 0 has the clock; the others save in the same iteration, and then it begins anew."""
    control = Control(comm, Signals(), 1e-9)
    found = []
    for _ in range(6):
        found.append(control.ask(busy=False)[0])
        if found[-1] == Request.CHECKPOINT:
            control.saving()
    control.finish()
    everyone = comm.allgather(found)
    with together():
        assert all(other == found for other in everyone)
        assert Request.CHECKPOINT in found


def test_all_know_whether_any_process_still_writes(comm: MPI.Comm, together) -> None:
    """The commit of a snapshot happens at an iteration at which all know that no process is busy."""
    control = Control(comm, Signals(), None)
    for rank in range(comm.size):
        control.ask(busy=comm.rank == rank)
        busy = control.ask(busy=False)
        idle = control.ask(busy=False)
        with together():
            assert comm.size == 1 or not busy[1]
            assert idle[1]
        control.finish()
