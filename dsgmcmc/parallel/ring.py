"""The processes of one chain: movement of column blocks, and ordered sums.

During part t, the owner of row block (c - t) mod B holds column block c, whatever the schedule.
`Move` sends column blocks to the processes that need them in the next part. `tour` passes all
column blocks once round the ring [Ahn 2015, section 3]. Column blocks travel as float32 buffers and
sums as float64 buffers, by the upper-case methods of mpi4py. Within a node, blocks in shared memory
(`dsgmcmc.parallel.shared_buffers`) are handed over without a copy.

In a sum over blocks, float64 partial sums are added in block order. The root adds a narrow sum; a
wide sum is cut into slices, each added by one process (`dsgmcmc.parallel.partition.slices_of`), and
the root gathers the slices. Only the root computes functions of a sum. Therefore no result depends
on the number of processes or on the MPI library.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from typing_extensions import override

from dsgmcmc.errors import AgreedError
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import agree, processes_here
from dsgmcmc.parallel.partition import Slice, blocks_of, column_of, route, slices_of
from dsgmcmc.parallel.shared_buffers import MAX_BLOCK_BYTES, SharedColumnBuffers
from dsgmcmc.settings import named
from dsgmcmc.types import Finish, Float32, Float64, Named, Shapes

if TYPE_CHECKING:  # MPI is loaded only by jobs with several processes
    from mpi4py import MPI

T = TypeVar("T")

#: Sums over the data are far smaller in absolute value, unless a chain has diverged.
MAX_SUM = 1e15
#: Message that hands over a block in shared memory.
EMPTY_MESSAGE = np.empty(0, np.float32)
#: MPI counts numbers in a C int. From this count on libraries fail, and some without an error.
MAX_COUNT = 1 << 31

PHASES = ("gradient", "update", "draw", "exchange", "reduce", "evaluate", "checkpoint")


class _Phase(AbstractContextManager[None]):
    """A ``with`` block whose time is charged to a phase; it may be entered again inside itself.

    A context manager made of a generator would cost several times as much, in small models as much
    as the work.
    """

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases = phases
        self._name = name
        self._begins: list[float] = []

    @override
    def __enter__(self) -> None:
        self._begins.append(self._phases.enter())

    @override
    def __exit__(self, *error: object) -> None:
        self._phases.leave(self._name, self._begins.pop())


class Phases:
    """Seconds spent in each of the `PHASES`; a nested phase does not count for the enclosing one.

    Waiting for other processes counts as ``exchange`` or ``reduce``.
    """

    def __init__(self) -> None:
        self._inside: list[float] = []
        self._blocks = {name: _Phase(self, name) for name in PHASES}
        self.clear()

    def clear(self) -> None:
        """Set all times to zero."""
        self.seconds = dict.fromkeys(PHASES, 0.0)

    def __call__(self, name: str) -> AbstractContextManager[None]:
        """Charge the time spent in the ``with`` block to phase `name`."""
        return self._blocks[name]

    def enter(self) -> float:
        """Begin a phase, and return the time.

        For hot loops, in which a ``with`` block costs more than the work.
        """
        self._inside.append(0.0)
        return perf_counter()

    def leave(self, name: str, begin: float) -> None:
        """End the phase that `enter` began at `begin`, and charge its time to `name`."""
        elapsed = perf_counter() - begin
        self.seconds[name] += elapsed - self._inside.pop()
        if self._inside:
            self._inside[-1] += elapsed


class Ring:
    """The processes that share one chain.

    Parameters
    ----------
    comm : Comm
        Communicator of the chain's group of processes.
    grid : int
        Number B of row blocks; at least `comm.size`.
    """

    def __init__(self, comm: Comm, grid: int) -> None:
        self.comm = comm
        self.grid = grid
        self.rank = comm.rank
        self.size = comm.size
        self.blocks = blocks_of(comm.rank, comm.size, grid)
        self._block_counts = [len(blocks_of(rank, comm.size, grid)) for rank in range(comm.size)]
        self.phases = Phases()

    # ------------------------------------------------------------------ moving column blocks

    def check_blocks(self, lengths: Iterable[int]) -> None:
        """Raise `AgreedError` if a column block is too large for a message.

        Parameters
        ----------
        lengths : iterable of int
            Number of float32 values in each block; equal on all processes.
        """
        if self.size == 1:
            return
        longest = max(lengths)
        if longest >= MAX_COUNT:
            raise AgreedError(
                f"a block of {longest:,} numbers is larger than a message between processes can be"
                f" ({MAX_COUNT:,}): use a larger {named('grid')}"
            )

    def tour(
        self, home: dict[int, Float32], length: Callable[[int], int], come_home: bool = False
    ) -> Iterator[tuple[int, int, Float32]]:
        """Pass column buffers once round the ring, yielding each buffer at every row block.

        Collective.

        The caller may change each buffer that it gets, for example to accumulate sums. Blocks that
        depart are yielded first, and travel while the caller works on the other blocks.

        Parameters
        ----------
        home : dict of int to (length,) float32
            Buffer of column block b for every row block b that this process owns, as in part 0. The
            dict is emptied at the start, so that blocks that have departed take no memory.
        length : callable
            Number of float32 values in the buffer of a column block.
        come_home : bool
            Whether to send the buffers back into `home` at the end.

        Yields
        ------
        row_block, column_block : int
        buffer : (length,) float32
        """

        def new(c: int) -> Float32:
            return np.empty(length(c), np.float32)

        self.check_blocks(map(length, range(self.grid)))
        buffers = dict(home)
        home.clear()
        for step in range(self.grid):
            following = (step + 1) % self.grid
            if following == 0 and not come_home:
                for b in self.blocks:
                    c = column_of(b, step, self.grid)
                    yield b, c, buffers[c]
                return
            move = Move(self, buffers, part=step, after=following, buffer=new)
            for b in move.order:
                c = column_of(b, step, self.grid)
                yield b, c, buffers[c]
                move.depart(c)
            buffers = move.finish()
        home.update(buffers)

    def shared_buffers(self, sizes: Sequence[int]) -> SharedColumnBuffers | None:
        """Allocate shared memory for column blocks on every node. Collective.

        Parameters
        ----------
        sizes : sequence of int
            Number of float32 values in each block.

        Returns
        -------
        SharedColumnBuffers or None
            None if the memory cannot be allocated, no node has two processes, or a block is too
            large.
        """
        if self.size == 1 or 4 * max(sizes) > MAX_BLOCK_BYTES:
            return None
        node = processes_here(self.comm)
        shared = SharedColumnBuffers.allocate(self.comm, node, sizes)
        node.Free()
        return shared

    # ------------------------------------------------------------------ ordered sums

    def reduce(
        self,
        partials: Float64,
        finish: Callable[[Float64], Float64],
        width: int,
        combine: np.ufunc = np.add,
    ) -> Float64:
        """Return `finish` of the sum of partial sums, in block order, everywhere. Collective.

        Parameters
        ----------
        partials : (addends of this process, n) float64
            Rows in block order, with an equal number for every row block.
        finish : callable
            Maps the (n,) sum to a (width,) float64 result. Only the root calls it, so that the
            result does not depend on the processor of a process.
        width : int
            Length of the result.
        combine : ufunc
            Operation to use in place of addition.

        Returns
        -------
        (width,) float64
            All NaN if the chain has diverged and `finish` fails on its sums.
        """
        self._check_sum(width)
        begin = self.phases.enter()
        combined = self._combine(np.ascontiguousarray(partials), combine)
        if combined is None:
            result = np.empty(width)
        else:
            result = _finish(finish, combined, width)
        if self.size > 1:
            self.comm.Bcast(result, root=0)
        self.phases.leave("reduce", begin)
        return result

    def _check_sum(self, count: int) -> None:
        """Raise `AgreedError` if a sum or its addends have too many numbers for a message."""
        if self.size > 1 and count >= MAX_COUNT:
            raise AgreedError(
                f"a sum over {self.grid} blocks has {count:,} numbers, more than a message between"
                f" processes can have ({MAX_COUNT:,}): use a smaller {named('grid')} or model, or"
                " one process"
            )

    def _combine(self, partials: Float64, combine: np.ufunc) -> Float64 | None:
        """Combine partial sums in block order; (n,) float64 on the root, else None. Collective."""
        if self.size == 1:
            return np.asarray(combine.reduce(partials, axis=0))
        length = partials.shape[1]
        per_block = len(partials) // len(self.blocks)
        addends = [per_block * n for n in self._block_counts]
        slices = slices_of(length, sum(addends), self.size)
        widest = max(piece.width for piece in slices)
        self._check_sum(max(length, sum(addends) * widest))
        if len(slices) > 1:
            combined = self._combine_slice(partials, slices, addends, combine)
            return self._gather_slices(combined, slices)
        received = np.empty((sum(addends), length)) if self.rank == 0 else None
        self.comm.Gatherv(partials, [received, [n * length for n in addends]], root=0)
        if received is None:
            return None
        return np.asarray(combine.reduce(received, axis=0))

    def _combine_slice(
        self,
        partials: Float64,
        slices: Sequence[Slice],
        addends: Sequence[int],
        combine: np.ufunc,
    ) -> Float64:
        """Return the combined slice of this process, empty if it has none. Collective.

        Every slice of the partial sums is sent to the process that combines it. `addends` has the
        number of addends of every process.
        """
        from mpi4py import MPI

        received = None
        requests = []
        for piece in slices:
            target = None
            if piece.process == self.rank:
                received = np.empty((sum(addends), piece.width))
                target = received
            sent = np.ascontiguousarray(partials[:, piece.begin : piece.end])
            counts = [n * piece.width for n in addends]
            requests.append(self.comm.Igatherv(sent, [target, counts], root=piece.process))
        MPI.Request.Waitall(requests)
        if received is None:
            return np.empty(0)
        return np.asarray(combine.reduce(received, axis=0))

    def _gather_slices(self, combined: Float64, slices: Sequence[Slice]) -> Float64 | None:
        """Gather the whole sum on the root, from the slices of all processes. Collective."""
        widths = {piece.process: piece.width for piece in slices}
        counts = [widths.get(process, 0) for process in range(self.size)]
        total = np.empty(sum(counts)) if self.rank == 0 else None
        self.comm.Gatherv(combined, [total, counts], root=0)
        return total

    def total(self, partials: Float64) -> Float64:
        """Return the sum of partial sums, (n,) float64, added in block order. Collective."""
        return self.reduce(partials, lambda total: total, partials.shape[1])

    def sum(
        self, partials: Named, finish: Finish | None = None, result: Shapes | None = None
    ) -> dict[str, Float64]:
        """Return the sums of named arrays in block order, or a function of the sums. Collective.

        All processes get the result.

        Parameters
        ----------
        partials : named arrays
            (addends of this process, ...) each, in block order, with an equal number for every row
            block.
        finish : callable, optional
            Maps the sums to the result. Only the root calls it, so that the result does not depend
            on the processor of a process.
        result : shapes by name, optional
            Shapes of the result of `finish`; by default the shapes of the sums.

        Returns
        -------
        dict of str to float64 array
            All NaN if the chain has diverged and `finish` fails on its sums.
        """
        shapes = {name: array.shape[1:] for name, array in partials.items()}
        result_shapes = result or shapes
        finished: list[Named] = []

        def packed(total: Float64) -> Float64:
            if finish is None:
                return total
            drawn = finish(unpack(total, shapes))
            if self.size == 1:  # the result is not sent
                finished.append(drawn)
                return total
            return pack(drawn, result_shapes)

        flat = [array.reshape(len(array), -1) for array in partials.values()]
        rows = np.concatenate(flat, axis=1, dtype=np.float64)
        width = sum(map(prod, result_shapes.values()))
        total = self.reduce(rows, packed, width)
        if finished:
            return {name: np.asarray(array, np.float64) for name, array in finished[0].items()}
        return unpack(total, result_shapes)

    # ------------------------------------------------------------------ agreement

    def agree(self, work: Callable[[], T], activity: str = "") -> T:
        """Return the result of local work, or raise the same error on all processes. Collective."""
        return agree(self.comm, work, activity)


# ---------------------------------------------------------------------- named arrays


def shapes_of(arrays: Named) -> dict[str, tuple[int, ...]]:
    """Return the shapes of named arrays."""
    return {name: array.shape for name, array in arrays.items()}


def pack(arrays: Named, shapes: Shapes) -> Float64:
    """Join named arrays into one vector, in the order of `shapes`.

    Raises
    ------
    ValueError
        If names or shapes differ from `shapes`.
    """
    if shapes_of(arrays) != dict(shapes):
        raise ValueError(
            f"expected arrays with the shapes {dict(shapes)}; found {shapes_of(arrays)}"
        )
    return np.concatenate([arrays[name].ravel() for name in shapes]).astype(np.float64, copy=False)


def stacked(addends: Iterable[Named]) -> dict[str, Float64]:
    """Stack the arrays of several addends with equal names and shapes: (addends, ...) each."""
    listed = list(addends)
    return {name: np.array([addend[name] for addend in listed]) for name in listed[0]}


def unpack(vector: Float64, shapes: Shapes) -> dict[str, Float64]:
    """Split a vector into named views of the given shapes."""
    arrays = {}
    begin = 0
    for name, shape in shapes.items():
        end = begin + prod(shape)
        arrays[name] = vector[begin:end].reshape(shape)
        begin = end
    return arrays


def _finish(finish: Callable[[Float64], Float64], total: Float64, width: int) -> Float64:
    """Return `finish(total)`; NaN if it fails on the sums of a diverged chain, as all will see."""
    try:
        return finish(total)
    except (ArithmeticError, ValueError):  # LinAlgError is a ValueError
        if (np.abs(total) < MAX_SUM).all():
            raise
        return np.full(width, np.nan)


@dataclass(eq=False)
class Move:
    """Moves column blocks from the processes that hold them in one part to those of the next part.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    columns : dict of int to (length,) float32
        Buffers of the column blocks that this process holds during `part`.
    part, after : int
        The current part and the next part.
    buffer : callable
        Returns the buffer for an arriving column block.
    peers : collection of int, optional
        Processes with which blocks are handed over in shared memory (`SharedColumnBuffers.peers`).
    """

    ring: Ring
    columns: dict[int, Float32]
    part: int
    after: int
    buffer: Callable[[int], Float32]
    peers: Collection[int] = ()

    def __post_init__(self) -> None:
        ring = self.ring
        self._route = route(ring.rank, ring.size, ring.grid, part=self.part, after=self.after)
        self._arriving: dict[int, Float32] = {}
        self._receives: list[MPI.Request] = []
        self._sends: list[MPI.Request] = []
        #: Row blocks of this process in working order: first the row blocks whose column blocks
        #: depart.
        self.order = self._route.order
        if self._route.arriving:
            begin = ring.phases.enter()
            self._receive()
            ring.phases.leave("exchange", begin)

    def _receive(self) -> None:
        """Post the receives of all arriving blocks, before anything is sent."""
        for column_block, source in self._route.arriving.items():
            buffer = self.buffer(column_block)
            self._arriving[column_block] = buffer
            message = EMPTY_MESSAGE if source in self.peers else buffer
            self._receives.append(self.ring.comm.Irecv(message, source=source, tag=column_block))

    def depart(self, column_block: int) -> None:
        """Send a column block, on which the work of this part is done, to its next process.

        It may also stay here.
        """
        ring = self.ring
        if not self._route.arriving and not self._route.departing:
            return
        from mpi4py import MPI

        begin = ring.phases.enter()
        destination = self._route.departing.get(column_block)
        if destination is not None:
            message = EMPTY_MESSAGE if destination in self.peers else self.columns[column_block]
            self._sends.append(ring.comm.Isend(message, dest=destination, tag=column_block))
        MPI.Request.Testall(self._receives)  # lets the library make progress while we compute
        ring.phases.leave("exchange", begin)

    def finish(self) -> dict[int, Float32]:
        """Wait for all messages, and return the column blocks of this process in the next part."""
        begin = self.ring.phases.enter()
        if self._receives or self._sends:
            from mpi4py import MPI

            MPI.Request.Waitall(self._receives + self._sends)
        stay = {c: buffer for c, buffer in self.columns.items() if c not in self._route.departing}
        self.ring.phases.leave("exchange", begin)
        return stay | self._arriving


class _Visit(NamedTuple):
    """A visit of a column block at a row block in a tour.

    Attributes
    ----------
    row_block, column_block : int
    arriving : request or None
        By which the column block arrives; None if it is already here.
    departing : request or None
        By which the column block departs; None if it stays.
    """

    row_block: int
    column_block: int
    arriving: MPI.Prequest | None
    departing: MPI.Prequest | None


class _Leg(NamedTuple):
    """One step of a tour: visits and messages.

    Attributes
    ----------
    visits : list of _Visit
    receives, sends : list of request
        Requests for the messages between this step and the next.
    filled : list of request
        Requests in `receives` and `sends` whose messages are not empty.
    """

    visits: list[_Visit]
    receives: list[MPI.Prequest]
    sends: list[MPI.Prequest]
    filled: list[MPI.Prequest]


class SharedTour:
    """Tours of column blocks in shared memory.

    Persistent requests are made once, and started in every tour.

    A process waits for a block only when it needs the block.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    shared : SharedColumnBuffers
        The shared memory; its `claim` is called before every tour.
    length : callable
        Number of float32 values in the buffer of a column block.
    """

    def __init__(
        self, ring: Ring, shared: SharedColumnBuffers, length: Callable[[int], int]
    ) -> None:
        self._ring = ring
        self._shared = shared
        self._length = length
        self._legs: list[_Leg] = []
        arriving: dict[int, MPI.Prequest] = {}
        for step in range(ring.grid):
            arriving = self._add_leg(step, arriving)
        for leg in self._legs:
            for message in (*leg.receives, *leg.sends):
                # before MPI_Finalize, which may otherwise report leaks
                atexit.register(message.Free)

    def _add_leg(self, step: int, arriving: dict[int, MPI.Prequest]) -> dict[int, MPI.Prequest]:
        """Add a step; return the requests by which the column blocks of the next step arrive.

        `arriving` has the requests by which the column blocks of this step arrive.
        """
        ring = self._ring
        comm = ring.comm
        plan = route(ring.rank, ring.size, ring.grid, part=step, after=(step + 1) % ring.grid)
        coming = {
            c: comm.Recv_init(self._message(c, source), source=source, tag=c)
            for c, source in plan.arriving.items()
        }
        going = {
            c: comm.Send_init(self._message(c, destination), dest=destination, tag=c)
            for c, destination in plan.departing.items()
        }
        visits = []
        for b in plan.order:
            c = column_of(b, step, ring.grid)
            visits.append(_Visit(b, c, arriving=arriving.get(c), departing=going.get(c)))
        filled = [coming[c] for c, p in plan.arriving.items() if p not in self._shared.peers]
        filled += [going[c] for c, p in plan.departing.items() if p not in self._shared.peers]
        self._legs.append(_Leg(visits, [*coming.values()], [*going.values()], filled))
        return coming

    def _message(self, c: int, peer: int) -> Float32:
        """Return the message with block `c`; empty if `peer` shares the memory."""
        if peer in self._shared.peers:
            return EMPTY_MESSAGE
        return self._shared.buffer(c, self._length(c))

    def __call__(self, come_home: bool) -> Iterator[tuple[int, int]]:
        """Yield the numbers of a row block and a column block. Collective.

        The caller may change the data of both.

        Parameters
        ----------
        come_home : bool
            Whether column blocks return at the end to the processes where they began.
        """
        from mpi4py import MPI

        last = self._legs[-1]
        for leg in self._legs:
            travel = come_home or leg is not last
            if travel:
                MPI.Prequest.Startall(leg.receives)
            for visit in leg.visits:
                if visit.arriving:
                    self._wait([visit.arriving])
                yield visit.row_block, visit.column_block
                if travel and visit.departing:
                    visit.departing.Start()
                if leg.filled:
                    # lets the library make progress while we compute
                    MPI.Request.Testall(leg.filled)
            if travel:
                self._wait(leg.sends)
        if come_home:
            self._wait(last.receives)

    def _wait(self, requests: list[MPI.Prequest]) -> None:
        """Wait for requests, which counts as ``exchange``."""
        from mpi4py import MPI

        begin = self._ring.phases.enter()
        MPI.Request.Waitall(requests)
        self._ring.phases.leave("exchange", begin)
