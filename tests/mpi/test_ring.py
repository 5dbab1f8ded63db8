"""What processes agree on: sums have one order, and errors and checkpoints are those of all."""

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.errors import AgreedError
from dsgmcmc.parallel.partition import MESSAGE_COST, slices_of
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.runs.control import Control

pytestmark = pytest.mark.mpi
GRIDS = (4, 5, 7)


@pytest.mark.parametrize("width", [1, 3, 20 * MESSAGE_COST + 1])
@pytest.mark.parametrize("grid", GRIDS)
def test_sums_have_the_bits_of_one_process(comm: MPI.Comm, together, grid: int, width: int) -> None:
    """Partials are added in block order, narrow or in slices; the root makes the result that all
    get.

    Another order would differ in bits.
    """
    ring = Ring(comm, grid)
    rng = np.random.default_rng(0)
    everything = rng.standard_normal((grid, width)) * 10.0 ** rng.integers(-8, 8, (grid, width))
    here = everything[ring.blocks.start : ring.blocks.stop]
    ran = []

    def finish(total: np.ndarray) -> np.ndarray:
        ran.append(comm.rank)
        return np.array([total[-1], float(len(total))])

    total = ring.total(here)
    result = ring.reduce(here, finish, 2)
    most = ring.reduce(here, lambda largest: largest, width, np.maximum)
    with together():
        assert total.tobytes() == everything.sum(axis=0).tobytes()
        assert result.tolist() == [total[-1], width]
        assert ran == ([0] if comm.rank == 0 else []), "only the root computes functions of a sum"
        assert most.tobytes() == everything.max(axis=0).tobytes()
        if comm.size > 1 and width > 10 * MESSAGE_COST:
            assert len(slices_of(width, grid, comm.size)) > 1


def test_sums_of_a_diverged_chain_are_not_a_number_on_all(comm: MPI.Comm, together) -> None:
    """An error of the root on such sums must not leave the others waiting: all learn that the chain
    has diverged.
    """
    ring = Ring(comm, 5)

    def finish(sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise np.linalg.LinAlgError

    for senseless in (np.nan, np.inf, 1e20):
        partials = {"x": np.array([[senseless if b == 3 else 1.0] for b in ring.blocks])}
        result = ring.sum(partials, finish, {"y": (2, 2)})
        with together():
            assert np.isnan(result["y"]).all()
            assert result["y"].shape == (2, 2)


def test_an_error_of_one_process_is_raised_on_all(comm: MPI.Comm, together) -> None:
    """There is one message, which names the process and the error."""
    last = comm.size - 1

    def work() -> None:
        if comm.rank == last:
            raise OSError(28, "No space left on device")

    with pytest.raises(AgreedError) as raised:
        Ring(comm, comm.size).agree(work, "writing x")
    message = str(raised.value)
    with together():
        assert message.startswith("writing x: ")
        assert message.count("No space left on device") == 1
        assert (f"process {last} of {comm.size}" in message) == (comm.size > 1)


def test_a_checkpoint_by_the_clock_is_agreed_on(comm: MPI.Comm, together) -> None:
    """Process 0 has the clock; the others save in the same iteration, and then it begins anew."""
    control = Control(comm, Signals(), 1e-9)
    requests = []
    for _ in range(6):
        requests.append(control.ask(busy=False)[0])
        if requests[-1] == Request.CHECKPOINT:
            control.saving()
    control.finish()
    everyone = comm.allgather(requests)
    with together():
        assert all(other == requests for other in everyone)
        assert Request.CHECKPOINT in requests
