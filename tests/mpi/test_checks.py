"""Checks that users have for their own classes, on several processes."""

from typing import Any

import pytest
from mpi4py import MPI
from support import own_part

from dsgmcmc.testing import check_part

pytestmark = [pytest.mark.mpi, pytest.mark.once]
Tastes = own_part("Tastes")


class Uneven(Tastes):
    """Its prior depends on the number of processes."""

    def _draw_tastes(self, context: Any, moments: Any) -> Any:
        self.parameters.precision = self.parameters.precision * context.circulation.ring.comm.size
        return super()._draw_tastes(context, moments)


def test_a_part_whose_draws_depend_on_the_number_of_processes_is_found(comm: MPI.Comm) -> None:
    """All processes raise the same error; the part of the documentation passes on them."""
    check_part(Tastes, comm=comm, tastes="yes", fixed=["traits"])
    if comm.size > 1:
        with pytest.raises(AssertionError, match=f"^a run on {comm.size} process.* has other bits"):
            check_part(Uneven, comm=comm, tastes="yes", fixed=["traits"])
