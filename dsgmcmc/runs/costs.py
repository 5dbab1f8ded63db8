"""What a run will cost, from its configuration and the sizes of the data alone: memory, messages, disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.run import RunConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.parallel.partition import owner
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.targets.factorisation.likelihoods.gaussian import WEIGHT_FIELDS
from dsgmcmc.targets.state import Layout

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
    def of(cls, config: RunConfig, ratings: Ratings, processes: int) -> Costs:
        """Estimate the costs of a run on `processes` processes."""
        d, grid = config.dimension, config.grid
        rows, columns = ratings.n_rows, ratings.n_cols
        size = -(-processes // min(processes, config.chains))
        share = -(-grid // size) / grid
        sampler = SAMPLERS[config.sampler_name](config.sampler_config, 0)
        weight_fields = WEIGHT_FIELDS if config.noise != "shared" else ()
        width = Layout((*sampler.fields, *weight_fields), d).width
        drawn = d + len(weight_fields[:1])  # columns of a draw: theta, and the weight of the noise
        state = (rows + columns) * (width + d * len(sampler.scratch)) * 4
        moments = (rows + columns) * drawn * MOMENTS * 4
        noises = TEST_NOISE_BYTES if weight_fields else 0
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
            sent_per_iteration=_sent(config, columns, width, size),
            checkpoint=checkpoint,
            saved_draws=draws * config.chains,
        )

    def table(self) -> dict[str, Any]:
        """Costs by name, in bytes."""
        return asdict(self)


def _sent(config: RunConfig, columns: int, width: int, size: int) -> int:
    """Bytes of the column blocks that change process in an iteration, on average."""
    grid = config.grid
    owners = np.array([owner(b, size, grid) for b in range(grid)])
    leaving = [float(np.mean(owners != np.roll(owners, shift))) for shift in range(grid)]
    if SAMPLERS[config.sampler_name].sweeps:  # one tour with the position and the gradient, and the weights' fields
        extra = len(WEIGHT_FIELDS) if config.noise != "shared" else 0
        return int(columns * (2 * config.dimension + extra) * 4 * grid * leaving[1 % grid])
    if config.schedule == "cyclic":
        return int(columns * width * 4 * leaving[1 % grid])
    # parts follow each other by any other shift equally often; a part follows itself at random, or where sweeps meet
    itself = 1 / grid if config.schedule == "random" else 1 / grid**2
    return int(columns * width * 4 * (1 - itself) * sum(leaving[1:]) / max(grid - 1, 1))
