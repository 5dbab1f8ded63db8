"""The memory, messages and disk that a run will need, from its configuration and the sizes of the data alone.

Most MPI libraries count the elements of a message in 32 bits, and positions of test ratings are 32-bit integers, too; a
run that would exceed that is refused here. docs/reliability.md lists types and limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import SIDES, Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.outer import statistics_width
from dsgmcmc.kernels.stored import index_type
from dsgmcmc.model.factors import keeps_what_left
from dsgmcmc.model.parts.design import gram_width
from dsgmcmc.model.parts.effects import levels_of
from dsgmcmc.model.parts.features import featured_factors
from dsgmcmc.model.parts.groups import costs_of
from dsgmcmc.model.quantity import Quantities
from dsgmcmc.parallel.partition import block_bounds, owner
from dsgmcmc.settings import named
from dsgmcmc.targets.state import BlockLayout
from dsgmcmc.types import Factor, Int64

MAX_COUNT = 2**31 - 1  # elements of a message; positions in int32
MAX_ITERATION = 2**48 - 1  # of the counter of random numbers (`dsgmcmc.kernels.philox`)

TEST_RATING_BYTES = 16  # value, position, row and column
TEST_BYTES = 12  # prediction, mean and m2
TEST_SAVED_BYTES = 8  # mean and m2
TEST_NOISE_BYTES = 4  # the variance of the noise now, and its mean, where users or items have their own
MOMENTS = 2  # mean and m2


@dataclass(frozen=True)
class Costs:
    """Costs of a run, in bytes.

    Attributes
    ----------
    ratings_per_process, state_per_process, accumulators_per_process, saving_per_process : int
        Memory of the largest process, without the interpreter and its libraries (about 200 MB). The last is needed
        while a checkpoint is written: for its copy, and for the draws made since the one before.
    sweeping_per_process : int
        Extra memory of a sampler that draws rows from their conditional distributions: sums, and the ratings by column.
    sent_per_iteration : int
        All column blocks that are sent to another process in an iteration, on average, without those of evaluation.
    checkpoint, saved_draws : int
        Disk space of one checkpoint, and of as many saved draws as there can be.
    memory_per_process : int
        Sum of the first five.
    disk_least, disk_most : int
        Bounds of what a whole run leaves on disk: checkpoints, posteriors and saved draws of all chains.
    """

    ratings_per_process: int
    state_per_process: int
    accumulators_per_process: int
    saving_per_process: int
    sweeping_per_process: int
    sent_per_iteration: int
    checkpoint: int
    saved_draws: int
    memory_per_process: int
    disk_least: int
    disk_most: int

    @classmethod
    def of(cls, config: ResolvedConfig, ratings: Ratings, processes: int) -> Costs:
        """Estimate the costs of a run on `processes` processes."""
        d, grid = config.dimension, config.grid
        rows, columns = ratings.n_rows, ratings.n_cols
        size = -(-processes // min(processes, config.chains))
        share = -(-grid // size) / grid
        open_chains = -(-config.chains // min(processes, config.chains)) if config.until else 1
        heteroscedastic = config.noise != "shared"
        quantities = config.quantities_for(ratings)
        width, drawn = _width(config, quantities), quantities.drawn_numbers({Factor.W: rows, Factor.H: columns})
        sampler = config.make_sampler()
        numbers = width + d * len(sampler.working)
        state = share * (rows + columns) * numbers * 4
        if sampler.gradient.by_parts and keeps_what_left(columns, numbers):
            state += (1 - share) * columns * numbers * 4
        moments = drawn * MOMENTS * 4
        levels = config.law.levels_of(ratings)
        noises = TEST_NOISE_BYTES * int(heteroscedastic)
        if levels is not None:  # the variance of each rating, and the probabilities of its levels
            noises = TEST_NOISE_BYTES * (1 + len(levels))
        saved = TEST_SAVED_BYTES + noises
        checkpoint = (rows + columns) * width * 4 + moments + ratings.nnz_test * saved
        held = ratings.nnz * _rating_bytes(config, ratings, columns) + ratings.nnz_test * TEST_RATING_BYTES
        normal = config.law.is_conditionally_gaussian()
        grouped, effects = costs_of(levels_of(config, ratings.transposed), ratings, normal)
        held, checkpoint = held + grouped, checkpoint + effects
        index = (rows + grid) * grid * 8  # where each row begins in each block
        everywhere = 2 * (rows + columns) * 8  # row and column counts, whole on every process
        one_draw = drawn * 4
        made = max(config.iterations - config.burn_in, 0) // config.thin
        draws = min(max(2 * config.save_draws - 1, 0), made) * one_draw
        memory = (
            int(share * (held + index)) + everywhere,
            int(open_chains * state),
            int(open_chains * share * (moments + ratings.nnz_test * (TEST_BYTES + 2 * noises))),
            int(share * (checkpoint + open_chains * draws)),
            _sweeping(config, ratings, share),
        )
        kept = config.chains * (checkpoint + moments + ratings.nnz_test * saved)  # a checkpoint and the posterior
        return cls(
            *memory,
            sent_per_iteration=_sent(config, columns, size, quantities),
            checkpoint=checkpoint,
            saved_draws=draws * config.chains,
            memory_per_process=sum(memory),
            disk_least=kept + config.chains * min(config.save_draws, made) * one_draw,
            disk_most=kept + config.chains * ((config.keep_checkpoints - 1) * checkpoint + draws),
        )

    def table(self) -> dict[str, Any]:
        """Costs by name, in bytes."""
        return asdict(self)


def check_limits(config: ResolvedConfig, ratings: Ratings) -> None:
    """Refuse a run in which a number exceeds its integer type, or what MPI can count.

    Parameters
    ----------
    config : ResolvedConfig
    ratings : Ratings
        Open ratings file; only the numbers of ratings are used, not their values.

    Raises
    ------
    InputError
        If something is too large; the message names the setting that helps.
    """
    if config.iterations > MAX_ITERATION:
        raise InputError(
            f"{config.iterations:,} iterations are more than the random number generator can count "
            f"({MAX_ITERATION:,}): ask for fewer {named('iterations')}"
        )
    featured = featured_factors(config.features, ratings)
    features = [len(ratings.features[SIDES[factor]].names) for factor in featured]
    _check_blocks(config, ratings.column_counts, config.quantities_for(ratings))
    _check_sums(config, features)
    bounds = block_bounds(ratings.row_indptr, config.grid)
    tested = int(np.diff(ratings.test_indptr[bounds]).max())
    if tested > MAX_COUNT:
        raise InputError(
            f"a block of rows would have {tested:,} test ratings, more than 32 bits can count ({MAX_COUNT:,}): use a "
            f"larger {named('grid')}, or prepare the ratings with a smaller {named('test_fraction')}"
        )


def _check_blocks(config: ResolvedConfig, column_counts: Int64, quantities: Quantities) -> None:
    """Refuse column blocks that are too long for one message; the counts determine the blocks."""
    grid = config.grid
    bounds = block_bounds(np.concatenate([[0], np.cumsum(column_counts)]), grid)
    widths = (_width(config, quantities), *(tour.width for tour in _tours(config, quantities)))
    block = int(np.diff(bounds).max()) * max(widths)
    if block > MAX_COUNT:
        raise InputError(
            f"a block of columns would be a message of {block:,} numbers, more than MPI can count ({MAX_COUNT:,}): "
            f"use a {named('grid')} of at least {-(-grid * block // MAX_COUNT)}, or a smaller {named('rank')}"
        )


def _check_sums(config: ResolvedConfig, features: Sequence[int]) -> None:
    """Refuse sums over blocks whose addends, which process 0 gathers, are too many numbers for one message."""
    d, grid = config.dimension, config.grid
    moments = d + d * d if config.prior == "normal-wishart" else 2 * d
    widths = {
        f"{named('rank')}, or {named('prior')} normal-gamma": 2 * len(config.make_sampler().positions) * moments + 8
    }
    if getattr(config.sampler.config, "metric", None) == "kronecker":
        widths[f"{named('rank')}, or {named('sampler.metric')}=fisher"] = 2 * (d * d + 1)
    if features:
        widths[f"{named('rank')}, or {named('features')} no"] = max(
            sum(features) * d, *(gram_width(size) for size in features)
        )
    for remedy, width in widths.items():
        if grid * width > MAX_COUNT:
            raise InputError(
                f"the sums over {grid} blocks would be a message of {grid * width:,} numbers, more than MPI can count "
                f"({MAX_COUNT:,}): use a smaller {named('grid')} or {remedy}"
            )


def _width(config: ResolvedConfig, quantities: Quantities) -> int:
    """Number of float32 per row that are saved, and sent between parts."""
    return BlockLayout(config.make_sampler().kept, config.dimension).width + quantities.width_of_rows()


class _Tour(NamedTuple):
    """A tour of all column blocks: how many numbers per column are sent, and whether they return home."""

    width: int
    returns: bool


def _tours(config: ResolvedConfig, quantities: Quantities) -> list[_Tour]:
    """Tours of an iteration that uses all the data."""
    of_law = [quantity for quantity in config.law.quantities_of(config, False, {}) if quantity.of_rows]
    d, noise = config.dimension, sum(quantity.width(quantities.sizes) for quantity in of_law)
    if config.sampler.kind.draws_conditionals:  # positions and noise scales to the rows; then the columns' sums
        return [_Tour(d + min(noise, 1), False), _Tour(statistics_width(d), True)]
    return [_Tour(2 * d + noise, True)]  # the position, its gradient, and the likelihood's fields


def _sweeping(config: ResolvedConfig, ratings: Ratings, share: float) -> int:
    """Memory of the ratings by column and of the sums of a factor; while they are sent, in three buffers."""
    if not config.sampler.kind.draws_conditionals:
        return 0
    rows = max(ratings.n_rows, ratings.n_cols * (1 if share == 1 else 3))
    index = (ratings.n_cols + config.grid) * config.grid * 8  # where each column begins in each block
    held = ratings.nnz * _rating_bytes(config, ratings, ratings.n_rows)
    return int(share * (rows * statistics_width(config.dimension) * 4 + held + index))


def _rating_bytes(config: ResolvedConfig, ratings: Ratings, numbers: int) -> int:
    """Bytes of a rating of a cell: of its column or row, of which there are so many in all, and of its value."""
    return np.dtype(index_type(-(-numbers // config.grid))).itemsize + ratings.value_bytes


class BlockMoves(NamedTuple):
    """Column blocks that are sent to another process in an iteration, on average.

    Attributes
    ----------
    width : int
        Numbers per column.
    blocks : float
        Number of blocks, of all processes.
    steps : int
        Number of steps; between two of them every process works on the blocks that it holds.
    """

    width: int
    blocks: float
    steps: int


def moves(config: ResolvedConfig, size: int, quantities: Quantities) -> list[BlockMoves]:
    """Column blocks that the `size` processes of a chain send in an iteration."""
    grid = config.grid
    owners = np.array([owner(b, size, grid) for b in range(grid)])

    def leaving(shift: int) -> float:
        return float(np.mean(owners != np.roll(owners, shift)))

    following = leaving(1)
    if config.sweep_length == 1:  # a tour in every iteration
        steps = [(tour.width, grid if tour.returns else grid - 1) for tour in _tours(config, quantities)]
        return [BlockMoves(width, count * grid * following, count) for width, count in steps]
    if config.schedule != "cyclic":
        # all shifts other than 0 are equally likely; a part follows itself by chance, or across the end of a sweep
        itself = 1 / grid if config.schedule == "random" else 1 / grid**2
        following = (1 - itself) * sum(map(leaving, range(1, grid))) / max(grid - 1, 1)
    return [BlockMoves(_width(config, quantities), grid * following, 1)]


def _sent(config: ResolvedConfig, columns: int, size: int, quantities: Quantities) -> int:
    """Bytes of the column blocks that are sent in an iteration, on average."""
    return int(sum(columns / config.grid * move.width * 4 * move.blocks for move in moves(config, size, quantities)))
