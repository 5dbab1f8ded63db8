"""Types that several rooms share: arrays by element type, names of options, factors, purposes, a communicator."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Array = NDArray[Any]

#: What settings admit; `dsgmcmc.config` says what they are.
ScheduleName = Literal["shuffled", "cyclic", "random"]
PriorName = Literal["fixed", "normal-gamma", "normal-wishart"]
NoiseName = Literal["shared", "by-user", "by-item", "both"]
ImplicitName = Literal["no", "user", "item", "both"]
ThresholdsName = Literal["shared", "user"]
FeaturesName = Literal["yes", "no", "user", "item"]

T = TypeVar("T")


@unique
class Purpose(IntEnum):
    """Purposes of random numbers: different purposes never share a counter.

    Those from HYPERPARAMETERS on are keys of NumPy's Philox, for the few numbers that are not normals of a factor's
    elements.
    """

    STEP = 0
    START = 1
    MOMENTUM = 2
    NOISE_SCALE = 3
    IMPLICIT_FIT = 4
    IMPLICIT = 5
    IMPLICIT_UNKNOWN = 6
    TIME = 8
    GAP = 9
    TIME_ACCEPTED = 10
    OWN = 11  # of parts of your own
    DIRECTION = 12
    METROPOLIS = 0x4D
    HYPERPARAMETERS = 0x147
    SUBSAMPLE = 0x5AB5
    NU = 0x6E75
    SCHEDULE = 0x5C4ED
    THRESHOLDS = 0x7E5
    TIME_PRECISION = 0x71E
    PROPOSAL = 0x94A7


class Factor(IntEnum):
    """The factors of a target, as counters and file names know them; a plain vector is W."""

    W = 0
    H = 1


class Comm(Protocol):
    """A communicator, as far as it is used here: a part of ``mpi4py.MPI.Comm``, or `dsgmcmc.parallel.comm.Alone`."""

    @property
    def rank(self) -> int:
        """Number of this process."""

    @property
    def size(self) -> int:
        """Number of processes."""

    def allgather(self, sendobj: T) -> list[T]:
        """Objects of all processes, everywhere."""

    def gather(self, sendobj: T, root: int = 0) -> list[T] | None:
        """Objects of all processes, at the root."""

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """The root's object, everywhere."""

    def allreduce(self, sendobj: T) -> T:
        """Sum over all processes, everywhere."""

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """Make a communicator of the processes of one colour, in the order of their keys."""

    def Free(self) -> None:
        """Give it back."""

    def Barrier(self) -> None:
        """Wait for all processes."""

    def Abort(self, errorcode: int = 0) -> None:
        """End all processes at once."""

    # What follows is asked for where there are several processes.

    def Split_type(self, split_type: int) -> Comm:
        """Make a communicator of the processes that have something in common."""

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Prepare to send a buffer again and again."""

    def Recv_init(self, buf: Any, source: int, tag: int = 0) -> Any:
        """Prepare to receive into a buffer again and again."""

    def send(self, obj: Any, dest: int) -> None:
        """Send an object."""

    def recv(self, *, source: int) -> Any:
        """Receive an object."""

    def Send(self, buf: Array, dest: int) -> None:
        """Send an array."""

    def Recv(self, buf: Array, source: int) -> None:
        """Receive into an array."""

    def Isend(self, buf: Array, dest: int, tag: int = 0) -> Any:
        """Begin to send an array; returns a request."""

    def Irecv(self, buf: Array, source: int, tag: int = 0) -> Any:
        """Begin to receive into an array; returns a request."""

    def Gatherv(self, sendbuf: Array, recvbuf: Any, root: int = 0) -> None:
        """Arrays of all processes, one after the other, at the root."""

    def Igatherv(self, sendbuf: Array, recvbuf: Any, root: int = 0) -> Any:
        """Begin to gather arrays as `Gatherv` does, and return the request."""

    def Bcast(self, buf: Array, root: int = 0) -> None:
        """The root's array, everywhere."""

    def Iallreduce(self, sendbuf: Array, recvbuf: Array, op: Any) -> Any:
        """Begin to reduce arrays over all processes, everywhere; returns a request."""

    def Ibarrier(self) -> Any:
        """Begin to wait for all processes; returns a request."""
