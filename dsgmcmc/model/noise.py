r"""Heteroscedastic noise, of users, items, or both: variance 1 / (tau g_i g'_j), g_i ~ Gamma(nu / 2, nu / 2).

Marginally Student's t in the ratings of one user. The conditional draws, with SSE_i the squared errors of row i's n_i
ratings times the other side's g':

    nu  | rest, with g integrated out: on a grid, uniform in log nu, where row i has the log density
          lgamma((nu + n_i) / 2) - lgamma(nu / 2) + (nu / 2) log(nu / 2) - ((nu + n_i) / 2) log((nu + tau SSE_i) / 2)
    g_i | nu, rest ~ Gamma((nu + n_i) / 2, rate (nu + tau SSE_i) / 2)

SSE_i is that of the last sweep's gradients. Where both sides have noise of their own they are drawn in turns, a sweep
each: drawn at once, each given the other's old values, they would not leave the posterior invariant. A new g counts
from the next gradient on. nu is not drawn given g: where nu is large and rows have few ratings that chain hardly moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from dsgmcmc.kernels.gamma import gammas
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Factor, Float64, NoiseName, Purpose

NU_START = 12.0
#: Sweeps between draws of noise scales where the gradient is of all the data, and has to be taken again.
NOISE_EVERY = 5
NU_GRID = 2.0 ** np.arange(2, 10.0625, 0.125)  # from 4 on 1 / g has a variance


def heteroscedastic_factors(noise: NoiseName, transposed: bool) -> tuple[Factor, ...]:
    """Factors whose rows have noise of their own; `transposed` says that the rows of W are items."""
    users, items = (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H)
    return {"shared": (), "by-user": (users,), "by-item": (items,), "both": (users, items)}[noise]


def nu_log_density(block: ParameterBlock, tau: float) -> Float64:
    """Log density of nu at every value of the grid given a block's squared errors alone, up to a constant, (65,)."""
    # logarithms in float32, which take a sixth of the time: the sum over 10,000 rows is right to 0.01
    errors = (tau * block.row("row_error").astype(np.float64)).astype(np.float32)
    logs = errors / NU_GRID.astype(np.float32)[:, None]
    logs += 1
    np.log(logs, out=logs)
    totals = logs.sum(axis=1, dtype=np.float64)
    logs *= (block.counts / 2).astype(np.float32)
    powers = NU_GRID / 2 * totals + logs.sum(axis=1, dtype=np.float64)
    density: Float64 = _nu_log_normaliser(block.counts.tobytes()) - powers
    return density


@lru_cache(maxsize=4096)
def _nu_log_normaliser(counts: bytes) -> Float64:
    """Part of the log density of nu that depends on the rows' counts alone, (65,): the same in every sweep."""
    from scipy.special import gammaln

    n, rows = np.unique(np.frombuffer(counts, np.int64), return_counts=True)
    half = NU_GRID[:, None] / 2
    density: Float64 = (gammaln(half + n / 2) - gammaln(half) - n / 2 * np.log(half)) @ rows
    return density


def draw_nu(log_density: Float64, rng: np.random.Generator) -> float:
    """Draw nu from the grid, given its log density there, up to a constant."""
    weights = np.exp(log_density - log_density.max())
    return float(rng.choice(NU_GRID, p=weights / weights.sum()))


def draw_noise_scales(blocks: Iterable[ParameterBlock], nu: float, tau: float, stream: Stream) -> None:
    """Draw the g of all rows of a factor's blocks given their squared errors of the last sweep."""
    for block in blocks:
        drawn = gammas((nu + block.counts) / 2, stream.key(Purpose.NOISE_SCALE, block.factor, block.start))
        block.row("weight")[:] = drawn / ((nu + tau * block.row("row_error").astype(np.float64)) / 2)
