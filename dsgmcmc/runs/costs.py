"""Estimates memory, messages and disk space of a run from its settings and the size of the data."""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple

import numpy as np

from dsgmcmc.config.chain import KEPT_CHECKPOINTS
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.kernels.compact_ratings import index_type
from dsgmcmc.kernels.normal_rows import statistics_width
from dsgmcmc.model.likelihoods.ordinal.logit_moves import WINDOW_WIDTH
from dsgmcmc.model.parts.base import FileFacts
from dsgmcmc.model.parts.time_groups import costs_of, time_levels_of
from dsgmcmc.model.quantity import Quantities
from dsgmcmc.orientation import Orientation
from dsgmcmc.parallel.partition import owner
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.checkpoint import MIN_DRAW_BYTES
from dsgmcmc.storage.store import MAX_WRITERS
from dsgmcmc.targets.state import BlockLayout
from dsgmcmc.types import Factor, Int64

INTERPRETER_BYTES = 200_000_000  # Python and its libraries
TEST_RATING_BYTES = 16  # a test rating: value, position, row and column
#: Predictions of a test rating: the last one, their mean, and their sum of squared deviations (m2).
TEST_BYTES = 12
TEST_SAVED_BYTES = 8  # mean and m2 of these predictions
#: Current or mean noise variance of a test rating, if noise differs between users or items.
TEST_NOISE_BYTES = 4
WEIGHT_BYTES = 12  # a rating's weight in Gibbs sampling, and its position among the transposed ones
MOMENTS = 2  # number of arrays of moments: mean and m2


