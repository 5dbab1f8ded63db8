"""Who owns what: block boundaries, owners of row blocks, processes that hold column blocks. Pure arithmetic.

Rows and columns are each cut into `grid` blocks, which gives `grid` x `grid` cells; process `rank` of `size` owns a
contiguous range of row blocks; part t consists of the cells of row block b and column block (b + t) mod grid.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import isqrt
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Int64

#: Numbers that a process receives and adds in the time that one more message takes: 1.4 microseconds, and 0.9 ns a
#: number, measured within a node; networks between nodes differ little.
A_MESSAGE = 1600


def block_bounds(prefix: Int64, grid: int) -> Int64:
    """Cut entities into `grid` contiguous ranges of nearly equal numbers of ratings.

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
    bounds[0], bounds[-1] = 0, n
    for b in range(1, grid):  # at least one entity each, even if one entity has most of the ratings
        bounds[b] = min(max(bounds[b], bounds[b - 1] + 1), n - (grid - b))
    return bounds


def blocks_of(rank: int, size: int, grid: int) -> range:
    """Row blocks that process `rank` of `size` owns."""
    return range(rank * grid // size, (rank + 1) * grid // size)


def owner(block: int, size: int, grid: int) -> int:
    """Process of `size` that owns row block `block`; the inverse of `blocks_of`."""
    return ((block + 1) * size - 1) // grid


def column_of(row_block: int, part: int, grid: int) -> int:
    """Column block that is paired with row block `row_block` in part `part`."""
    return (row_block + part) % grid


def row_of(column_block: int, part: int, grid: int) -> int:
    """Row block whose owner holds column block `column_block` during part `part`."""
    return (column_block - part) % grid


class Route(NamedTuple):
    """Column blocks that a process sends and receives between two parts, which have them in different places.

    Attributes
    ----------
    arriving : dict of int to int
        By column block that comes from another process, that process.
    departing : dict of int to int
        By column block that goes to another process, that process.
    order : tuple of int
        Row blocks of this process in the order in which to work on them: those whose column blocks depart come first.
    """

    arriving: dict[int, int]
    departing: dict[int, int]
    order: tuple[int, ...]


@lru_cache(maxsize=1024)
def route(rank: int, size: int, grid: int, part: int, after: int) -> Route:
    """The route of process `rank` of `size` from one part to another."""
    blocks = blocks_of(rank, size, grid)
    if size == 1:
        return Route({}, {}, tuple(blocks))
    coming = {c: owner(row_of(c, part, grid), size, grid) for c in (column_of(b, after, grid) for b in blocks)}
    going = {c: owner(row_of(c, after, grid), size, grid) for c in (column_of(b, part, grid) for b in blocks)}
    arriving, departing = ({c: p for c, p in blocks.items() if p != rank} for blocks in (coming, going))
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
    """Cut a sum over blocks into slices, each of which one process adds; the first is the root's.

    One process takes in `size` messages with addends * width numbers. With n slices it takes in those of one slice, and
    n more messages leave every process and reach the root. The sum of both is least for n^2 = addends * width / (2
    `A_MESSAGE`), and from n = 2 on less than with one slice.

    Parameters
    ----------
    width : int
        Elements of the sum.
    addends : int
        Arrays that are added, of all blocks.
    size : int
        Number of processes.
    """
    number = isqrt(addends * width // (2 * A_MESSAGE))
    number = max(1, min(number, size, width // 2))  # a single column NumPy adds in another order
    edges = pairwise(s * width // number for s in range(number + 1))
    return tuple(Slice(s * size // number, *ends) for s, ends in enumerate(edges))


def chain_group(rank: int, size: int, chains: int) -> tuple[int, int]:
    """Group of process `rank` when `chains` chains share `size` processes, and the number of groups.

    There are min(size, chains) groups of contiguous processes; group g runs chains g, g + groups, ...
    """
    groups = min(size, chains)
    return owner(rank, groups, size), groups
