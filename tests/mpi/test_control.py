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
    given = []
    for iteration in range(iterations):
        signals.request = max(signals.request, requests.get((comm.rank, iteration), Request.GO_ON))
        given.append(control.ask(busy=False)[0])
        if given[-1] >= Request.STOP:
            break
    control.finish()
    return given


@pytest.mark.parametrize("asked", [Request.STOP, Request.INTERRUPT])
def test_all_stop_at_the_same_iteration(comm: MPI.Comm, together, asked: Request) -> None:
    """They stop soon after the request to any one process; a single process stops at once."""
    for rank in range(comm.size):
        given = answers(comm, {(rank, 4): asked})
        everyone = comm.allgather(given)
        with together():
            assert all(other == given for other in everyone)
            assert given[-1] == asked
            assert set(given[:-1]) <= {Request.GO_ON}
            assert 5 <= len(given) <= 7
            assert comm.size > 1 or len(given) == 5


def test_a_checkpoint_by_the_clock_is_agreed_on(comm: MPI.Comm, together) -> None:
    """Process 0 has the clock; the others save in the same iteration, and then it begins anew."""
    control = Control(comm, Signals(), 1e-9)
    given = []
    for _ in range(6):
        given.append(control.ask(busy=False)[0])
        if given[-1] == Request.CHECKPOINT:
            control.saving()
    control.finish()
    everyone = comm.allgather(given)
    with together():
        assert all(other == given for other in everyone)
        assert Request.CHECKPOINT in given
