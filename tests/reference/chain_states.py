"""Chains of the package, state by state, which tests compare with the oracles beside this file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dsgmcmc.config.run import RunConfig
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.source import targets_of
from dsgmcmc.samplers.base import Sampler


def make_sampler(name: str, burn_in: int = 0, **section: Any) -> Sampler[Any, Any]:
    """A sampler by its name and settings."""
    sampler_type = SAMPLERS[name]
    sampler: Sampler[Any, Any] = sampler_type(sampler_type.Config(**section), burn_in)
    return sampler


def states(
    density: Any, sampler: Sampler[Any, Any], iterations: int, sd: float = 1.0, **place: Any
) -> np.ndarray:
    """States (iterations, rows, D) on a density, started at N(0, `sd`^2); `place` is for
    `vector_target`.
    """
    target = vector_target(density, sampler, **place)
    return np.array([theta.copy() for theta in sample(target, sampler, iterations, sd)])


def start_chain(
    path: Path, sd: float, requested: RunConfig
) -> tuple[FactorTarget, Sampler[Any, Any]]:
    """The target of a chain of a run, after the start of its sampler."""
    config = requested.resolved()
    sampler = config.make_sampler()
    ring = Ring(MPI.COMM_SELF, config.grid)
    with Ratings(path) as ratings:
        target = targets_of(config, ratings, ring)(0, sampler)
    target.reset()
    sampler.start(target, sd)
    return target, sampler


def iterate(target: FactorTarget, sampler: Sampler[Any, Any], iterations: int) -> Iterator[int]:
    """Iterate; yields the number of each iteration after it."""
    for iteration in range(iterations):
        target.begin(iteration)
        sampler.step(target, iteration)
        yield iteration
