"""A checkpoint that one process asks for is made by all, at the same iteration."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.runs.control import Control

pytestmark = pytest.mark.mpi


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
