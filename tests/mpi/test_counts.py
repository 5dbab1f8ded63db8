"""No message has so many numbers that a library's C int overflows; here the limit is lowered."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.errors import AgreedError
from dsgmcmc.parallel import ring as ring_module
from dsgmcmc.parallel.partition import MESSAGE_COST
from dsgmcmc.parallel.ring import Ring

pytestmark = pytest.mark.mpi
GRID = 5
#: In place of 2^31.
LIMIT = 40 * MESSAGE_COST


class Counting:
    """A communicator that keeps the largest count and displacement of all its calls."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self.largest = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._comm, name)
        if name[0].islower() or not callable(method):
            return method

        def counted(*buffers: Any, **options: Any) -> Any:
            for buffer in buffers:
                sizes = sum(buffer[1]) if isinstance(buffer, list) else buffer.size
                self.largest = max(self.largest, sizes)
            return method(*buffers, **options)

        return counted


@pytest.fixture
def counting(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(ring_module, "MAX_COUNT", LIMIT)
    return Counting(comm)


def refusal(work: Callable[[], object]) -> str:
    """Message of an `AgreedError`; empty if the work is done."""
    try:
        work()
    except AgreedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("width", [3, LIMIT // GRID - 1, LIMIT // GRID, LIMIT - 1, LIMIT])
def test_no_sum_has_a_count_above_the_limit(
    comm: MPI.Comm, together, counting: Counting, width: int
) -> None:
    """A sum is right, or all processes refuse it together, whether or not it is cut into slices."""
    ring = Ring(counting, GRID)
    totals = []
    refused = refusal(lambda: totals.append(ring.total(np.ones((len(ring.blocks), width)))))
    refusals = comm.allgather(refused)
    with together():
        assert counting.largest < LIMIT
        assert len(set(refusals)) == 1
        if refused:
            assert "a smaller --grid" in refused
            assert width >= LIMIT // GRID
        else:
            assert (totals[0] == GRID).all()
            assert width < LIMIT or comm.size == 1


@pytest.mark.parametrize("longest", [LIMIT - 1, LIMIT])
def test_no_block_has_a_count_above_the_limit(
    comm: MPI.Comm, together, counting: Counting, longest: int
) -> None:
    """One block that is too large is refused on all processes, also on those that never have it."""
    ring = Ring(counting, GRID)

    def length(block: int) -> int:
        return longest if block == GRID - 1 else 7

    home = {block: np.zeros(length(block), np.float32) for block in ring.blocks}
    refused = refusal(lambda: list(ring.tour(home, length, come_home=True)))
    with together():
        assert ("a larger --grid" in refused) == (longest == LIMIT and comm.size > 1)
        assert counting.largest < LIMIT
