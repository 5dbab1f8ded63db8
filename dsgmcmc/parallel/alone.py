"""A communicator of one process, which needs no MPI."""

from __future__ import annotations

import os
from typing import Any, TypeVar

T = TypeVar("T")


class Alone:
    """The only process; a `dsgmcmc.types.Comm`."""

    rank, size = 0, 1

    def allgather(self, sendobj: T) -> list[T]:
        """Objects of all processes, everywhere."""
        return [sendobj]

    def gather(self, sendobj: T, root: int = 0) -> list[T]:
        """Objects of all processes, at the root."""
        return [sendobj]

    def bcast(self, obj: T, root: int = 0) -> T:
        """The root's object, everywhere."""
        return obj

    def allreduce(self, sendobj: T) -> T:
        """Sum over all processes, everywhere."""
        return sendobj

    def Split(self, color: int = 0, key: int = 0) -> Alone:
        """Make a communicator of the processes of one colour, in the order of their keys."""
        return self

    def Free(self) -> None:
        """Give it back."""

    def Barrier(self) -> None:
        """Wait for all processes."""

    def Abort(self, errorcode: int = 0) -> None:
        """End all processes at once."""
        os._exit(errorcode)

    def _nobody(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a single process has no other to exchange messages with")

    send = recv = Send = Recv = Isend = Irecv = Gatherv = Igatherv = Bcast = Iallreduce = Ibarrier = _nobody
    Send_init = Recv_init = Split_type = _nobody
