"""SGHMC where its stationary law is known in closed form: N(0, 1) in the metric, gradients with noise of variance V.

One update is linear, so that Var theta follows from the splitting alone, at any step and friction.
"""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from densities import NoisyGaussian
from scipy.linalg import solve_discrete_lyapunov

from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.samplers.sgmcmc.sghmc import SGHMC, SGHMCConfig

pytestmark = pytest.mark.statistical
ROWS, PARTS = 2000, 4
DRAWS, APART = 40, 25  # of 40,000 elements, nearly independent: the standard error of their variance is 0.11 %


def variances(density: NoisyGaussian, phase: int = 0, **settings: object) -> np.ndarray:
    """Of theta, in units of its own under the target, and of r, `phase` updates after every 25th."""
    sampler = SGHMC(SGHMCConfig(warm_up=0, **settings), 0)
    target = vector_target(density, sampler, rows=ROWS, grid=PARTS, schedule="random")
    total = np.zeros(2)
    for k, theta in enumerate(sample(target, sampler, APART * (DRAWS + 4), sd=0.7)):
        if k >= 4 * APART and k % APART == phase:
            total += np.array([(theta**2).mean() * density.precision, (target.block["r"] ** 2).mean()]) / DRAWS
    return total


def variance(density: NoisyGaussian, phase: int = 0, **settings: object) -> float:
    """Of theta alone."""
    return float(variances(density, phase, **settings)[0])


@pytest.mark.parametrize(("metric", "noise"), [("fisher", 0.0), ("identity", 3.0)])
def test_baoa(metric: str, noise: float) -> None:
    """1 + h^2 V (1 + c) / ((1 - c) (4 - h^2)): without noise there is no error at all; to 1 %."""
    h, gamma = 0.6, 1.5
    c = exp(-gamma * h)
    found = variance(NoisyGaussian(2.5, noise), step_size=h * h / 2, gamma=gamma, metric=metric)
    assert found == pytest.approx(1 + h * h * noise * (1 + c) / ((1 - c) * (4 - h * h)), rel=0.01)


def test_published() -> None:
    """(2 a + h^2 V) (2 - a) / (a (4 - 2 a - h^2)), and of r with 2 in the place of 2 - a; to 1 %."""
    h, gamma, noise = 0.4, 1.0, 3.0
    a = gamma * h
    found = variances(NoisyGaussian(2.5, noise), step_size=h * h / 2, gamma=gamma, splitting="published")
    common = (2 * a + h * h * noise) / (a * (4 - 2 * a - h * h))
    np.testing.assert_allclose(found, [common * (2 - a), common * 2], rtol=0.01)


@pytest.mark.parametrize("splitting", ["baoa", "published"])
def test_corrected_for_the_noise_of_independent_parts(splitting: str) -> None:
    """Of four parts V is 3 where the data have the whole precision. What is left is O(h^2), not O(h); to 1 %."""
    h, gamma, noise = 0.4, 2.0, PARTS - 1
    a, c = gamma * h, exp(-gamma * h)
    found = variance(
        NoisyGaussian(2.5, noise), step_size=h * h / 2, gamma=gamma, splitting=splitting, noise_correction=True
    )
    left = {
        "baoa": 1 + h * h * noise * (1 + c) / (1 - c) * (1 / (4 - h * h) - 1 / 4),
        "published": 2 * (2 - a) / (4 - 2 * a - h * h),
    }
    assert found == pytest.approx(left[splitting], rel=0.01)


def test_fresh_momenta_with_half_kicks() -> None:
    """Var theta at the end of a trajectory, from the recursion; 1 + O(h^2), not L / (L + 1) = 0.83; to 1 %."""
    h, gamma, length, phase = 0.4, 0.2, 5, 4
    c = exp(-gamma * h)
    drift, kick = np.array([[1, h / 2], [0, 1]]), np.array([[1, 0], [-h, 1]])
    after = drift @ np.diag([1, c]) @ drift
    added = (1 - c * c) * np.outer(drift[:, 1], drift[:, 1])
    fresh = np.array([[1, 0], [-h / 2, 0]])  # from (theta, r): a momentum of its own after half a kick
    one, noise = np.eye(2), np.zeros((2, 2))
    cycle = []
    for update in range(length):
        step = after @ (kick if update else fresh)
        of_momentum = np.zeros((2, 2)) if update else np.outer(after[:, 1], after[:, 1])
        one, noise = step @ one, step @ noise @ step.T + added + of_momentum
        cycle.append((one, noise))
    covariance = solve_discrete_lyapunov(*cycle[-1])
    one, noise = cycle[phase]
    expected = (one @ covariance @ one.T + noise)[0, 0]
    assert abs(expected - 1) < h * h / 2
    found = variance(NoisyGaussian(1.0, 0.0), phase, step_size=h * h / 2, gamma=gamma, refresh=length)
    assert found == pytest.approx(expected, rel=0.01)
