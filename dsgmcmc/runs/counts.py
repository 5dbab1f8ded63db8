"""Whether the messages of a run fit into MPI's counts, which most libraries keep in 32 bits. Pure arithmetic."""

from __future__ import annotations

import numpy as np

from dsgmcmc.config.run import RunConfig
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.targets.factorisation.likelihoods.gaussian import WEIGHT_FIELDS
from dsgmcmc.targets.state import Layout
from dsgmcmc.types import Int64

MAX_COUNT = 2**31 - 1


def check_counts(config: RunConfig, column_counts: Int64) -> None:
    """Refuse a run whose messages have more elements than MPI can count.

    Parameters
    ----------
    config : RunConfig
        Its rank, grid, prior and sampler.
    column_counts : (J,) int64
        Training ratings of every column, which decide how the columns are cut.

    Raises
    ------
    InputError
        Saying what is too large, and which setting helps.
    """
    d, grid = config.dimension, config.grid
    sampler = SAMPLERS[config.sampler_name](config.sampler_config, 0)
    weights = WEIGHT_FIELDS if config.noise != "shared" else ()
    # on a tour the position and its gradient travel, whatever the sampler keeps
    width = max(Layout((*sampler.fields, *weights), d).width, 2 * d + len(weights))
    bounds = block_bounds(np.concatenate([[0], np.cumsum(column_counts)]), grid)
    block = int(np.diff(bounds).max()) * width
    if block > MAX_COUNT:
        raise InputError(
            f"a block of columns would be a message of {block:,} numbers, more than MPI counts ({MAX_COUNT:,}): use a "
            f"--grid of at least {-(-grid * block // MAX_COUNT)}, or a smaller --rank"
        )
    moments = d + d * d if config.prior == "normal-wishart" else 2 * d
    gathered = grid * (2 * len(sampler.positions) * moments + 8)
    if gathered > MAX_COUNT:
        raise InputError(
            f"the sums over {grid} blocks would be a message of {gathered:,} numbers, more than MPI counts "
            f"({MAX_COUNT:,}): use a smaller --grid or --rank, or --prior normal-gamma"
        )
