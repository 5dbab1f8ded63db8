"""Moments of truncated normal variables."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from dsgmcmc.model.truncation import truncated_moments


@pytest.mark.parametrize(
    ("low", "high"),
    [(-np.inf, 0.3), (0.3, np.inf), (-1, 0.5), (4, 5), (-np.inf, -20), (30, np.inf), (-40, -39)],
)
def test_moments_between_bounds(low: float, high: float) -> None:
    """Those of SciPy, also far in either tail."""
    one = np.ones(1)
    mean, variance = truncated_moments(0.2 * one, 2 * one, low * one, high * one)
    law = truncnorm((low - 0.2) / 2, (high - 0.2) / 2, loc=0.2, scale=2)
    assert mean[0] == pytest.approx(law.mean(), rel=1e-6)
    assert variance[0] == pytest.approx(law.var(), rel=1e-3)
