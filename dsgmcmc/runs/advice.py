"""Which nodes, processes and blocks to choose for a run on a cluster, by `dsgmcmc.runs.forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from dsgmcmc.cluster.constants import Machine
from dsgmcmc.config.run import RunConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.runs.forecast import Forecast, Nodes, column_bytes
from dsgmcmc.runs.plan import MAX_COUNT
from dsgmcmc.settings import named

BLOCKS = (1, 2, 3, 4, 8)  # numbers of row blocks per process that are tried
FEW = (4, 8, 16, 32, 64, 128, 256, 512, 768, 1024)  # numbers of blocks that are tried as well
MAX_GRID = 32767  # largest value of `--grid`
WORTH = 1.4  # doubling the processes is worth it if a sweep gets at least this many times faster
NEARLY = 0.95  # of the best speed is enough, with fewer processes

#: Why a doubling is no longer worth it, by the part of a sweep that loses most compared with perfect scaling.
REASONS = {
    "ratings": "row blocks cannot be shared out evenly, or column blocks no longer fit the caches",
    "visits": "too few ratings per row: it meets B column blocks in a sweep, and has few ratings with each",
    "updates": "row blocks cannot be shared out evenly",
    "calls": "too little work in a cell: the calls of the kernels take longer than the kernels",
    "differences": "too few ratings in a cell: processes wait for the one that happens to have more",
    "exchange": "exchange is no longer hidden: sending a block takes longer than the work on the others",
    "sums": "ordered sums: process 0 receives a message from every process, and adds the sums of all blocks",
}


@dataclass(frozen=True)
class Node:
    """A kind of node, and the links between them.

    Attributes
    ----------
    cores : int
        Processes that a node has cores for.
    memory : float
        Bytes of a node.
    bandwidth, latency, overlap : float
        See `Nodes`.
    """

    cores: int
    memory: float
    bandwidth: float
    latency: float
    overlap: float = 1.0

    def nodes(self, number: int, processes: int) -> Nodes:
        """`number` nodes of this kind, with `processes` processes each."""
        return Nodes(number, processes, self.bandwidth, self.latency, self.overlap)


def forecasts(
    asked: RunConfig, ratings: Ratings, machine: Machine, nodes: Nodes, grid: int | None = None
) -> list[Forecast]:
    """Forecasts for several numbers of blocks, or for `grid` alone, the fastest first.

    Those whose column blocks are larger than any that was measured come last: what ratings cost there is not known.

    Parameters
    ----------
    asked : RunConfig
        Settings of the run, but for its grid.
    ratings : Ratings
    machine : Machine
    nodes : Nodes
    grid : int, optional
        Number of blocks B.

    Raises
    ------
    InputError
        If there are more processes than blocks, or no number of blocks is possible.
    """
    possible = []
    for blocks in [grid] if grid else sorted({*FEW, *(nodes.all * each for each in BLOCKS)}):
        if not nodes.all <= blocks <= min(MAX_GRID, ratings.n_cols):
            continue
        config = asked.model_copy(update={"grid": blocks}).resolved()
        forecast = Forecast.of(config, ratings, machine, nodes)
        if forecast.message // 4 <= MAX_COUNT:
            measured = machine.work_of(config.sampler.name, config.noise, config.rank).column_bytes
            possible.append((column_bytes(config, ratings.n_cols) > max(measured), forecast))
    if not possible:
        most, asked_for = min(MAX_GRID, ratings.n_cols), f" with {named('grid')} {grid}" if grid else ""
        raise InputError(
            f"{nodes.all:,} processes{asked_for} are not possible here: B is at least the "
            f"number of processes and at most {most:,}, and a message has at most {MAX_COUNT:,} numbers"
        )
    return [forecast for _, forecast in sorted(possible, key=lambda each: (each[0], each[1].seconds))]


def choose(
    asked: RunConfig, ratings: Ratings, machine: Machine, node: Node, number: int, processes: int | None = None
) -> tuple[int, Forecast]:
    """Number of processes per node and forecast: the fewest processes that are nearly as fast as any other number.

    Parameters
    ----------
    asked : RunConfig
        Settings of the run; its grid is kept if it is set.
    ratings : Ratings
    machine : Machine
    node : Node
    number : int
        Number of nodes.
    processes : int, optional
        Processes per node, if they are not to be chosen.

    Raises
    ------
    InputError
        If the run does not fit on these nodes.
    """
    possible: list[tuple[int, Forecast]] = []
    least = float("inf")
    why: InputError | None = None
    for each in [processes] if processes else counts(node.cores):
        try:
            tried = forecasts(asked, ratings, machine, node.nodes(number, each), asked.grid)
        except InputError as error:
            why = why or error
            continue
        least = min(least, *(each * forecast.memory_per_process for forecast in tried))
        fit = [forecast for forecast in tried if each * forecast.memory_per_process <= node.memory]
        possible += [(each, fit[0])] if fit else []
    if not possible:
        if why and least == float("inf"):
            raise why
        raise InputError(
            f"the run does not fit: a node would need {least / 1e9:,.1f} GB at least, and has {node.memory / 1e9:,.1f} "
            f"GB; take more nodes, or a smaller {named('rank')}"
        )
    best = min(forecast.seconds for _, forecast in possible)
    return next(pair for pair in possible if pair[1].seconds * NEARLY <= best)


def counts(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`, and `most` itself."""
    return sorted({*(1 << bit for bit in range(most.bit_length())), most})


