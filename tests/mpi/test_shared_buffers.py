"""Shared column buffers: blocks in the memory of a node change hands, and nobody reads or writes
another's block.
"""

import resource
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc.parallel import shared_buffers
from dsgmcmc.parallel.ring import Ring, SharedTour
from dsgmcmc.parallel.shared_buffers import MAX_BLOCK_BYTES, SharedColumnBuffers

pytestmark = pytest.mark.mpi
GRID = 5


def length(c: int) -> int:
    return 1000 + c


def allocated(comm: MPI.Comm, node: int) -> SharedColumnBuffers | None:
    """Allocate buffers for the node as it is, or as on nodes of `node` processes each."""
    sizes = [length(c) for c in range(GRID)]
    if node:
        return SharedColumnBuffers.allocate(comm, comm.Split(comm.rank // node), sizes)
    return Ring(comm, GRID).shared_buffers(sizes)


@pytest.mark.parametrize(
    "node", [0, 1, 2, 3], ids=["as it is", "one a node", "two a node", "three a node"]
)
def test_tours_in_shared_memory_see_what_tours_by_message_see(
    comm: MPI.Comm, together, node: int
) -> None:
    """A tour shows every row block every column block once, in an order that depends on the row
    block alone.

    There are many in a row, some of which leave the blocks where they end, with processes that are
    late now and then. Each block is set anew before a tour: a process that began too early would
    change the blocks that others still read.
    """
    ring = Ring(comm, GRID)
    shared = allocated(comm, node)
    tour = SharedTour(ring, shared, length) if shared else None
    late = np.random.default_rng(comm.rank)
    wrong = []
    visited = 0
    for number in range(40):
        come_home = number % 3 == 0
        if shared:
            shared.claim()
        home = {}
        for c in ring.blocks:
            home[c] = shared.buffer(c, length(c)) if shared else np.empty(length(c), np.float32)
            home[c][:] = 100 * number + c
        visits = ring.tour(home, length, come_home)
        if shared and tour:
            visits = ((b, c, shared.buffer(c, length(c))) for b, c in tour(come_home))
        for b, c, buffer in visits:
            step = (c - b) % GRID
            if late.random() < 0.1:
                sleep(0.002)
            expected = 100 * number + c + step
            wrong += [(number, b, c)] if (buffer != expected).any() else []
            buffer += 1
            visited += 1
        if come_home:
            wrong += [
                (number, c) for c in ring.blocks if (home[c] != 100 * number + c + GRID).any()
            ]
            if shared:
                shared.release()
    with together():
        assert wrong == []
        assert visited == 40 * GRID * len(ring.blocks)
        assert (shared is None) == (comm.size == 1 or node == 1)


def test_no_shared_memory_is_left_behind(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch
) -> None:
    """Its file is unlinked while it is still in use."""
    # other jobs have files in the usual one
    monkeypatch.setattr(shared_buffers, "FOLDER", mpi_tmp_path)
    shared = allocated(comm, 0)
    comm.Barrier()
    with together():
        assert (shared is None) == (comm.size == 1)
        assert not list(mpi_tmp_path.iterdir())


@pytest.mark.parametrize("whose", ["the first", "the last"])
def test_without_shared_memory_there_are_no_shared_buffers(
    comm: MPI.Comm, together, whose: str
) -> None:
    """On any process, if one cannot have it: else some would wait for messages that others never
    send.
    """
    files, memory = (
        resource.getrlimit(limit) for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
    )
    if whose == "the first" and comm.rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, files[1]))  # no file may be larger
    elif whose == "the last" and comm.rank == comm.size - 1:
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        # of 20 MiB that are asked for
        resource.setrlimit(resource.RLIMIT_AS, (held + (8 << 20), memory[1]))
    try:
        shared = Ring(comm, GRID).shared_buffers([MAX_BLOCK_BYTES // 4] * GRID)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, files)
        resource.setrlimit(resource.RLIMIT_AS, memory)
    with together():
        assert shared is None
