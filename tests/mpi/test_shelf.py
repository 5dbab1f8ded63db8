"""The shelf: blocks that lie in the memory of a node change hands, and nobody reads or writes one that is another's."""

from __future__ import annotations

import resource
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.parallel import shelf as shelves
from dsgmcmc.parallel.partition import row_of
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.shelf import LARGEST, Shelf

pytestmark = pytest.mark.mpi
GRID = 5


def length(c: int) -> int:
    return 1000 + c


def made(comm: MPI.Comm, node: int) -> Shelf | None:
    """Make one as it is here, or as on nodes of so many processes each."""
    sizes = [length(c) for c in range(GRID)]
    return Shelf.of(comm, comm.Split(comm.rank // node), sizes) if node else Ring(comm, GRID).shelf(sizes)


@pytest.mark.parametrize("node", [0, 1, 2, 3], ids=["as it is", "one a node", "two a node", "three a node"])
def test_tours_on_a_shelf_see_what_tours_by_message_see(comm: MPI.Comm, together, node: int) -> None:
    """Many in a row, of which some leave the blocks where they end, with processes that are late now and then.

    Each block is set anew before a tour: whoever began before others were done with it would change what they see.
    """
    ring, shelf = Ring(comm, GRID), made(comm, node)
    late = np.random.default_rng(comm.rank)
    wrong = []
    for number in range(40):
        come_home = number % 3 == 0
        if shelf:
            shelf.claim()
        home = {}
        for c in ring.blocks:
            home[c] = shelf.place(c, length(c)) if shelf else np.empty(length(c), np.float32)
            home[c][:] = 100 * number + c
        for b, c, buffer in ring.tour(home, length, come_home, shelf=shelf):
            step = (c - b) % GRID
            if late.random() < 0.1:
                sleep(0.002)
            expected = 100 * number + c + step
            wrong += [(number, b, c)] if (buffer != expected).any() else []
            buffer += 1
        if come_home:
            wrong += [(number, c) for c in ring.blocks if (home[c] != 100 * number + c + GRID).any()]
            if shelf:
                shelf.release()
    with together():
        assert wrong == []
        assert (shelf is None) == (comm.size == 1 or node == 1)


def test_blocks_on_a_shelf_move_between_any_two_parts(comm: MPI.Comm, together) -> None:
    """As copies of blocks do that rest elsewhere than at home."""
    ring, shelf = Ring(comm, GRID), made(comm, 2)
    if shelf is None:
        pytest.skip("one process shares with nobody")
    for part in range(GRID):
        for after in range(GRID):
            shelf.claim()
            columns = {}
            for c in [(b + part) % GRID for b in ring.blocks]:
                columns[c] = shelf.place(c, length(c))
                columns[c][:] = c + 10 * part
            going = ring.move(columns, part, after, length, shelf)
            for b in going.order:
                going.depart((b + part) % GRID)
            arrived = going.finish()
            with together():
                assert sorted(row_of(c, after, GRID) for c in arrived) == list(ring.blocks)
                assert all((buffer == c + 10 * part).all() for c, buffer in arrived.items())


def test_nothing_of_a_shelf_is_left_behind(comm: MPI.Comm, together) -> None:
    """Its file has no name any more while it is used."""
    before = set(shelves.FOLDER.glob("dsgmcmc-*"))
    comm.Barrier()
    shelf = made(comm, 0)
    comm.Barrier()
    with together():
        assert (shelf is None) == (comm.size == 1)
        assert set(shelves.FOLDER.glob("dsgmcmc-*")) <= before


@pytest.mark.parametrize("whose", ["all", "the first", "the last"])
def test_without_shared_memory_there_is_no_shelf(
    comm: MPI.Comm, together, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whose: str
) -> None:
    """On any process, if one cannot have it: else some would wait for messages that others never send."""
    files, memory = (resource.getrlimit(limit) for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS))
    if whose == "all":
        monkeypatch.setattr(shelves, "FOLDER", tmp_path / "none")
    elif whose == "the first" and comm.rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, files[1]))  # no file may be larger
    elif whose == "the last" and comm.rank == comm.size - 1:
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + (8 << 20), memory[1]))  # of 20 MiB that are asked for
    try:
        shelf = Ring(comm, GRID).shelf([LARGEST // 4] * GRID)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, files)
        resource.setrlimit(resource.RLIMIT_AS, memory)
    with together():
        assert shelf is None


def test_large_blocks_are_sent(comm: MPI.Comm, together) -> None:
    """From 4 MiB on."""
    ring = Ring(comm, GRID)
    found = [ring.shelf([1, 1, 1, size, 1]) for size in (LARGEST // 4, LARGEST // 4 + 1)]
    with together():
        assert [shelf is None for shelf in found] == [comm.size == 1, True]
