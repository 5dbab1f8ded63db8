"""What a run will need, from its configuration and the sizes of the data alone: memory, messages, disk.

Most MPI libraries count the elements of a message in 32 bits; a run whose messages have more is refused here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.partition import block_bounds, owner
from dsgmcmc.targets.factorisation.likelihoods.gaussian import NOISE_FIELDS
from dsgmcmc.targets.state import Layout, StateField
from dsgmcmc.types import Int64

MAX_COUNT = 2**31 - 1  # elements of a message

RATING_BYTES = 8  # int32 column and float32 value
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
        Memory of the largest process, besides the interpreter and its libraries (about 200 MB). The last is needed
        while a checkpoint is written: its copy, and the draws made since the one before, at most.
    sent_per_iteration : int
        All column blocks that change process in an iteration, together, on average; evaluation comes on top.
    checkpoint, saved_draws : int
        Disk: one checkpoint; all saved draws at most.
    """

    ratings_per_process: int
    state_per_process: int
    accumulators_per_process: int
    saving_per_process: int
    sent_per_iteration: int
    checkpoint: int
    saved_draws: int

    @classmethod
    def of(cls, config: ResolvedConfig, ratings: Ratings, processes: int) -> Costs:
        """Estimate the costs of a run on `processes` processes."""
        d, grid = config.dimension, config.grid
        rows, columns = ratings.n_rows, ratings.n_cols
        size = -(-processes // min(processes, config.chains))
        share = -(-grid // size) / grid
        heteroscedastic = config.noise != "shared"
        width = _width(config)
        drawn = d + int(heteroscedastic)  # columns of a draw: theta, and the noise scale
        state = (rows + columns) * (width + d * len(config.make_sampler().scratch)) * 4
        moments = (rows + columns) * drawn * MOMENTS * 4
        noises = TEST_NOISE_BYTES * int(heteroscedastic)
        saved = TEST_SAVED_BYTES + noises
        checkpoint = (rows + columns) * width * 4 + moments + ratings.nnz_test * saved
        draws = max(2 * config.save_draws - 1, 0) * (rows + columns) * drawn * 4
        held = ratings.nnz * RATING_BYTES + ratings.nnz_test * TEST_RATING_BYTES
        index = (rows + grid) * grid * 8  # where each row begins in each block
        everywhere = 2 * (rows + columns) * 8  # row and column counts, whole on every process
        return cls(
            ratings_per_process=int(share * (held + index)) + everywhere,
            state_per_process=int(share * state),
            accumulators_per_process=int(share * (moments + ratings.nnz_test * (TEST_BYTES + 2 * noises))),
            saving_per_process=int(share * (checkpoint + draws)),
            sent_per_iteration=_sent(config, columns, size),
            checkpoint=checkpoint,
            saved_draws=draws * config.chains,
        )

    def table(self) -> dict[str, Any]:
        """Costs by name, in bytes."""
        return asdict(self)


def check_messages(config: ResolvedConfig, column_counts: Int64) -> None:
    """Refuse a run whose messages have more elements than MPI can count.

    Parameters
    ----------
    config : ResolvedConfig
        Its rank, grid, prior and sampler.
    column_counts : (J,) int64
        Training ratings of every column, which decide how the columns are cut.

    Raises
    ------
    InputError
        Saying what is too large, and which setting helps.
    """
    d, grid = config.dimension, config.grid
    bounds = block_bounds(np.concatenate([[0], np.cumsum(column_counts)]), grid)
    block = int(np.diff(bounds).max()) * max(_width(config), _tour_width(config))
    if block > MAX_COUNT:
        raise InputError(
            f"a block of columns would be a message of {block:,} numbers, more than MPI counts ({MAX_COUNT:,}): use a "
            f"--grid of at least {-(-grid * block // MAX_COUNT)}, or a smaller --rank"
        )
    moments = d + d * d if config.prior == "normal-wishart" else 2 * d
    gathered = grid * (2 * len(config.make_sampler().positions) * moments + 8)
    if gathered > MAX_COUNT:
        raise InputError(
            f"the sums over {grid} blocks would be a message of {gathered:,} numbers, more than MPI counts "
            f"({MAX_COUNT:,}): use a smaller --grid or --rank, or --prior normal-gamma"
        )


def _noise_fields(config: ResolvedConfig) -> tuple[StateField, ...]:
    """Fields of every row, besides the sampler's, where users or items have noise of their own."""
    return NOISE_FIELDS if config.noise != "shared" else ()


def _width(config: ResolvedConfig) -> int:
    """Numbers of a row that are saved, and travel with a part."""
    return Layout((*config.make_sampler().kept, *_noise_fields(config)), config.dimension).width


def _tour_width(config: ResolvedConfig) -> int:
    """Numbers of a row that travel on a tour of all blocks: the position, its gradient, and the noise's fields."""
    return 2 * config.dimension + len(_noise_fields(config))


def _sent(config: ResolvedConfig, columns: int, size: int) -> int:
    """Bytes of the column blocks that change process in an iteration, on average."""
    grid = config.grid
    owners = np.array([owner(b, size, grid) for b in range(grid)])
    leaving = [float(np.mean(owners != np.roll(owners, shift))) for shift in range(grid)]
    if config.sweep_length == 1:  # a tour in every iteration
        return int(columns * _tour_width(config) * 4 * grid * leaving[1 % grid])
    width = _width(config)
    if config.schedule == "cyclic":
        return int(columns * width * 4 * leaving[1 % grid])
    # parts follow each other by any other shift equally often; a part follows itself at random, or where sweeps meet
    itself = 1 / grid if config.schedule == "random" else 1 / grid**2
    return int(columns * width * 4 * (1 - itself) * sum(leaving[1:]) / max(grid - 1, 1))
