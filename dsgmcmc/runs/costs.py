"""Memory, messages and disk space of a run, from its configuration and the sizes of the data alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.chain import KEPT_CHECKPOINTS
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.kernels.outer import statistics_width
from dsgmcmc.kernels.stored import index_type
from dsgmcmc.model.circulation import keeps_what_left
from dsgmcmc.model.parts.time_levels import costs_of, time_levels_of
from dsgmcmc.model.quantity import Quantities
from dsgmcmc.parallel.partition import owner
from dsgmcmc.runs.checkpoint import DRAWS_PER_STATE, LEAST_DRAWS
from dsgmcmc.storage.writer import MAX_WRITERS
from dsgmcmc.targets.state import BlockLayout
from dsgmcmc.types import Factor

INTERPRETER = 200_000_000  # bytes of Python and its libraries
TEST_RATING_BYTES = 16  # value, position, row and column
TEST_BYTES = 12  # prediction, mean and m2
TEST_SAVED_BYTES = 8  # mean and m2
TEST_NOISE_BYTES = 4  # noise variance, current or mean, if it differs between users or items
MOMENTS = 2  # mean and m2


@dataclass(frozen=True)
class Costs:
    """Costs of a run, in bytes, except for the numbers `messages_per_sweep` and `files_per_checkpoint`.

    Attributes
    ----------
    ratings_per_process, state_per_process, accumulators_per_process, saving_per_process : int
        Memory of the largest process. `saving_per_process` is needed while a checkpoint is written: for a copy of the
        state, and for the draws since the previous checkpoint.
    sweeping_per_process : int
        Extra memory of a sampler that draws rows from their conditional distributions: sums, and the ratings by column.
    sent_per_sweep, messages_per_sweep : int
        Column blocks that the processes of a chain send to each other in a sweep, on average: their bytes, and their
        number. Evaluation, ordered sums and tours that renew a metric are left out.
    checkpoint, saved_draws : int
        Disk space of one checkpoint, and of the largest number of saved draws that represent all chains.
    files_per_checkpoint : int
        Largest number of files that a checkpoint of all chains adds: for the state and for the new draws of each chain,
        one file per writing process and a manifest. The files of the state are removed later.
    memory_per_process : int
        Sum of the first five costs and of the memory of the interpreter with its libraries.
    disk_least, disk_most : int
        Bounds on the disk space of a finished run: checkpoints, posteriors and saved draws of all chains.
    """

    ratings_per_process: int
    state_per_process: int
    accumulators_per_process: int
    saving_per_process: int
    sweeping_per_process: int
    sent_per_sweep: int
    messages_per_sweep: int
    checkpoint: int
    saved_draws: int
    files_per_checkpoint: int
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
        width, drawn = row_width(config, quantities), quantities.drawn_numbers({Factor.W: rows, Factor.H: columns})
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
        grouped, effects = costs_of(time_levels_of(config.time_levels, ratings.transposed), ratings, normal)
        held, checkpoint = held + grouped, checkpoint + effects
        index = (rows + grid) * grid * 8  # start of each row in each block
        everywhere = 2 * (rows + columns) * 8  # all row and column counts, on every process
        one_draw = drawn * 4
        made = max(config.iterations - config.burn_in, 0) // config.thin
        draws = min(max(2 * config.save_draws - 1, 0), made) * one_draw
        written = _most_written(config.save_draws, made)
        memory = (
            int(share * (held + index)) + everywhere,
            int(open_chains * state),
            int(open_chains * share * (moments + ratings.nnz_test * (TEST_BYTES + 2 * noises))),
            int(share * (checkpoint + open_chains * min(draws, max(DRAWS_PER_STATE * checkpoint, LEAST_DRAWS)))),
            _sweeping(config, ratings, share),
        )
        moves = _moves(config, size, quantities)
        kept = config.chains * (checkpoint + moments + ratings.nnz_test * saved)  # a checkpoint and the posterior
        return cls(
            *memory,
            sent_per_sweep=round(sum(columns / grid * move.width * 4 * move.blocks for move in moves)),
            messages_per_sweep=round(sum(move.blocks for move in moves)),
            checkpoint=checkpoint,
            saved_draws=draws * config.chains,
            files_per_checkpoint=2 * config.chains * (min(size, MAX_WRITERS) + 1),
            memory_per_process=sum(memory) + INTERPRETER,
            disk_least=kept + config.chains * min(config.save_draws, made) * one_draw,
            disk_most=kept + config.chains * (KEPT_CHECKPOINTS * checkpoint + written * one_draw),
        )

    def table(self) -> dict[str, Any]:
        """Return the costs by name."""
        return asdict(self)


def _most_written(keep: int, made: int) -> int:
    """Largest number of draws on disk, given the setting `keep` and the number of draws made.

    A file is removed only when none of its draws is kept.
    """
    most = max(2 * keep - 1, 0)
    doublings = 0  # of the spacing between saved draws
    while most and -(-made // 2**doublings) > most:
        doublings += 1
    return min(made, most + doublings * max(keep - 1, 0))


def row_width(config: ResolvedConfig, quantities: Quantities) -> int:
    """Number of float32 values per row that a checkpoint saves, and that are sent between parts."""
    return BlockLayout(config.make_sampler().kept, config.dimension).width + quantities.width_of_rows()


class Tour(NamedTuple):
    """A tour of all column blocks: number of float32 values sent per column, and whether the blocks return home."""

    width: int
    returns: bool


def tours(config: ResolvedConfig, quantities: Quantities) -> list[Tour]:
    """List the tours in an iteration that uses all ratings."""
    of_law = [quantity for quantity in config.law.quantities_of(config, False, {}) if quantity.of_rows]
    d, noise = config.dimension, sum(quantity.width(quantities.sizes) for quantity in of_law)
    if config.sampler.kind.draws_conditionals:  # positions and noise scales, then the sums for the columns
        return [Tour(d + min(noise, 1), False), Tour(statistics_width(d), True)]
    return [Tour(2 * d + noise, True)]  # the position, its gradient, and the likelihood's fields


def _sweeping(config: ResolvedConfig, ratings: Ratings, share: float) -> int:
    """Memory of the ratings by column and of the sums of a factor, in three buffers if they are sent."""
    if not config.sampler.kind.draws_conditionals:
        return 0
    rows = max(ratings.n_rows, ratings.n_cols * (1 if share == 1 else 3))
    index = (ratings.n_cols + config.grid) * config.grid * 8  # start of each column in each block
    held = ratings.nnz * _rating_bytes(config, ratings, ratings.n_rows)
    return int(share * (rows * statistics_width(config.dimension) * 4 + held + index))


def _rating_bytes(config: ResolvedConfig, ratings: Ratings, numbers: int) -> int:
    """Bytes of a rating in a cell: its column (or row) index, one of `numbers` in all, and its value."""
    return np.dtype(index_type(-(-numbers // config.grid))).itemsize + ratings.value_bytes


class _Moves(NamedTuple):
    """Column blocks that all processes send in a sweep, on average: float32 values per column, and number of blocks."""

    width: int
    blocks: float


def _moves(config: ResolvedConfig, size: int, quantities: Quantities) -> list[_Moves]:
    """Column blocks that the `size` processes of a chain send in a sweep."""
    grid = config.grid
    owners = np.array([owner(b, size, grid) for b in range(grid)])

    def leaving(shift: int) -> float:
        return float(np.mean(owners != np.roll(owners, shift)))

    following = leaving(1)
    if config.sweep_length == 1:  # every iteration makes the tours
        steps = [(tour.width, grid if tour.returns else grid - 1) for tour in tours(config, quantities)]
        return [_Moves(width, count * grid * following) for width, count in steps]
    if config.schedule != "cyclic":
        # all nonzero shifts are equally likely; a part may follow itself, in a random schedule or between two sweeps
        itself = 1 / grid if config.schedule == "random" else 1 / grid**2
        following = (1 - itself) * sum(map(leaving, range(1, grid))) / max(grid - 1, 1)
    return [_Moves(row_width(config, quantities), config.sweep_length * grid * following)]
