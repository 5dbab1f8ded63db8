"""Partition of the ratings: block boundaries, owners of row blocks, and holders of column blocks.

Rows and columns are cut into `grid` blocks each, which gives `grid` x `grid` cells. Process `rank`
of `size` owns a contiguous range of row blocks. Part t consists of the cells (b, (b + t) mod grid)
for all row blocks b.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import isqrt
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Int64

#: Cost of a message, in units of the time in which a process receives and adds one float64. Within
#: a node, a message took 1.4 microseconds, and a float64 took 0.9 ns. The ratio is similar in
#: networks between nodes.
MESSAGE_COST = 1600


def block_bounds(prefix: Int64, grid: int) -> Int64:
    """Cut entities into `grid` contiguous ranges with nearly equal numbers of ratings.

    Parameters
    ----------
    prefix : (n + 1,) int64
        Number of ratings before each entity (a CSR ``indptr``).
    grid : int
        Number of ranges, at most n.

    Returns
    -------
    (grid + 1,) int64
        Boundaries; every range has at least one entity.

    Raises
    ------
    ValueError
        If there are fewer entities than ranges.
    """
    n = len(prefix) - 1
    if not 1 <= grid <= n:
        raise ValueError(f"cannot cut {n} entities into {grid} ranges")
    targets = [(int(prefix[-1]) * b) // grid for b in range(grid + 1)]
    bounds = np.searchsorted(prefix, targets, side="left").astype(np.int64)
    bounds[0] = 0
    bounds[-1] = n
    # every range needs an entity, even if one entity has most of the ratings
    for b in range(1, grid):
        bounds[b] = min(max(bounds[b], bounds[b - 1] + 1), n - (grid - b))
    return bounds


def blocks_of(rank: int, size: int, grid: int) -> range:
    """Return the row blocks that process `rank` of `size` owns."""
    return range(rank * grid // size, (rank + 1) * grid // size)


def owner(block: int, size: int, grid: int) -> int:
    """Return the process, of `size` processes, that owns row block `block`."""
    return ((block + 1) * size - 1) // grid


def column_of(row_block: int, part: int, grid: int) -> int:
    """Return the column block that is paired with row block `row_block` in part `part`."""
    return (row_block + part) % grid


def row_of(column_block: int, part: int, grid: int) -> int:
    """Return the row block whose owner holds column block `column_block` during part `part`."""
    return (column_block - part) % grid


class Route(NamedTuple):
    """Column blocks that a process sends and receives between two parts.

    Attributes
    ----------
    arriving : dict of int to int
        Source process of every column block that arrives from another process.
    departing : dict of int to int
        Destination process of every column block that departs to another process.
    order : tuple of int
        Row blocks of this process in working order: first the row blocks whose column blocks
        depart.
    """

    arriving: dict[int, int]
    departing: dict[int, int]
    order: tuple[int, ...]


@lru_cache(maxsize=1024)
def route(rank: int, size: int, grid: int, *, part: int, after: int) -> Route:
    """Return the route of the column blocks of process `rank` of `size` between two parts."""
    blocks = blocks_of(rank, size, grid)
    if size == 1:
        return Route({}, {}, tuple(blocks))

    def others(holding: int, other: int) -> dict[int, int]:
        """Return the other processes that hold, in part `other`, our columns of part `holding`."""
        columns = [column_of(b, holding, grid) for b in blocks]
        holders = {c: owner(row_of(c, other, grid), size, grid) for c in columns}
        return {c: holder for c, holder in holders.items() if holder != rank}

    arriving = others(holding=after, other=part)
    departing = others(holding=part, other=after)
    order = sorted(blocks, key=lambda b: column_of(b, part, grid) not in departing)
    return Route(arriving, departing, tuple(order))


class Slice(NamedTuple):
    """Elements `begin` to `end` of a sum over blocks, and the process that adds them."""

    process: int
    begin: int
    end: int

    @property
    def width(self) -> int:
        """Number of elements."""
        return self.end - self.begin


@lru_cache(maxsize=1024)
def slices_of(width: int, addends: int, size: int) -> tuple[Slice, ...]:
    """Cut a sum over blocks into slices, each added by one process; the root adds the first slice.

    If the root adds the whole sum, it receives `size` messages with addends * width elements in
    total. With n slices, a process receives addends * width / n elements, but every process sends n
    more messages, and the root receives n more messages. The total cost is smallest for n^2 =
    addends * width / (2 `MESSAGE_COST`). If this n is 2 or more, n slices cost less than one slice.

    Parameters
    ----------
    width : int
        Number of elements of the sum.
    addends : int
        Number of arrays to add, over all blocks.
    size : int
        Number of processes.
    """
    cheapest = isqrt(addends * width // (2 * MESSAGE_COST))
    # for a single column, NumPy adds in a different order
    number = max(1, min(cheapest, size, width // 2))
    edges = pairwise(s * width // number for s in range(number + 1))
    return tuple(Slice(s * size // number, *ends) for s, ends in enumerate(edges))


def chain_group(rank: int, size: int, chains: int) -> tuple[int, int]:
    """Return the group of process `rank` of `size`, and the number of groups, for some chains.

    There are G = min(size, chains) groups of consecutive processes. Group g runs the chains g, g +
    G, ...
    """
    groups = min(size, chains)
    return owner(rank, groups, size), groups
