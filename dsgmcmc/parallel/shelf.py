"""Memory that all processes of a node see: a place for every column block, so that none is copied on its way.

A block that goes to a process of another node travels as a message, and arrives at its place on the shelf of that node.
To a process of the same node goes a message of no length, which says that the block is now its own: what was written
before a message is sent is seen once it has arrived. At any time one process alone reads and writes a block.

The memory is a file in memory (``/dev/shm``), whose name is gone as soon as all have opened it: from then on nothing is
left behind, however a job ends. Where there is none, or no room in it, all blocks travel as messages.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Comm, Float32

FOLDER = Path("/dev/shm")
#: Bytes of the largest block for which there is a shelf. To copy a larger one takes little beside what is done with it,
#: and copies lie in huge pages, of which shared memory has none.
LARGEST = 1 << 22
LINE = 16  # float32 in a line of the caches, which no two blocks share
MARK = 4 * LINE  # bytes by which processes know that they have opened the same file


class Shelf:
    """Places of column blocks in memory that the processes of a node share; made by `Shelf.of`.

    Parameters
    ----------
    comm : Comm
        The processes that pass blocks on.
    peers : frozenset of int
        Those of them on this node, with this one.
    begins : sequence of int
        Where the place of each block begins.
    memory : (n,) float32
        Of this node.
    """

    def __init__(self, comm: Comm, peers: frozenset[int], begins: Sequence[int], memory: Float32) -> None:
        self._comm, self.peers, self._begins, self._memory = comm, peers, begins, memory
        self._in_use = False

    @classmethod
    def of(cls, comm: Comm, node: Comm, sizes: Sequence[int]) -> Shelf | None:
        """Make one on every node, or none anywhere: where none has two processes, or not all can. Collective.

        Parameters
        ----------
        comm : Comm
            The processes that pass blocks on.
        node : Comm
            Those of them on this node.
        sizes : sequence of int
            Numbers in each block, at most; the same on all processes.
        """
        if max(comm.allgather(node.size)) == 1:
            return None
        begins = [0, *accumulate(-(-size // LINE) * LINE for size in sizes)]
        memory = _shared(node, begins[-1])
        everywhere = all(comm.allgather(memory is not None))
        peers = frozenset(node.allgather(comm.rank))
        return cls(comm, peers, begins, memory) if memory is not None and everywhere else None

    def place(self, column_block: int, length: int) -> Float32:
        """Place of a block on this node, (length,)."""
        begin = self._begins[column_block]
        return self._memory[begin : begin + length]

    def claim(self) -> None:
        """Begin to use all places: wait until nobody else does. Collective."""
        if self._in_use:
            self._comm.Barrier()
        self._in_use = True

    def release(self) -> None:
        """Say that every block is with the process from which it came, so that nobody need wait for the others."""
        self._in_use = False


class _File(NamedTuple):
    """A file that all processes of a node are to open; no path where it could not be made."""

    path: str
    mark: bytes


def _shared(node: Comm, count: int) -> Float32 | None:
    """`count` zeros that all processes of a node see; None if they cannot. Collective over `node`."""
    size = count * 4 + MARK
    made = node.bcast(_made(size) if node.rank == 0 else None)
    found = _opened(made, size, node) if made.path else None
    everyone = all(node.allgather(found is not None))
    if node.rank == 0:
        _unlink(made.path)
    return np.frombuffer(found, np.float32, count, MARK) if found is not None and everyone else None


def _made(size: int) -> _File:
    """Make the file."""
    path, mark = "", os.urandom(MARK)
    try:
        handle, path = tempfile.mkstemp(prefix="dsgmcmc-", dir=FOLDER)
        with os.fdopen(handle, "wb") as file:
            file.write(mark)
            file.truncate(size)
    except OSError:
        _unlink(path)
        return _File("", mark)
    return _File(path, mark)


def _unlink(path: str) -> None:
    """Take its name from the file, if there is one."""
    if path:
        with suppress(OSError):
            Path(path).unlink()


def _opened(made: _File, size: int, node: Comm) -> mmap.mmap | None:
    """Map the file, once this process's share of it is sure to have memory, near to this process."""
    begin, end = (size * rank // node.size for rank in (node.rank, node.rank + 1))
    try:
        handle = os.open(made.path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            os.posix_fallocate(handle, begin, end - begin)
            found = mmap.mmap(handle, size)
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None
    return found if found[:MARK] == made.mark else None
