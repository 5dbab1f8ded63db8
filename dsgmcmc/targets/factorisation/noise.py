r"""Heteroscedastic noise, of users, items, or both: variance 1 / (tau g_i g'_j), g_i ~ Gamma(nu / 2, nu / 2).

Marginally Student's t in the ratings of one user. The conditional draws, with SSE_i the squared errors of row i
times the other side's g':

    g_i | rest ~ Gamma((nu + n_i) / 2, rate (nu + tau SSE_i) / 2)
    nu  | g    on a grid, uniform in log nu

SSE_i is that of the last sweep's gradients. Where both sides have noise of their own they are drawn in turns, a sweep
each: drawn at once, each given the other's old values, they would not leave the posterior invariant. A new g counts
from the next gradient on.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.special import gammaln

from dsgmcmc.kernels.gamma import gammas
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Factor, Float64, NoiseName, Purpose

NU_START = 12.0
NU_GRID = 2.0 ** np.arange(2, 10.0625, 0.125)  # from 4 on 1 / g has a variance


def heteroscedastic_factors(noise: NoiseName, transposed: bool) -> tuple[Factor, ...]:
    """Factors whose rows have noise of their own; `transposed` says that the rows of W are items."""
    users, items = (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H)
    return {"shared": (), "by-user": (users,), "by-item": (items,), "both": (users, items)}[noise]


def noise_scale_sums(block: ParameterBlock) -> Float64:
    """Sum of log g and sum of g over a block's rows, (2,) float64."""
    g = block.row("weight").astype(np.float64)
    return np.array([np.log(g).sum(), g.sum()])


def draw_nu(sums: Float64, n: int, rng: np.random.Generator) -> float:
    """Draw nu given the sums of log g and of g over n rows, from the grid."""
    a = NU_GRID / 2
    log_density = n * (a * np.log(a) - gammaln(a)) + (a - 1) * sums[0] - a * sums[1]
    weights = np.exp(log_density - log_density.max())
    return float(rng.choice(NU_GRID, p=weights / weights.sum()))


def draw_noise_scales(blocks: Iterable[ParameterBlock], nu: float, tau: float, stream: Stream) -> None:
    """Draw the g of all rows of a factor's blocks given their squared errors of the last sweep."""
    for block in blocks:
        drawn = gammas((nu + block.counts) / 2, stream.key(Purpose.NOISE_SCALE, block.factor, block.start))
        block.row("weight")[:] = drawn / ((nu + tau * block.row("row_error").astype(np.float64)) / 2)
