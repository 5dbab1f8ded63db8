"""A sampler on a vector, from Python."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.vector import VectorWorld

Float64 = npt.NDArray[np.float64]


def sample(world: VectorWorld, sampler: Sampler[StepSize], iterations: int, sd: float = 1.0) -> Iterator[Float64]:
    """Run a sampler on a vector.

    Parameters
    ----------
    world : VectorWorld
        The target, made for `sampler`.
    sampler : Sampler
        Any of `dsgmcmc.samplers.SAMPLERS`.
    iterations : int
        How many to make.
    sd : float
        Standard deviation of the initial state.

    Yields
    ------
    theta : (n, D) float64
        The state after each iteration; a view, valid until the next.
    """
    sampler.start(world, sd)
    for iteration in range(iterations):
        world.iteration = iteration
        sampler.step(world, iteration)
        yield world.side[sampler.position(iteration)]
