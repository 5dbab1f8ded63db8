"""Shared memory on a node for column blocks, which are then passed on without a copy.

A block for another node is sent as a message, and received in its buffer in the memory of that
node. Within a node, an empty message hands over the block: data written before the message is sent
can be read once it has arrived. At any time only one process reads and writes a block.

The memory is a file in ``/dev/shm``, which is unlinked as soon as all processes have opened it: no
file is left behind, however the job ends. Without ``/dev/shm``, or without room in it, all blocks
travel as messages.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from pathlib import Path

import numpy as np

from dsgmcmc.parallel.alone import Comm
from dsgmcmc.types import Float32

FOLDER = Path("/dev/shm")
#: Bytes of the largest block in shared memory. A copy of a larger block costs little compared with
#: the work on it, and lies in huge pages, which shared memory lacks.
MAX_BLOCK_BYTES = 1 << 22
#: Number of float32 values in a cache line; no two blocks share a line.
CACHE_LINE = 16


class SharedColumnBuffers:
    """Buffers of column blocks in memory that the processes of a node share; made by `allocate`.

    Parameters
    ----------
    comm : Comm
        The processes of the chain.
    peers : frozenset of int
        Ranks in `comm` of the processes on this node, including this process.
    offsets : sequence of int
        Start of the buffer of each block in `memory`.
    memory : (n,) float32
        The shared memory of this node.
    """

    def __init__(
        self, comm: Comm, peers: frozenset[int], offsets: Sequence[int], memory: Float32
    ) -> None:
        self._comm = comm
        self.peers = peers
        self._offsets = offsets
        self._memory = memory
        self._in_use = False

    @classmethod
    def allocate(cls, comm: Comm, node: Comm, sizes: Sequence[int]) -> SharedColumnBuffers | None:
        """Allocate buffers on every node. Collective.

        None if this fails on a node, or if no node has two processes.

        Parameters
        ----------
        comm : Comm
            The processes of the chain.
        node : Comm
            The processes of the chain on this node.
        sizes : sequence of int
            Largest number of float32 values in each block; equal on all processes.
        """
        if max(comm.allgather(node.size)) == 1:
            return None
        offsets = [0, *accumulate(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes)]
        memory = _shared_memory(node, offsets[-1])
        everywhere = all(comm.allgather(memory is not None))
        peers = frozenset(node.allgather(comm.rank))
        if memory is None or not everywhere:
            return None
        return cls(comm, peers, offsets, memory)

    def buffer(self, column_block: int, length: int) -> Float32:
        """Return the buffer of a block in the memory of this node, (length,) float32."""
        begin = self._offsets[column_block]
        return self._memory[begin : begin + length]

    def claim(self) -> None:
        """Begin to use all buffers, after all processes have stopped using them. Collective."""
        if self._in_use:
            self._comm.Barrier()
        self._in_use = True

    def release(self) -> None:
        """Record that every block is back where it began: the next `claim` need not wait."""
        self._in_use = False


def _shared_memory(node: Comm, count: int) -> Float32 | None:
    """Return `count` zeros in memory that a node shares; None if any process cannot map it.

    Collective over `node`.
    """
    path = ""
    with ExitStack() as stack:
        if node.rank == 0:
            with suppress(OSError):  # if there is no such folder, or no room in it
                file = stack.enter_context(
                    tempfile.NamedTemporaryFile(prefix="dsgmcmc-", dir=FOLDER)
                )
                file.truncate(count * 4)
                path = file.name
        path = node.bcast(path)
        memory = _map(path, count * 4, node) if path else None
        mapped_by_all = all(node.allgather(memory is not None))
    if memory is None or not mapped_by_all:
        return None
    return np.frombuffer(memory, np.float32)


def _map(path: str, size: int, node: Comm) -> mmap.mmap | None:
    """Map the file, and reserve this process's share in nearby memory; None if this fails."""
    begin = size * node.rank // node.size
    end = size * (node.rank + 1) // node.size
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), begin, end - begin)
            return mmap.mmap(file.fileno(), size)
    except (OSError, ValueError):
        return None
