"""Forecast of the time of a sweep on other machines: a model with a few measured constants.

    seconds of a sweep = work of the process that has the most              (`Counts`, times `Work`)
                       + waiting, since cells differ in their number of ratings
                       + exchange that is not hidden behind the work
                       + ordered sums

*Work* is the number of ratings, members, visits, updates, cells and blocks of a sweep, each times its cost; the machine
file is fitted to the same counts. The share of a process is that of the row blocks that it owns. A *member* is a row or
a column of a cell; a *visit* is a row that has ratings there: a row of n ratings, spread at random, has some in
B (1 - (1 - 1/B)^n) of its B cells. Several processes take longer for a cell than one alone.

*Exchange.* In every step of a tour each process sends one block to its neighbour and receives one, while it works on
its other blocks: n - 1 of its n cells. The calls of a step count as work. Between nodes a network card moves the block
meanwhile, so processes wait only if that takes longer; before a long one is sent, the receiver says that it is ready.
Within a node a block in shared memory (`dsgmcmc.parallel.shared_buffers`) is not moved; a larger one is copied by the
processor, and nothing is hidden. All processes step together, so the slowest link counts. With parts in random order,
blocks go to processes on any node, and all processes of a node share its link; with a tour only one uses it.

*Sums.* Process 0 receives a message from every other one, adds B times as many numbers as a block has, and the result
goes down a tree. Of a wide sum it adds one slice, and receives the others from those that add them.

*Differences.* Cells have about m ratings, with a variance of m where rows and columns are rated at random; of P
processes the slowest has about sqrt(2 ln P) standard deviations more than the average.

Draws, evaluation and checkpoints are not included: the model is of sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log, log2, sqrt
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dsgmcmc.cluster.constants import Machine, Work
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings.context import NO_CONTEXT
from dsgmcmc.parallel.partition import block_bounds, slices_of
from dsgmcmc.parallel.shared_buffers import LARGEST
from dsgmcmc.runs.plan import BlockMoves, Costs, moves
from dsgmcmc.types import Float64

#: Bytes of a message that is sent before the receiver has said that there is room for it: Open MPI's over TCP.
EAGER = 1 << 16
INTERPRETER = 200_000_000  # bytes of Python and its libraries


class Sizes(Ratings):
    """The sizes of a ratings file, in place of the file.

    Parameters
    ----------
    users, items, ratings : int
        Numbers of users, items and training ratings; the longer side becomes the rows.
    test : int
        Number of test ratings.
    """

    value_bytes = 1

    def __init__(self, users: int, items: int, ratings: int, test: int = 0) -> None:
        self.path = Path("none")
        self.n_rows, self.n_cols, self.transposed = max(users, items), min(users, items), items > users
        self.nnz, self.nnz_test, self.features, self.times, self.context = ratings, test, {}, None, NO_CONTEXT

    def levels(self, most: int) -> Float64:
        """See `Ratings.levels`: half stars."""
        return np.arange(1, 11) / 2


@dataclass(frozen=True)
class Nodes:
    """The machines of a run.

    Attributes
    ----------
    nodes, processes : int
        Nodes, and processes on each.
    bandwidth : float
        Bytes per second of a node's link, in each direction.
    latency : float
        Seconds that a tiny message between nodes takes.
    overlap : float
        Fraction of a message between nodes that moves while the processor computes: 1 if network cards need no help.
    """

    nodes: int
    processes: int
    bandwidth: float
    latency: float
    overlap: float = 1.0

    @property
    def all(self) -> int:
        """Processes on all nodes."""
        return self.nodes * self.processes


@dataclass(frozen=True)
class Counts:
    """Counts of a sweep, for the process that has the most to do.

    Attributes
    ----------
    ratings, members, visits, updates, cells, blocks, iterations : float
        See `dsgmcmc.cluster.constants.Work`.
    """

    ratings: float
    members: float
    visits: float
    updates: float
    cells: float
    blocks: float
    iterations: float

    #: Names in `Work` of the costs of all counts but the first.
    names: ClassVar[tuple[str, ...]] = ("member", "visit", "update", "cell", "block", "iteration")

    @classmethod
    def of(cls, config: ResolvedConfig, ratings: Ratings, processes: int) -> Counts:
        """Counts of a sweep on `processes` processes."""
        grid, iterations = config.grid, config.sweep_length
        share = ceil(grid / processes) / grid
        rows, columns = ratings.n_rows, ratings.n_cols
        return cls(
            ratings=share * ratings.nnz,
            members=share * (rows + columns) * grid,
            visits=share * rows * grid * (1 - (1 - 1 / grid) ** (ratings.nnz / rows)),
            updates=share * (rows + columns) * iterations,
            cells=share * grid * grid,
            blocks=share * 2 * grid * iterations,
            iterations=iterations,
        )

    @property
    def others(self) -> tuple[float, ...]:
        """All but the ratings, in the order of `names`."""
        return self.members, self.visits, self.updates, self.cells, self.blocks, self.iterations


def column_bytes(config: ResolvedConfig, columns: int) -> float:
    """Bytes of the positions and gradients of an average column block."""
    return columns / config.grid * config.dimension * 8


def largest_block(ratings: Ratings, grid: int) -> int:
    """Columns of the largest column block; columns are in random order, so all blocks are about equal."""
    if isinstance(ratings, Sizes):
        return -(-int(ratings.n_cols) // grid)
    bounds = block_bounds(np.concatenate([[0], np.cumsum(ratings.column_counts)]), grid)
    return int(np.diff(bounds).max())


@dataclass(frozen=True)
class Forecast:
    """Forecast of a sweep on a number of processes.

    Attributes
    ----------
    processes, grid : int
    ratings, visits, updates, calls : float
        Seconds of the process that has the most to do: at ratings, at rows and columns of cells, at updates, and
        between kernels.
    differences, exchange, sums : float
        Seconds of waiting; see the module's docstring.
    sent_per_sweep : float
        Bytes of all column blocks that are sent to another process.
    messages_per_sweep : float
        Number of these messages, of all processes.
    sum_messages_per_sweep : float
        Number of messages with what is added, of all processes.
    sum_bytes_per_sweep : float
        Bytes that process 0 gathers for them, its own among them.
    message : int
        Bytes of the largest message.
    memory_per_process, disk_least, disk_most, checkpoint : int
        See `Costs`; the memory includes the interpreter's.
    """

    processes: int
    grid: int
    ratings: float
    visits: float
    updates: float
    calls: float
    differences: float
    exchange: float
    sums: float
    sent_per_sweep: float
    messages_per_sweep: float
    sum_messages_per_sweep: float
    sum_bytes_per_sweep: float
    message: int
    memory_per_process: int
    disk_least: int
    disk_most: int
    checkpoint: int

    #: Names of the seconds, which add up to a sweep.
    PARTS: ClassVar[tuple[str, ...]] = (
        "ratings",
        "visits",
        "updates",
        "calls",
        "differences",
        "exchange",
        "sums",
    )

    @property
    def seconds(self) -> float:
        """Seconds of a sweep."""
        return float(sum(getattr(self, name) for name in self.PARTS))

    @classmethod
    def of(cls, config: ResolvedConfig, ratings: Ratings, machine: Machine, nodes: Nodes) -> Forecast:
        """Forecast a run with this configuration, whose grid is at least the number of processes."""
        processes, grid = nodes.all, config.grid
        work = machine.work_of(config.sampler.name, config.noise, config.rank)
        counts, costs = Counts.of(config, ratings, processes), Costs.of(config, ratings, processes)
        at_ratings = counts.ratings * work.seconds_per_rating(column_bytes(config, ratings.n_cols))
        members, visits, updates, *calls = (
            count * getattr(work, name) for count, name in zip(counts.others, counts.names, strict=True)
        )
        visits += members
        traffic = list(_traffic(config, ratings, work, processes))
        steps = sum(move.steps * times for move, times in traffic) or 1  # parts of one block stay where they are
        if processes > 1:
            calls[0] += counts.cells * machine.exchange.cell + steps * machine.exchange.step
        touring = at_ratings + visits + calls[0] + (0.0 if config.sweep_length == 1 else updates + sum(calls[1:]))
        column = largest_block(ratings, grid) * 4
        waiting = sum(
            move.steps * times * _exposed(config, machine, nodes, move, move.width * column, touring / steps)
            for move, times in traffic
        )
        in_step = counts.ratings / steps  # ratings of a process between two exchanges
        sums = [(Sum.of(width, processes, grid), times) for times, width in zip(work.sums, work.summed, strict=True)]
        return cls(
            processes=processes,
            grid=grid,
            ratings=at_ratings,
            visits=visits,
            updates=updates,
            calls=sum(calls),
            differences=at_ratings * sqrt(2 * log(processes) / in_step),
            exchange=waiting,
            sums=_sums(machine, nodes, sums),
            sent_per_sweep=sum(ratings.n_cols / grid * move.width * 4 * move.blocks * times for move, times in traffic),
            messages_per_sweep=sum(move.blocks * times for move, times in traffic),
            sum_messages_per_sweep=sum(each.messages * times for each, times in sums),
            sum_bytes_per_sweep=8 * sum(each.received * times for each, times in sums),
            message=max((move.width * column for move, _ in traffic if processes > 1), default=0),
            memory_per_process=costs.memory_per_process + INTERPRETER,
            disk_least=costs.disk_least,
            disk_most=costs.disk_most,
            checkpoint=costs.checkpoint,
        )

    def table(self) -> dict[str, Any]:
        """All attributes by name, with the seconds of a sweep."""
        return {"seconds_per_sweep": self.seconds, **asdict(self)}


def _traffic(
    config: ResolvedConfig, ratings: Ratings, work: Work, processes: int
) -> Iterator[tuple[BlockMoves, float]]:
    """What is sent, and how often in a sweep; the extra tours of a metric send positions and sums."""
    regular = moves(config, processes, config.quantities_for(ratings))
    if config.sweep_length == 1:
        yield from ((move, work.tours / len(regular)) for move in regular)
        return
    yield from ((move, config.sweep_length) for move in regular)
    if work.tours:
        blocks = config.grid * min(processes, config.grid) if processes > 1 else 0.0
        yield BlockMoves(2 * config.dimension, blocks, config.grid), work.tours


def _exposed(
    config: ResolvedConfig, machine: Machine, nodes: Nodes, move: BlockMoves, size: float, computing: float
) -> float:
    """Seconds of a step that are spent only on waiting for a message of `size` bytes, or on copying it."""
    if nodes.all == 1:
        return 0.0
    exchange, cells = machine.exchange, ceil(config.grid / nodes.all)
    copied = 0.0 if move.steps > 1 and size <= LARGEST else size  # a tour uses shared memory
    within = copied / exchange.bandwidth if nodes.processes > 1 else 0.0
    if nodes.nodes == 1:
        return within
    together = nodes.processes if config.sweep_length > 1 and config.schedule != "cyclic" else 1
    link = nodes.latency * (1 if size <= EAGER else 3) + size * together / nodes.bandwidth
    hidden = nodes.overlap * computing * (cells - 1) / cells
    return max(within, link - hidden, 0.0)


class Sum(NamedTuple):
    """One ordered sum: what it costs of messages, by `dsgmcmc.parallel.partition.slices_of`.

    Attributes
    ----------
    messages : int
        Number of messages, of all processes, but for those with the result.
    received : int
        Numbers that process 0 gathers, its own among them.
    turns : int
        Messages that it receives or sends, one after the other, but for those with the result.
    stages : int
        Messages of which each waits for the one before.
    """

    messages: int
    received: int
    turns: int
    stages: int

    @classmethod
    def of(cls, width: float, processes: int, grid: int) -> Sum:
        """Of `width` numbers of a block."""
        slices = slices_of(round(width), grid, processes)
        others, more = processes - 1, len(slices) - 1
        received = grid * slices[0].width + (slices[-1].end if more else 0)
        return cls(len(slices) * others + more, received, others + 2 * more, 1 + (more > 0))


def _sums(machine: Machine, nodes: Nodes, sums: Sequence[tuple[Sum, float]]) -> float:
    """Extra seconds of the ordered sums of a sweep, compared with one process."""
    if nodes.all == 1:
        return 0.0
    exchange, far = machine.exchange, nodes.nodes > 1
    latency = exchange.latency + (nodes.latency if far else 0.0)
    number = 8 / (min(nodes.bandwidth, exchange.bandwidth) if far else exchange.bandwidth) + exchange.added
    tree = ceil(log2(nodes.all))
    return sum(
        times * (each.turns * exchange.message + (each.stages + tree) * latency + each.received * number)
        for each, times in sums
    )
