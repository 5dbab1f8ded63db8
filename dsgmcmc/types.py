"""Types that several packages share: arrays, values of settings, factors, purposes of random numbers, communicators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, unique
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Array = NDArray[Any]
#: Arrays by name, and their shapes.
Named = Mapping[str, Float64]
Shapes = Mapping[str, tuple[int, ...]]
#: Function that only process 0 calls: from totals, by name or by factor, to the arrays that all processes get.
Finish = Callable[[dict[Any, Float64]], Named]

#: Admitted values of settings, which `dsgmcmc.config` describes.
ScheduleName = Literal["shuffled", "cyclic", "random"]
PriorName = Literal["fixed", "normal-gamma", "normal-wishart"]
NoiseName = Literal["shared", "by-user", "by-item", "both"]
ImplicitName = Literal["no", "user", "item", "both"]
ThresholdsName = Literal["shared", "user"]
FeaturesName = Literal["yes", "no", "user", "item"]

T = TypeVar("T")


@unique
class Purpose(IntEnum):
    """Purposes of random numbers: different purposes never share random numbers.

    Values below HYPERPARAMETERS are parts of counters. HYPERPARAMETERS and larger values are parts of keys of NumPy's
    Philox generator, for random numbers that do not belong to elements of a factor.
    """

    STEP = 0
    START = 1
    MOMENTUM = 2
    NOISE_SCALE = 3
    IMPLICIT_FIT = 4
    IMPLICIT = 5
    IMPLICIT_UNKNOWN = 6
    IMPLICIT_START = 7
    TIME = 8
    GAP = 9
    TIME_ACCEPTED = 10
    OWN = 11  # for parts of a model that users write
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
    """The factors of a target, numbered as in the counters of random numbers; plain vectors have only W."""

    W = 0
    H = 1


class Comm(Protocol):
    """A communicator: the methods of ``mpi4py.MPI.Comm`` that are used, or `dsgmcmc.parallel.comm.Alone`.

    Attributes
    ----------
    rank : int
        Number of this process.
    size : int
        Number of processes.
    """

    rank: int
    size: int

    def allgather(self, sendobj: T) -> list[T]:
        """Return the objects of all processes, on all processes."""

    def gather(self, sendobj: T, root: int = 0) -> list[T] | None:
        """Return the objects of all processes on the root, and None elsewhere."""

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return the root's object, on all processes."""

    def allreduce(self, sendobj: T) -> T:
        """Return the sum over all processes, on all processes."""

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """Make a communicator of the processes with equal colours, in the order of their keys."""

    def Free(self) -> None:
        """Free the communicator."""

    def Barrier(self) -> None:
        """Wait for all processes."""

    def Abort(self, errorcode: int = 0) -> None:
        """End all processes at once."""

    # The methods below are called only if there are several processes.

    def Split_type(self, split_type: int) -> Comm:
        """Make a communicator of the processes that share a resource, such as the memory of a node."""

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Any:
        """Make a persistent request to send a buffer."""

    def Recv_init(self, buf: Any, source: int, tag: int = 0) -> Any:
        """Make a persistent request to receive into a buffer."""

    def Isend(self, buf: Array, dest: int, tag: int = 0) -> Any:
        """Begin to send an array; returns a request."""

    def Irecv(self, buf: Array, source: int, tag: int = 0) -> Any:
        """Begin to receive into an array; returns a request."""

    def Gatherv(self, sendbuf: Array, recvbuf: Any, root: int = 0) -> None:
        """Concatenate the arrays of all processes on the root."""

    def Igatherv(self, sendbuf: Array, recvbuf: Any, root: int = 0) -> Any:
        """Begin to gather arrays as `Gatherv` does; returns a request."""

    def Bcast(self, buf: Array, root: int = 0) -> None:
        """Copy the root's array to all processes."""

    def Iallreduce(self, sendbuf: Array, recvbuf: Array, op: Any) -> Any:
        """Begin to reduce arrays over all processes, on all processes; returns a request."""

    def Ibarrier(self) -> Any:
        """Begin to wait for all processes; returns a request."""
