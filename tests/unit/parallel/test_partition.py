"""Owners, ranges and groups for every number of processes: a mistake here is a deadlock on a
cluster.
"""

from itertools import pairwise

import numpy as np
import pytest

from dsgmcmc.parallel import partition


@pytest.mark.parametrize("grid", [1, 2, 5, 12, 24])
def test_owner_is_the_inverse_of_blocks_of(grid: int) -> None:
    """Every row block has one owner, ranges are contiguous, and no process has two blocks more than
    another.
    """
    for size in range(1, grid + 1):
        ranges = [partition.blocks_of(rank, size, grid) for rank in range(size)]
        assert [b for blocks in ranges for b in blocks] == list(range(grid))
        assert all(
            partition.owner(b, size, grid) == rank
            for rank, blocks in enumerate(ranges)
            for b in blocks
        )
        lengths = [len(blocks) for blocks in ranges]
        assert min(lengths) >= 1
        assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("grid", [1, 2, 5, 8])
def test_every_block_that_is_sent_is_received(grid: int) -> None:
    """Departing blocks are worked on first, and every process works on all of its row blocks."""
    for size in range(1, grid + 1):
        for part, after in np.ndindex(grid, grid):
            routes = [
                partition.route(rank, size, grid, part=part, after=after) for rank in range(size)
            ]
            sent = {
                (rank, to, c) for rank, way in enumerate(routes) for c, to in way.departing.items()
            }
            received = {
                (source, rank, c)
                for rank, way in enumerate(routes)
                for c, source in way.arriving.items()
            }
            assert sent == received
            for rank, way in enumerate(routes):
                stays = [partition.column_of(b, part, grid) not in way.departing for b in way.order]
                assert stays == sorted(stays)
                assert sorted(way.order) == list(partition.blocks_of(rank, size, grid))


@pytest.mark.parametrize("counts", ["equal", "skewed", "empty tail", "one giant", "none"])
def test_block_bounds_are_non_empty_and_balanced(counts: str) -> None:
    """Ranges cover all entities in order and differ from equal shares by no more than one entity's
    ratings.
    """
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 20, 61):
        per_entity = {
            "equal": np.full(n, 3),
            "skewed": (rng.pareto(1.0, n) * 10).astype(int),
            "empty tail": np.where(np.arange(n) < n // 2, 5, 0),
            "one giant": np.where(np.arange(n) == n // 3, 1000, 1),
            "none": np.zeros(n, int),
        }[counts]
        prefix = np.concatenate([[0], np.cumsum(per_entity)]).astype(np.int64)
        for grid in range(1, n + 1):
            bounds = partition.block_bounds(prefix, grid)
            assert bounds.dtype == np.int64
            assert (bounds[0], bounds[-1], len(bounds)) == (0, n, grid + 1)
            assert (np.diff(bounds) >= 1).all()
            if counts in ("equal", "skewed"):  # elsewhere "one entity at least" decides
                cut = np.diff(prefix[bounds])
                longest_forced = np.diff(bounds) == 1
                fair = prefix[-1] / grid + per_entity.max()
                assert (cut[~longest_forced] <= fair).all()


def test_chain_groups_are_contiguous_and_share_the_chains() -> None:
    """min(P, C) groups of contiguous processes, sizes differing by one; each chain is run by
    exactly one.
    """
    for size in range(1, 17):
        for chains in range(1, 17):
            answers = [partition.chain_group(rank, size, chains) for rank in range(size)]
            groups = answers[0][1]
            assert groups == min(size, chains)
            assert {count for _, count in answers} == {groups}
            numbers = [group for group, _ in answers]
            assert set(numbers) == set(range(groups))
            assert all(b - a in (0, 1) for a, b in pairwise(numbers))
            sizes = np.bincount(numbers)
            assert sizes.max() - sizes.min() <= 1
            run = sorted(chain for group in range(groups) for chain in range(group, chains, groups))
            assert run == list(range(chains))


@pytest.mark.parametrize("width", [1, 3, 2252, 700_000])
@pytest.mark.parametrize("size", [2, 3, 1024])
def test_slices_are_a_sum_and_cost_no_more_than_one(size: int, width: int) -> None:
    """Every element has one process, none adds two slices or a single column; several slices cost
    less than one.
    """
    slices = partition.slices_of(width, size, size)
    assert slices[0].process == slices[0].begin == 0
    assert slices[-1].end == width
    assert all(one.end == after.begin for one, after in pairwise(slices))
    processes = [part.process for part in slices]
    widths = [part.width for part in slices]
    assert len(set(processes)) == len(slices)
    assert set(processes) <= set(range(size))
    assert min(widths) >= min(2, width)
    if len(slices) > 1:
        assert size * max(widths) + 2 * len(slices) * partition.MESSAGE_COST < size * width
