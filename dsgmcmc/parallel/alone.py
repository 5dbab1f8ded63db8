"""The communicator of a single process, which needs no MPI.

It has the methods of mpi4py's communicators that this program calls.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


class Alone:
    """Communicator of a single process; a `Comm`."""

    rank = 0
    size = 1

    def gather(self, sendobj: T, root: int = 0) -> list[T]:
        """Objects of all processes, on the root; by `allgather` on all processes."""
        return [sendobj]

    def bcast(self, obj: object, root: int = 0) -> Any:
        """The root's object, on all processes; by `allreduce` the sum of all processes' objects."""
        return obj

    allgather = gather
    allreduce = bcast

    def Split(self, color: int = 0, key: int = 0) -> Alone:
        """Make a communicator of the processes with equal colours, in the order of their keys."""
        return self

    def Free(self) -> None:
        """Free the communicator."""

    def Barrier(self) -> None:
        """Wait for all processes."""

    def Abort(self, errorcode: int = 0) -> None:
        """End all processes at once."""
        os._exit(errorcode)

    def _no_other(self, *_: object, **__: object) -> Any:
        raise RuntimeError("a single process has no other process to exchange messages with")

    Send = Recv = Isend = Irecv = Gatherv = Igatherv = Bcast = Iallreduce = Ibarrier = _no_other
    Send_init = Recv_init = Split_type = _no_other


#: A communicator of mpi4py, or that of a single process, which needs no MPI.
Comm: TypeAlias = "MPI.Comm | Alone"
