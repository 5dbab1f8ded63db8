"""What the noise of parts leaves of SGLD's law: all of it where parts are drawn, little where they are shuffled."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import ScheduleName

pytestmark = pytest.mark.statistical
PARTS, V, EPS = 4, 3.0, 0.1
#: One in a column of 24 ways to give four data gradients that add up to 0, so that a part's has the variance V.
APART = np.linalg.qr(np.column_stack([np.ones(PARTS), np.random.default_rng(0).normal(size=(PARTS, 3))]))[0][:, 1:]


class Unlike:
    """N(0, 1) in three dimensions from four data, whose gradients at 0 differ."""

    dimension, n_data, curvature = 3, PARTS, np.ones(3)
    prior_mean, prior_precision = np.zeros(3), np.zeros(3)
    offsets = APART * np.sqrt(V / PARTS)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Gradient of the energy of a part."""
        offsets = self.offsets[data]
        return len(offsets) / PARTS * theta + offsets.sum(axis=0)


def law(schedule: ScheduleName) -> float:
    """Stationary variance, in the mean over the iterations of a sweep, of the linear recursion."""
    rho, between = 1 - EPS, -V / (PARTS - 1) if schedule == "shuffled" else 0.0
    noise = EPS**2 * (between + (V - between) * np.eye(PARTS)) + 2 * EPS * np.eye(PARTS)

    def added(steps: int) -> float:
        weights = rho ** np.arange(steps)[::-1]
        return float(weights @ noise[:steps, :steps] @ weights)

    first = added(PARTS) / (1 - rho ** (2 * PARTS))
    return float(np.mean([rho ** (2 * k) * first + added(k) for k in range(PARTS)]))


@pytest.mark.parametrize(
    ("schedule", "known"), [pytest.param("random", 1.211, marks=pytest.mark.long), ("shuffled", 1.078)]
)
def test_noise_of_parts(schedule: ScheduleName, known: float) -> None:
    """Four parts, V = 3, eps = .1; to 2 %, five standard errors of 60,000 iterations of 50 rows on the same parts."""
    assert law(schedule) == pytest.approx(known, abs=0.001)
    sampler, density = SGLD(SGLDConfig(step_size=EPS), 0), Unlike()
    np.testing.assert_allclose((PARTS * density.offsets**2 * PARTS).mean(axis=0), V)
    target = vector_target(density, sampler, rows=50, grid=PARTS, schedule=schedule)
    squares = [np.mean(theta**2) for theta in sample(target, sampler, iterations=60_000, sd=1.0)]
    assert np.mean(squares[1000:]) == pytest.approx(law(schedule), rel=0.02)
