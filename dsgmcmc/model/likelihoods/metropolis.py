"""Metropolis steps on the few parameters of a likelihood that all ratings share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, log1p, sqrt

import numpy as np
from numpy.random import Generator

from dsgmcmc.types import Float64

#: Number of Metropolis steps in one draw.
METROPOLIS_STEPS = 64


def metropolis(
    log_density: Callable[[Float64], float], start: Sequence[float], n: float, rng: Generator
) -> Float64:
    """Make `METROPOLIS_STEPS` Metropolis steps from the parameters `start`; return the last, (m,).

    The parameters belong to the distribution of n ratings; `log_density` is the logarithm of their
    posterior density, up to a constant. The sd of a step is random, log-uniform from 0.3 / sqrt(n)
    to 100 / sqrt(n).
    """
    current = np.array(start)
    density = log_density(current)
    log_least = log(0.3 / sqrt(n))
    log_largest = log(100 / sqrt(n))
    normals = rng.standard_normal((METROPOLIS_STEPS, len(current)))
    uniforms = rng.random((METROPOLIS_STEPS, 2)).tolist()
    for normal, (size, chance) in zip(normals, uniforms, strict=True):
        sd = exp(log_least + size * (log_largest - log_least))
        proposed = current + sd * normal
        proposed_density = log_density(proposed)
        if log1p(-chance) < proposed_density - density:
            current = proposed
            density = proposed_density
    return current