class Costs(NamedTuple):
    """Costs of a run: all in bytes, except the number `files_per_checkpoint`.

    Attributes
    ----------
    memory_per_process : int
        Memory of the largest process: the interpreter with its libraries, ratings, state,
        accumulators, buffers for writing a checkpoint, and the sums of a sampler that draws rows
        from their conditional distributions.
    sent_per_sweep : int
        Column blocks that the processes of a chain send to each other in a sweep, on average.
        Messages for evaluation and ordered sums are left out, and so are tours that renew a metric.
    checkpoint : int
        Disk space of one checkpoint of one chain, without its saved draws.
    files_per_checkpoint : int
        Largest number of files that a checkpoint of all chains adds. Each chain's state needs one
        file per writing process and a manifest; its new draws need as many again. The files of the
        state are removed later.
    disk_least, disk_most : int
        Bounds on the disk space of a finished run: checkpoints, posteriors and saved draws of all
        chains.
    """

    memory_per_process: int
    sent_per_sweep: int
    checkpoint: int
    files_per_checkpoint: int
    disk_least: int
    disk_most: int

    @classmethod
    def estimate(cls, config: ResolvedConfig, ratings: Ratings, processes: int) -> Costs:
        """Estimate the costs of a run on `processes` processes in total."""
        rows = ratings.n_rows
        columns = ratings.n_cols
        groups = min(processes, config.chains)
        size = -(-processes // groups)  # processes per chain
        share = -(-config.grid // size) / config.grid  # of the blocks, on the fullest process
        quantities = config.quantities_for(ratings)
        draw_bytes = quantities.drawn_elements({Factor.W: rows, Factor.H: columns}) * 4
        noise_bytes = _noise_bytes(config, ratings)
        moments = MOMENTS * draw_bytes
        test_bytes = ratings.nnz_test * (TEST_SAVED_BYTES + noise_bytes)
        normal = config.law.is_conditionally_gaussian()
        time_levels = time_levels_of(config.times, ratings.orientation)
        grouped, effects = costs_of(time_levels, ratings, normal)
        width = row_width(config, quantities)
        checkpoint = (rows + columns) * width * 4 + moments + test_bytes + effects
        draws = _SavedDraws.estimate(config)

        pending = min(draws.largest * draw_bytes, max(checkpoint, MIN_DRAW_BYTES))
        open_chains = 1
        if config.until:
            open_chains = -(-config.chains // groups)
        accumulators = moments + ratings.nnz_test * (TEST_BYTES + 2 * noise_bytes)
        row_values = width + config.dimension * len(config.make_sampler().working)
        per_chain = share * (rows + columns) * row_values * 4 + share * (accumulators + pending)
        shared = grouped + share * checkpoint + _ratings(config, ratings, share)

        permanent = checkpoint + moments + test_bytes  # a checkpoint and the posterior
        most = permanent + KEPT_CHECKPOINTS * checkpoint + draws.most_on_disk * draw_bytes
        return cls(
            memory_per_process=INTERPRETER_BYTES + int(shared + open_chains * per_chain),
            sent_per_sweep=round(_sent(config, ratings, size, quantities)),
            checkpoint=checkpoint,
            files_per_checkpoint=2 * config.chains * (min(size, MAX_WRITERS) + 1),
            disk_least=config.chains * (permanent + draws.least * draw_bytes),
            disk_most=config.chains * most,
        )


class _SavedDraws(NamedTuple):
    """Bounds on the number of saved draws of a chain.

    Attributes
    ----------
    least, largest : int
        Smallest and largest number of draws that are kept.
    most_on_disk : int
        Largest number of draws that are on disk.
    """

    least: int
    largest: int
    most_on_disk: int

    @classmethod
    def estimate(cls, config: ResolvedConfig) -> _SavedDraws:
        """Return the bounds for a run."""
        draws = max(config.iterations - config.burn_in, 0) // config.thin
        max_saved = max(2 * config.save_draws - 1, 0)
        # a snapshot of draws is removed once none of its draws is kept; the spacing of kept draws
        # doubles
        doublings = 0
        if draws > max_saved > 0:
            doublings = ceil(log2(draws / max_saved))
        most = max_saved + doublings * max(config.save_draws - 1, 0)
        return cls(
            least=min(config.save_draws, draws),
            largest=min(max_saved, draws),
            most_on_disk=min(draws, most),
        )


def _noise_bytes(config: ResolvedConfig, ratings: Ratings) -> int:
    """Return the bytes for the noise of a test rating, and for the probabilities of its levels."""
    levels = config.law.levels_of(ratings)
    if levels is not None:  # the variance of each rating, and the probabilities of its levels
        return TEST_NOISE_BYTES * (1 + len(levels))
    if config.noise == "shared":
        return 0
    return TEST_NOISE_BYTES


def _ratings(config: ResolvedConfig, ratings: Ratings, share: float) -> float:
    """Return the memory in bytes for this share of the ratings.

    A sampler that draws rows from their conditional distributions also needs the transposed
    ratings, and the sums for the rows of one factor.
    """
    rows = ratings.n_rows
    columns = ratings.n_cols
    counts = 2 * (rows + columns) * 8  # of all rows and columns, on every process
    test_bytes = ratings.nnz_test * TEST_RATING_BYTES
    total = share * (_cell_bytes(config.grid, ratings, rows, columns) + test_bytes) + counts
    if not config.sampler.algorithm.draws_conditionals:
        return total
    buffers = 1 if share == 1 else 3  # columns that are sent are in three buffers
    summed = max(rows, columns * buffers)
    sums = float(summed * statistics_width(config.dimension) * 4)
    if not config.law.is_conditionally_gaussian():
        total += share * ratings.nnz * WEIGHT_BYTES
    return total + share * (_cell_bytes(config.grid, ratings, columns, rows) + sums)


def _cell_bytes(grid: int, ratings: Ratings, n_rows: int, n_columns: int) -> float:
    """Return the bytes of all cells: the ratings, and where each row starts."""
    columns_per_cell = -(-n_columns // grid)
    index_bytes = np.dtype(index_type(columns_per_cell)).itemsize  # a rating's column in its cell
    row_starts = (n_rows + grid) * grid * 8
    return float(ratings.nnz * (index_bytes + ratings.value_bytes) + row_starts)


# ---------------------------------------------------------------------- messages


def row_width(config: ResolvedConfig, quantities: Quantities) -> int:
    """Return the float32 values per row, in a checkpoint and in a message with a block."""
    kept = BlockLayout(config.make_sampler().kept, config.dimension)
    return kept.width + quantities.width_of_rows()


def _sent_on_tours(config: ResolvedConfig, quantities: Quantities) -> int:
    """Return the float32 values per column that an iteration on all ratings sends.

    They are those of all steps of its tours.
    """
    rank = config.dimension
    file = FileFacts(Orientation(transposed=False), {})
    noise = sum(
        quantity.width(quantities.sizes)
        for quantity in config.law.quantities_of(config, config.facts, file)
        if quantity.of_rows
    )
    if config.sampler.algorithm.draws_conditionals:
        # positions and noise scales, then the sums for the columns, which return
        positions = (rank + min(noise, 1)) * (config.grid - 1)
        if not config.law.is_conditionally_gaussian():
            # also for moves of elements of rows and of columns, whose places return, and weights
            positions *= 3
            positions += (rank + WINDOW_WIDTH) * config.grid
        return positions + statistics_width(rank) * config.grid
    # the position, its gradient, and the likelihood's fields, all of which return
    return (2 * rank + noise) * config.grid


def _sent(config: ResolvedConfig, ratings: Ratings, size: int, quantities: Quantities) -> float:
    """Return the bytes of column blocks that a chain on `size` processes sends in a sweep.

    It is a mean over sweeps.
    """
    grid = config.grid
    owners = np.array([owner(b, size, grid) for b in range(grid)])
    value_bytes = 4 * ratings.n_cols / grid  # a block with one value per column
    share_sent = _share_leaving(owners, 1)
    if config.sweep_length == 1:  # every iteration makes the tours
        return float(value_bytes * grid * share_sent * _sent_on_tours(config, quantities))
    if config.schedule != "cyclic":
        # all nonzero shifts are equally likely; in a random schedule, or between two sweeps, a part
        # may follow itself
        repeated = 1 / grid if config.schedule == "random" else 1 / grid**2
        leaving = sum(_share_leaving(owners, shift) for shift in range(1, grid))
        share_sent = (1 - repeated) * leaving / max(grid - 1, 1)
    moves = config.sweep_length * grid * share_sent
    return float(value_bytes * row_width(config, quantities) * moves)


def _share_leaving(owners: Int64, shift: int) -> float:
    """Return the share of column blocks that change process if each moves on by some row blocks.

    Parameters
    ----------
    owners : (grid,) int
        Process of each row block.
    shift : int
        Number of row blocks.
    """
    return float(np.mean(owners != np.roll(owners, shift)))
