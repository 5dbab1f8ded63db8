"""Predictions against NumPy, and the normal distribution function against SciPy."""

import numpy as np
import pytest
from scipy.special import ndtr as exact

from dsgmcmc.kernels.prediction import EXTENT, PER_UNIT, ndtr, predict_kernel


@pytest.mark.parametrize(
    ("K", "biases"), [(0, True), (1, False), (10, True), (33, True), (512, False)]
)
def test_predictions_equal_numpy(K, biases):
    """Protects the dot product and the biases, which the kernel must not multiply."""
    rng = np.random.default_rng(K)
    w, h = (rng.standard_normal((n, K + biases)).astype(np.float32) for n in (20, 30))
    rows, columns = (rng.integers(0, n, 500).astype(np.int32) for n in (20, 30))
    out = np.empty(500, np.float32)
    predict_kernel(K, biases)(rows, columns, w, h, out)
    want = (
        (w[rows, :K].astype(float) * h[columns, :K]).sum(1)
        + w[rows, K:].sum(1)
        + h[columns, K:].sum(1)
    )
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5 * K)


def test_between_the_points_of_the_table_and_beyond_it():
    """Every probability, and the small ones of the lower tail to the same share of themselves."""
    middles = (
        np.arange(-EXTENT * PER_UNIT, EXTENT * PER_UNIT) + 0.5
    ) / PER_UNIT  # farthest from the table's points
    x = np.concatenate([middles, np.random.default_rng(1).uniform(-37, 37, 10_000)])
    np.testing.assert_allclose(ndtr(x), exact(x), rtol=2e-11)
    assert np.abs(ndtr(middles) - exact(middles)).max() < 1e-15


def test_ends():
    """The ends of the table, which has no point beyond them; NaN stays NaN, and reads nothing
    beside the table.
    """
    ends = np.array([-EXTENT, EXTENT, -np.inf, np.inf, 0.0, np.nan])
    around = np.stack([np.nextafter(ends, -np.inf), ends, np.nextafter(ends, np.inf)])
    np.testing.assert_allclose(ndtr(around), exact(around), rtol=1e-12)
