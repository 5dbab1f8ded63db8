"""The ring: column blocks move to the next part, sums have one order, and all processes raise the same errors."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.errors import AgreedError
from dsgmcmc.parallel.partition import MESSAGE_COST, column_of, owner, row_of, slices_of
from dsgmcmc.parallel.ring import Move, Ring, stacked

pytestmark = pytest.mark.mpi
GRIDS = (4, 5, 7)


def length(c: int) -> int:
    return 3 + c  # unlike lengths: a block in the wrong buffer does not fit


def block(c: int) -> np.ndarray:
    return np.arange(length(c), dtype=np.float32) + 100 * c


@pytest.mark.parametrize("grid", GRIDS)
def test_blocks_move_between_any_two_parts(comm: MPI.Comm, together, grid: int) -> None:
    """Whatever the schedule: every block arrives whole, those that may stay keep their buffer."""
    ring = Ring(comm, grid)
    for part in range(grid):
        for after in range(grid):
            here, there = ([column_of(b, at, grid) for b in ring.blocks] for at in (part, after))
            columns = {c: block(c) for c in here}
            move = Move(ring, columns, part, after, lambda c: np.empty(length(c), np.float32))
            order = list(move.order)
            for b in order:
                move.depart(column_of(b, part, grid))
            arrived = move.finish()
            with together():
                assert sorted(order) == list(ring.blocks)
                leaving = [
                    owner(row_of(column_of(b, part, grid), after, grid), comm.size, grid) != comm.rank for b in order
                ]
                assert leaving == sorted(leaving, reverse=True), "those that leave are worked on first"
                assert sorted(arrived) == sorted(there)
                for c, buffer in arrived.items():
                    np.testing.assert_array_equal(buffer, block(c))
                    assert c not in columns or buffer is columns[c]


@pytest.mark.parametrize("width", [1, 3, 20 * MESSAGE_COST + 1])
@pytest.mark.parametrize("grid", GRIDS)
def test_sums_have_the_bits_of_one_process(comm: MPI.Comm, together, grid: int, width: int) -> None:
    """Partials are added in block order, narrow or in slices; the root makes the result that all get.

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

    total, result = ring.total(here), ring.reduce(here, finish, 2)
    most = ring.reduce(here, lambda largest: largest, width, np.maximum)
    with together():
        assert total.tobytes() == everything.sum(axis=0).tobytes()
        assert result.tolist() == [total[-1], width]
        assert ran == ([0] if comm.rank == 0 else []), "only the root computes functions of a sum"
        assert most.tobytes() == everything.max(axis=0).tobytes()
        if comm.size > 1 and width > 10 * MESSAGE_COST:
            assert len(slices_of(width, grid, comm.size)) > 1


def test_named_sums_have_the_bits_of_one_process(comm: MPI.Comm, together) -> None:
    """Several addends of a row block are added one after the other, in block order, each array by its name."""
    ring = Ring(comm, 5)
    rng = np.random.default_rng(1)
    shapes = {"scalar": (), "matrix": (2, 3), "none": (0,), "wide": (2, MESSAGE_COST)}
    addends = [
        {name: rng.standard_normal(shape) * 10.0 ** rng.integers(-8, 8) for name, shape in shapes.items()}
        for _ in range(10)
    ]
    here = stacked(addends[2 * ring.blocks.start : 2 * ring.blocks.stop])
    total = ring.sum(here)
    result = ring.sum(
        here, lambda sums: {"turned": sums["matrix"].T, "one": np.ones(1)}, {"one": (1,), "turned": (3, 2)}
    )
    with together():
        for name, shape in shapes.items():
            expected = np.zeros(shape)
            for addend in addends:
                expected = expected + addend[name]
            assert total[name].shape == shape
            assert total[name].tobytes() == np.asarray(expected).tobytes()
        assert result["turned"].tolist() == total["matrix"].T.tolist()


def test_sums_of_a_diverged_chain_are_not_a_number_on_all(comm: MPI.Comm, together) -> None:
    """An error of the root on such sums must not leave the others waiting: all learn that the chain has diverged."""
    ring = Ring(comm, 5)

    def finish(sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise np.linalg.LinAlgError

    for senseless in (np.nan, np.inf, 1e20):
        partials = {"x": np.array([[senseless if b == 3 else 1.0] for b in ring.blocks])}
        result = ring.sum(partials, finish, {"y": (2, 2)})
        with together():
            assert np.isnan(result["y"]).all()
            assert result["y"].shape == (2, 2)


# ---------------------------------------------------------------------- agreement


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
