"""The normal distribution function against SciPy's; quantiles of mixtures against a bracketing root finder."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr as exact
from scipy.stats import norm

from dsgmcmc.kernels.prediction import EXTENT, PER_UNIT, ndtr, summarise


def test_between_the_points_of_the_table_and_beyond_it():
    """Every probability, and the small ones of the lower tail to the same share of themselves."""
    middles = (np.arange(-EXTENT * PER_UNIT, EXTENT * PER_UNIT) + 0.5) / PER_UNIT  # farthest from the table's points
    x = np.concatenate([middles, np.random.default_rng(1).uniform(-37, 37, 10_000)])
    np.testing.assert_allclose(ndtr(x), exact(x), rtol=2e-11)
    assert np.abs(ndtr(middles) - exact(middles)).max() < 1e-15


@pytest.mark.parametrize("end", [-EXTENT, EXTENT, -np.inf, np.inf, 0.0])
def test_ends(end):
    """The ends of the table, which has no point beyond them."""
    around = np.array([[np.nextafter(end, -np.inf), end, np.nextafter(end, np.inf)]])
    np.testing.assert_allclose(ndtr(around), exact(around), rtol=1e-12)
    assert ndtr(around).shape == (1, 3)


def test_not_a_number():
    """What is no number stays none, and reads nothing beside the table."""
    assert np.isnan(ndtr(np.array([np.nan]))).all()


def test_quantiles_of_awkward_mixtures():
    """Far apart, of unlike widths and weights: where Newton's method alone would leave the distribution."""
    rng = np.random.default_rng(2)
    centre = rng.normal(0, 20, (200, 7)).astype(np.float32)
    variance = (10.0 ** rng.uniform(-4, 4, (200, 7))).astype(np.float32)
    weights = rng.dirichlet(np.full(7, 0.5))
    levels = (0.003, 0.9)
    _, _, *found = summarise(centre, variance, weights, levels, tuple(norm.ppf(levels)))
    for c, v, *quantiles in zip(centre.astype(float), variance.astype(float), *found, strict=True):
        for level, quantile in zip(levels, quantiles, strict=True):

            def excess(x: float, level: float = level, c: np.ndarray = c, v: np.ndarray = v) -> float:
                return float(weights @ norm.cdf((x - c) / np.sqrt(v)) - level)

            exact = brentq(excess, c.min() - 1e4, c.max() + 1e4, xtol=1e-12)
            assert abs(excess(quantile)) < 5e-5 or quantile == pytest.approx(exact, rel=1e-5)
