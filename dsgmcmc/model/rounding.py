r"""Noise of at least the variance of rounding.

The rounding errors of ratings that were recorded to a step s (`dsgmcmc.ratings.resolution`) have
the variance s^2 / 12. Without a lower bound on the noise, the density of ratings that are equal,
and whose predictor is equal to them, would have none from above. The prior of the precision tau and
of the noise scales g, g' of rows is therefore truncated: it is 0 unless

    tau max_i g_i max_j g'_j  <=  T = 12 / s^2

or, if ratings have weights w, T = 12 / (s^2 max w). So the noise of every rating, 1 / (tau g_i g'_j
w_ij), has at least the variance of rounding. Given the others, tau is at most T / (max g max g'),
g_i at most T / (tau max g'), and their conditional distributions are otherwise unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, log, log1p, sqrt

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.circulation import Circulation
from dsgmcmc.types import Factor


def largest_product(circulation: Circulation, factors: Sequence[Factor]) -> float:
    """Return the product of the largest noise scales of the rows of each factor. Collective.

    It is 1 without factors.
    """
    if not factors:
        return 1.0
    largest = np.array(
        [
            [float(pair[factor].row("weight").max(initial=0.0)) for factor in factors]
            for pair in circulation.pairs()
        ]
    )
    found = circulation.ring.reduce(largest, lambda scales: scales, len(factors), np.maximum)
    return float(found.prod())


def precision_limit(circulation: Circulation, factors: Sequence[Factor]) -> float:
    """Return the largest tau, given the noise scales of the rows of these factors. Collective.

    It is also the largest tau g_i, given the scales of the factor that row i is not of.
    """
    largest = circulation.ratings.largest_precision
    if largest == inf:
        return inf
    return largest / largest_product(circulation, factors)


def truncated_gamma(shape: float, rate: float, most: float, rng: Generator) -> float:
    """Draw a gamma variable of at most `most`, by rejection; `shape` is above 1.

    Where the bound is far below the mode, the variable is drawn as `most` less an exponential
    variable y, whose rate is the slope of the log density at the bound. As log(1 - t) <= -t, the
    ratio of both densities is at most 1. The result is NaN if the rate is: the chain has diverged.
    """
    if isnan(rate):
        return rate
    power = shape - 1.0
    bound = most * rate
    if bound >= max(0.75 * power, power - 0.5 * sqrt(power)):
        while True:
            drawn = rng.gamma(shape) / rate
            if drawn <= most:
                return float(drawn)
    while True:
        part = rng.exponential() / (power - bound)  # y / most
        if part < 1.0 and log(1.0 - rng.random()) < power * (log1p(-part) + part):
            return most * (1.0 - part)
