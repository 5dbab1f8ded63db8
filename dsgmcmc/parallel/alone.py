"""A communicator of one process, which needs no MPI."""

from __future__ import annotations

import os
from typing import Any, TypeVar

T = TypeVar("T")


class Alone:
    """The only process; a `dsgmcmc.types.Comm`."""

    rank, size = 0, 1

    def allgather(self, sendobj: T) -> list[T]:
        """See `Comm.allgather`."""
        return [sendobj]

    def gather(self, sendobj: T, root: int = 0) -> list[T]:
        """See `Comm.gather`."""
        return [sendobj]

    def bcast(self, obj: T, root: int = 0) -> T:
        """See `Comm.bcast`."""
        return obj

    def allreduce(self, sendobj: T) -> T:
        """See `Comm.allreduce`."""
        return sendobj

    def Split(self, color: int = 0, key: int = 0) -> Alone:
        """See `Comm.Split`."""
        return self

    def Free(self) -> None:
        """See `Comm.Free`."""

    def Barrier(self) -> None:
        """See `Comm.Barrier`."""

    def Abort(self, errorcode: int = 0) -> None:
        """See `Comm.Abort`."""
        os._exit(errorcode)

    def _nobody(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a single process has no other to exchange messages with")

    send = recv = Send = Recv = Isend = Irecv = Gatherv = Igatherv = Bcast = Iallreduce = Ibarrier = _nobody
    Send_init = Recv_init = Split_type = _nobody
