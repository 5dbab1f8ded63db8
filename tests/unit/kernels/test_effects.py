"""Sums of groups under a change of their effects against NumPy in float64, and offsets against
biases.
"""

import numpy as np
import pytest
from scipy.special import expit

from dsgmcmc.kernels.effects import effects_kernel, formula_score, level_score

N = 533
GROUPS = 60
CUTS = np.array([-1e9, -1.5, -0.4, 0.3, 1.1, 1e9])


def level_log(eta, upper, lower, s=1.0):
    """Log probability of a level, its difference taken in the tail that it lies in."""
    upper = s * (upper - eta)
    lower = s * (lower - eta)
    flipped = lower + upper > 0
    return np.log(expit(np.where(flipped, -lower, upper)) - expit(np.where(flipped, -upper, lower)))


def cases():
    """Scores, terms and log densities of each kind of law."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, N)
    count = rng.poisson(2.0, N).astype(float)
    bounds = [CUTS[level + 1], CUTS[level]]
    s = np.exp(rng.normal(0, 0.4, N))
    yield "logit", level_score(False), bounds, level_log
    yield "scaled", level_score(True), [*bounds, s], level_log
    yield "counts", formula_score("x - exp(eta)"), [count], lambda eta, x: x * eta - np.exp(eta)
    yield (
        "tails",
        formula_score("4 * (x - eta) / (3 + (x - eta) ** 2)"),
        [count],
        lambda eta, x: -2 * np.log1p((x - eta) ** 2 / 3),
    )


@pytest.mark.parametrize(
    ("score", "terms", "log"), [case[1:] for case in cases()], ids=[case[0] for case in cases()]
)
def test_sums_are_those_of_the_log_density(score, terms, log) -> None:
    """Of scores and curvatures after a change of the effects, and of what the log density gains by
    it.
    """
    rng = np.random.default_rng(1)
    step = 1e-4
    groups = rng.integers(0, GROUPS, N).astype(np.int32)
    eta = rng.normal(0, 0.8, N).astype(np.float32)
    change = rng.normal(0, 0.7, GROUPS).astype(np.float32)
    stacked = np.stack(terms).astype(np.float32)
    for moved in (True, False):
        sums = np.zeros((GROUPS, 4), np.float32)
        sums[:, 0] = change if moved else 0.0
        after = eta.astype(float) + sums[groups, 0]
        effects_kernel(score)(groups, eta, stacked, sums, moved=moved)
        slope = (log(after + step, *terms) - log(after - step, *terms)) / (2 * step)
        earlier = (log(after - 0.1 + step, *terms) - log(after - 0.1 - step, *terms)) / (2 * step)
        curvature = np.maximum((earlier - slope) / 0.1, slope**2 / 4)
        gain = log(after, *terms) - log(eta.astype(float), *terms)
        for k, each in enumerate((slope, curvature, gain), start=1):
            expected = np.bincount(groups, each, GROUPS)
            np.testing.assert_allclose(sums[:, k], expected, rtol=1e-3, atol=1e-3)
