"""Estimates memory, messages and disk space of a run from its configuration and the sizes of the
data.
"""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple

import numpy as np

from dsgmcmc.config.chain import KEPT_CHECKPOINTS
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.kernels.normal_rows import statistics_width
from dsgmcmc.kernels.stored import index_type
from dsgmcmc.model.parts.time_groups import costs_of, time_levels_of
from dsgmcmc.model.quantity import Quantities
from dsgmcmc.parallel.partition import owner
from dsgmcmc.runs.checkpoint import MIN_DRAW_BYTES
from dsgmcmc.storage.store import MAX_WRITERS
from dsgmcmc.targets.state import BlockLayout
from dsgmcmc.types import Factor

INTERPRETER_BYTES = 200_000_000  # Python and its libraries
TEST_RATING_BYTES = 16  # a test rating: value, position, row and column
TEST_BYTES = 12  # predictions of a test rating: the last one, their mean, and their sum of squared deviations (m2)
TEST_SAVED_BYTES = 8  # mean and m2 of these predictions
TEST_NOISE_BYTES = (
    4  # current or mean noise variance of a test rating, if noise differs between users or items
)
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
    def of(cls, config: ResolvedConfig, ratings: Ratings, processes: int) -> Costs:
        """Estimate the costs of a run on `processes` processes in total."""
        grid, rows, columns = config.grid, ratings.n_rows, ratings.n_cols
        size = -(-processes // min(processes, config.chains))  # processes per chain
        share = -(-grid // size) / grid  # of the blocks, on the process with the most blocks
        quantities = config.quantities_for(ratings)
        draw_bytes = quantities.drawn_elements({Factor.W: rows, Factor.H: columns}) * 4
        noise_bytes = TEST_NOISE_BYTES * int(config.noise != "shared")
        levels = config.law.levels_of(ratings)
        if levels is not None:  # the variance of each rating, and the probabilities of its levels
            noise_bytes = TEST_NOISE_BYTES * (1 + len(levels))
        moments, test_bytes = (
            MOMENTS * draw_bytes,
            ratings.nnz_test * (TEST_SAVED_BYTES + noise_bytes),
        )
        normal = config.law.is_conditionally_gaussian()
        grouped, effects = costs_of(
            time_levels_of(config.times, ratings.transposed), ratings, normal
        )
        width = row_width(config, quantities)
        checkpoint = (rows + columns) * width * 4 + moments + test_bytes + effects
        draws = max(config.iterations - config.burn_in, 0) // config.thin
        max_saved = max(2 * config.save_draws - 1, 0)
        pending = min(min(max_saved, draws) * draw_bytes, max(checkpoint, MIN_DRAW_BYTES))
        open_chains = -(-config.chains // min(processes, config.chains)) if config.until else 1
        accumulators = moments + ratings.nnz_test * (TEST_BYTES + 2 * noise_bytes)
        row_values = width + config.dimension * len(config.make_sampler().working)
        per_chain = share * (rows + columns) * row_values * 4 + share * (accumulators + pending)
        shared = grouped + share * checkpoint + _ratings(config, ratings, share)
        # a snapshot of draws is removed once none of its draws is kept; the spacing of kept draws
        # doubles
        doublings = ceil(log2(draws / max_saved)) if draws > max_saved > 0 else 0
        most_draws = min(draws, max_saved + doublings * max(config.save_draws - 1, 0))
        permanent = checkpoint + moments + test_bytes  # a checkpoint and the posterior
        return cls(
            memory_per_process=INTERPRETER_BYTES + int(shared + open_chains * per_chain),
            sent_per_sweep=round(_sent(config, ratings, size, quantities)),
            checkpoint=checkpoint,
            files_per_checkpoint=2 * config.chains * (min(size, MAX_WRITERS) + 1),
            disk_least=config.chains * (permanent + min(config.save_draws, draws) * draw_bytes),
            disk_most=config.chains
            * (permanent + KEPT_CHECKPOINTS * checkpoint + most_draws * draw_bytes),
        )


def _ratings(config: ResolvedConfig, ratings: Ratings, share: float) -> float:
    """Return the memory in bytes for this share of the ratings.

    A sampler that draws rows from their conditional distributions also needs the transposed
    ratings, and the sums for the rows of one factor.
    """
    grid, rows, columns = config.grid, ratings.n_rows, ratings.n_cols

    def cells(n_rows: int, n_columns: int) -> float:
        index = np.dtype(
            index_type(-(-n_columns // grid))
        ).itemsize  # a rating's column (or row) within its cell
        return float(
            ratings.nnz * (index + ratings.value_bytes) + (n_rows + grid) * grid * 8
        )  # with row starts

    counts = 2 * (rows + columns) * 8  # of all rows and columns, on every process
    total = float(share * (cells(rows, columns) + ratings.nnz_test * TEST_RATING_BYTES) + counts)
    if not config.sampler.kind.draws_conditionals:
        return total
    summed = max(
        rows, columns * (1 if share == 1 else 3)
    )  # if they are sent, they are in three buffers
    return total + share * (
        cells(columns, rows) + float(summed * statistics_width(config.dimension) * 4)
    )


def row_width(config: ResolvedConfig, quantities: Quantities) -> int:
    """Return the number of float32 values per row that a checkpoint saves, and that a message with
    a block has.
    """
    return (
        BlockLayout(config.make_sampler().kept, config.dimension).width + quantities.width_of_rows()
    )


def _sent_on_tours(config: ResolvedConfig, quantities: Quantities) -> int:
    """Return the float32 values per column that an iteration sends if it uses all ratings, over all
    steps of tours.
    """
    likelihood_fields = [
        quantity for quantity in config.law.quantities_of(config, False, {}) if quantity.of_rows
    ]
    d, noise = (
        config.dimension,
        sum(quantity.width(quantities.sizes) for quantity in likelihood_fields),
    )
    if config.sampler.kind.draws_conditionals:
        # positions and noise scales, then the sums for the columns, which return
        return (d + min(noise, 1)) * (config.grid - 1) + statistics_width(d) * config.grid
    return (
        2 * d + noise
    ) * config.grid  # the position, its gradient, and the likelihood's fields, all of which return


def _sent(config: ResolvedConfig, ratings: Ratings, size: int, quantities: Quantities) -> float:
    """Return the bytes of column blocks that the `size` processes of a chain send in a sweep, on
    average.
    """
    grid = config.grid
    owners = np.array([owner(b, size, grid) for b in range(grid)])

    def leaving(shift: int) -> float:
        """Return the share of column blocks that change process if each moves on by `shift` row
        blocks.
        """
        return float(np.mean(owners != np.roll(owners, shift)))

    value_bytes = 4 * ratings.n_cols / grid  # a block with one value per column
    share_sent = leaving(1)
    if config.sweep_length == 1:  # every iteration makes the tours
        return float(value_bytes * grid * share_sent * _sent_on_tours(config, quantities))
    if config.schedule != "cyclic":
        # all nonzero shifts are equally likely; in a random schedule, or between two sweeps, a part
        # may follow itself
        repeated = 1 / grid if config.schedule == "random" else 1 / grid**2
        share_sent = (1 - repeated) * sum(map(leaving, range(1, grid))) / max(grid - 1, 1)
    return float(
        value_bytes * row_width(config, quantities) * config.sweep_length * grid * share_sent
    )