@dataclass(frozen=True)
class Curve:
    """Forecasts of a sweep for a growing number of processes.

    Attributes
    ----------
    forecasts : list of Forecast
        For 1, 2, 4, ... processes, each with the best number of blocks.
    alone : float
        Seconds of a sweep of one process, if its memory were large enough.
    last : int or None
        Number of processes that is not worth doubling; None if the curve ends before.
    reason : str
        Why.
    """

    forecasts: Sequence[Forecast]
    alone: float
    last: int | None
    reason: str

    def efficiency(self, forecast: Forecast) -> float:
        """Speed per process, relative to one process alone."""
        return self.alone / (forecast.processes * forecast.seconds)


def curve(asked: RunConfig, ratings: Ratings, machine: Machine, node: Node, processes: int, most: int) -> Curve:
    """Forecast 1, 2, 4, ... processes, up to `most`, on nodes with `processes` processes each.

    Parameters
    ----------
    asked : RunConfig
        Settings of the run; its grid is ignored: every number of processes gets its best one.
    ratings : Ratings
    machine : Machine
    node : Node
    processes : int
        Processes on a full node.
    most : int
        Largest number of processes.
    """
    points: list[Forecast] = []
    number = 1
    while number <= most:
        nodes = node.nodes(-(-number // processes), min(number, processes))
        try:
            points.append(forecasts(asked, ratings, machine, nodes)[0])
        except InputError:
            break
        number *= 2
    first = points[0]
    for one, two in pairwise(points):
        if one.seconds / two.seconds < WORTH:
            lost = {name: getattr(two, name) - getattr(first, name) / two.processes for name in Forecast.PARTS}
            return Curve(points, first.seconds, one.processes, REASONS[max(lost, key=lost.__getitem__)])
    reason = "" if number > most else f"a grid of more than {points[-1].grid:,} blocks is not possible"
    return Curve(points, first.seconds, None, reason)


def checkpoint_interval(cost: float, mtbf: float) -> float:
    """Seconds between checkpoints that waste the least time, [Young 1974] as refined by [Daly 2006, eq. 37].

    Parameters
    ----------
    cost : float
        Seconds that a checkpoint takes, C.
    mtbf : float
        Mean seconds between failures of the whole job, M.

    Returns
    -------
    float
        sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for C < 2 M, else M.

    References
    ----------
    [Young 1974] J. W. Young: A first order approximation to the optimum checkpoint interval. CACM 17.
    [Daly 2006] J. T. Daly: A higher order estimate of the optimum checkpoint interval for restart dumps. FGCS 22.
    """
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return sqrt(2 * cost * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost
