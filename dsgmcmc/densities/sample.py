"""A sampler on a density, state by state; `dsgmcmc.densities.chains` makes chains of draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgmcmc.densities.targets.density import D, Density, check_attributes
from dsgmcmc.densities.targets.vector import VectorTarget, part_sizes
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.parallel.timers import Phases
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Float64, ScheduleName


def check_fits(density: Density, kind: type[Sampler[Any, Any]], config: SamplerConfig, name: str = "") -> None:
    """Raise `InputError` if a density is not of the class that a sampler, or its gradient, is for."""
    for what, needed in (
        (f"sampler {name or kind.__name__} samples", kind.densities),
        (f"sampler.gradient = {config.gradient!r} is of", kind.estimator(config).densities),
    ):
        if needed is not None and not isinstance(density, needed):
            raise InputError(f"{what} a {needed.__name__}, which this {type(density).__name__} is not")


def vector_target(
    density: D,
    sampler: Sampler[Any, Any],
    *,
    rows: int = 1,
    seed: int = 0,
    chain: int = 0,
    grid: int = 1,
    schedule: ScheduleName = "shuffled",
    timers: Phases | None = None,
) -> VectorTarget[D]:
    """Make the target that a sampler needs to sample a density.

    Parameters
    ----------
    density : Density
        What to sample.
    sampler : Sampler
        Says what is kept, and whether an iteration uses a part of the data or all.
    rows : int
        Number n of vectors that move together.
    seed, chain : int
        Key of all random numbers.
    grid : int
        Number B of parts that the data are cut into.
    schedule : {"shuffled", "cyclic", "random"}
        Order in which parts are visited.
    timers : Phases, optional
        Where time is counted.

    Raises
    ------
    InputError
        If what the density says of itself has other shapes than it is asked for, or the sampler is not for its class.
    """
    check_attributes(density)
    check_fits(density, type(sampler), sampler.config)
    order = Schedule(schedule, part_sizes(density.n_data, grid), seed, chain) if sampler.gradient.by_parts else None
    stream = RandomStream(seed, chain)
    return VectorTarget(
        density,
        order,
        fields=(*sampler.kept, *sampler.gradient.tables(density, grid)),
        scratch=sampler.working,
        stream=stream,
        rows=rows,
        timers=timers,
    )


def sample(
    target: VectorTarget[Any], sampler: Sampler[Any, Any], iterations: int, sd: float = 1.0
) -> Iterator[Float64]:
    """Run a sampler on a density.

    Parameters
    ----------
    target : VectorTarget
        From `vector_target`, for `sampler`.
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
    sampler.start(target, sd)
    for iteration in range(iterations):
        sampler.advance(target, iteration, 1)
        yield target.block[sampler.position(iteration)]
