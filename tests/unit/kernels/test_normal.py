"""The normal distribution function, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr as exact

from dsgmcmc.kernels.normal import EXTENT, PER_UNIT, ndtr


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
