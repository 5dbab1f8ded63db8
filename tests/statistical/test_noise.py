"""The noise is standard normal and independent, at fixed seeds.

Every bound is a quantile of the statistic's own law, at levels so small that all the tests together
would fail by chance for one seed in a few hundred.
"""

from functools import partial

import numpy as np
import pytest
from scipy import stats
from support import applied, normals_of

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.kernels.philox import NoiseKey

pytestmark = pytest.mark.statistical

N_NORMALS = 1 << 30


def test_moments():
    """Protects the law's shape: moments 1 to 8 of 2^30 normals within 4.5 standard errors."""
    names = [f"m{p}" for p in range(1, 9)]
    body = ["m1 = z", "m2 = z * z", "m3 = m2 * z", "m4 = m2 * m2"]
    body += ["m5 = m4 * z", "m6 = m4 * m2", "m7 = m6 * z", "m8 = m4 * m4"]
    formula = Formula("\n".join(body), sums=tuple(names))
    x = np.zeros((1 << 14, 64), np.float32)
    total = np.zeros(8)
    for iteration in range(N_NORMALS // x.size):
        sums = applied(formula, {"x": x}, noise=partial(NoiseKey, 0, 11, 0, 0, iteration, 0))
        total += [sums[name] for name in names]
    double_factorial = {
        p: float(np.prod(np.arange(p - 1, 0, -2))) if p % 2 == 0 else 0.0 for p in range(1, 17)
    }
    for p in range(1, 9):
        error = np.sqrt((double_factorial[2 * p] - double_factorial[p] ** 2) / N_NORMALS)
        assert abs(total[p - 1] / N_NORMALS - double_factorial[p]) < 4.5 * error, p


def test_tails():
    """Protects the tails: as many of 2^30 normals beyond 4.5 to 6 as there should be, on either
    side.
    """
    thresholds = np.array([4.5, 5, 5.5, 6], np.float32)
    counts = np.zeros((2, 4), int)
    for iteration in range(N_NORMALS // (1 << 20)):
        z = normals_of(1 << 20, iteration=iteration, seed=12)
        for side, extreme in enumerate((z[z > 4.5], -z[z < -4.5])):
            counts[side] += (extreme[:, None] > thresholds).sum(0)
    for side in counts:
        for count, threshold in zip(side, thresholds, strict=True):
            mean = N_NORMALS * stats.norm.sf(float(threshold))
            assert stats.poisson.cdf(count, mean) > 1e-4
            assert stats.poisson.sf(count - 1, mean) > 1e-4
