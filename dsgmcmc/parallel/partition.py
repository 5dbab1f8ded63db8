"""Who owns what: block boundaries, owners of row blocks, processes that hold column blocks. Pure arithmetic.

Rows and columns are each cut into `grid` blocks, which gives `grid` x `grid` cells; process `rank` of `size` owns a
contiguous range of row blocks; part t consists of the cells of row block b and column block (b + t) mod grid.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Int64


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


def chain_group(rank: int, size: int, chains: int) -> tuple[int, int]:
    """Group of process `rank` when `chains` chains share `size` processes, and the number of groups.

    There are min(size, chains) groups of contiguous processes; group g runs chains g, g + groups, ...
    """
    groups = min(size, chains)
    return owner(rank, groups, size), groups
