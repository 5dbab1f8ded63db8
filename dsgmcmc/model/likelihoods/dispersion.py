r"""The dispersion r of counts: its prior, and its draws from sums that the gradient adds up.

Up to terms without r, log p of a count x is R(x) + T (`dsgmcmc.model.likelihoods.counts`):

    R(x) = lgamma(x + r) - lgamma(r) - x log r
    T = -(x + r) log(1 + m / r) - log(1 - p_0)

R follows from a table of the training counts. The gradient adds up T at several dispersions about
r (`NODES`), so that log p of all counts is known between them as a polynomial of log r.
64 Metropolis steps in log r follow, of sizes from 0.3 / sqrt(N) to 100 / sqrt(N). They stay in an
interval of log r of width 0.3, whose position relative to the current value is uniform, which
leaves the posterior invariant. The prior of log r is N(log 10, 2^2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.likelihoods.metropolis import metropolis
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.quantity import Quantity, Sampled, hyperparameter
from dsgmcmc.types import Float64

START_DISPERSION = 10.0  # initial value of r, and median of its prior
DISPERSION_BOUNDS = (0.1, 1000.0)  # at the upper bound, counts are almost Poisson
PRIOR_SD = 2.0  # sd of the prior of log r
NODES = np.array([-0.3, -0.15, 0.0, 0.15, 0.3])  # nodes in log r, relative to its current value


@dataclass
class Dispersion(Sampled):
    """Dispersion r, ceiling M and least possible count, (1,) float64 each.

    The ceiling and the least count follow from the training counts.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "dispersion": hyperparameter(
            "dispersion", "dispersion of the counts about their means", dims=("one",)
        ),
        "ceiling": Quantity("counts.ceiling", ("one",), positive=True),
        "least": Quantity("counts.least", ("one",)),
    }

    dispersion: Float64
    ceiling: Float64
    least: Float64


def draw_dispersion(dispersion: float, sums: Float64, table: Levels, rng: Generator) -> float:
    """Draw r; return it.

    Parameters
    ----------
    dispersion : float
        Value of r at which `sums` were computed.
    sums : (5,) float64
        Sums of T over the training ratings, at the dispersions r exp(`NODES`).
    table : Levels
        The distinct training counts, and the number of ratings at each.
    rng : Generator
    """
    log_likelihoods = _table_log_likelihoods(dispersion * np.exp(NODES), table) + sums
    # coefficients of the polynomial of log r, relative to the current log r, through the nodes
    vandermonde = np.vander(NODES, increasing=True)
    coefficients = np.linalg.solve(vandermonde, log_likelihoods - log_likelihoods[2]).tolist()
    log_r = log(dispersion)
    middle = NODES[-1] * (rng.random() - 0.5)

    def log_density(at: Float64) -> float:
        step = at.item()
        new_log_r = log_r + step
        if abs(step - middle) > NODES[-1] / 2:
            return -inf
        if not DISPERSION_BOUNDS[0] <= exp(new_log_r) <= DISPERSION_BOUNDS[1]:
            return -inf
        log_likelihood = 0.0
        for coefficient in reversed(coefficients):
            log_likelihood = log_likelihood * step + coefficient
        return log_likelihood - ((new_log_r - log(START_DISPERSION)) / PRIOR_SD) ** 2 / 2

    step = metropolis(log_density, (0.0,), float(table.counts.sum()), rng)
    return exp(log_r + step.item())


def _table_log_likelihoods(dispersions: Float64, table: Levels) -> Float64:
    """Sums of R over the training ratings at several dispersions, (m,) float64."""
    from scipy.special import gammaln

    x = table.values[:, None]
    r = dispersions
    return np.asarray(table.counts @ (gammaln(x + r) - gammaln(r) - x * np.log(r)))
