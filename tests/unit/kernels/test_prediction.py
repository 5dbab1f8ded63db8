"""Predictions against NumPy, and the normal distribution function against SciPy."""

import numpy as np
import pytest
from scipy.special import ndtr as exact

from dsgmcmc.kernels.prediction import (
    EXTENT,
    PER_UNIT,
    PairedRows,
    cells_kernel,
    join_rows,
    ndtr,
    predict_kernel,
)


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


@pytest.mark.parametrize(("K", "biases"), [(0, True), (1, False), (33, True)])
def test_cells_of_several_draws_equal_numpy(K: int, biases: bool) -> None:
    """Every draw fills its own column, from the first that is given; noise has both scales."""
    rng = np.random.default_rng(K)
    w = rng.standard_normal((3, 20, K + biases)).astype(np.float32)
    h = rng.standard_normal((3, 30, K + biases)).astype(np.float32)
    of_w = rng.uniform(0.5, 2, (3, 20)).astype(np.float32)
    of_h = rng.uniform(0.5, 2, (3, 30)).astype(np.float32)
    noise = np.array([0.5, 1.0, 2.0])
    rows = rng.integers(0, 20, 50).astype(np.int32)
    columns = rng.integers(0, 30, 50).astype(np.int32)
    centre = np.full((50, 5), np.nan, np.float32)
    variance = centre.copy()
    cells_kernel(K, biases)(rows, columns, w, h, of_w, of_h, noise, 1, centre, variance)
    want = np.einsum("dqk,dqk->qd", w[:, rows, :K].astype(float), h[:, columns, :K])
    want += w[:, rows, K:].sum(axis=2).T + h[:, columns, K:].sum(axis=2).T
    np.testing.assert_allclose(centre[:, 1:4], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        variance[:, 1:4], (noise[:, None] * of_w[:, rows] * of_h[:, columns]).T, rtol=1e-6
    )
    assert np.isnan(centre[:, [0, 4]]).all()
    assert np.isnan(variance[:, [0, 4]]).all()


def test_moments_of_dot_products_are_those_of_draws() -> None:
    """Pairs with one, two and no uncertain rows, against 200,000 draws of both rows and biases.

    The tolerance is five standard errors of the mean and of the variance.
    """
    rank = 2
    rng = np.random.default_rng(3)
    sides = []
    drawn = []
    for _ in range(2):
        mean = rng.standard_normal((2, rank + 1))
        root = rng.standard_normal((1, rank + 1, rank + 1))
        covariance = root @ root.transpose(0, 2, 1)
        of_pair = np.array([[0, 0, 1, 1], [0, 1, 0, 1]][len(sides)])
        sides.append(PairedRows(of_pair, mean, np.array([0, -1]), covariance))
        uncertain = rng.multivariate_normal(mean[0], covariance[0], 200_000)
        drawn.append([uncertain, np.broadcast_to(mean[1], uncertain.shape)])
    mean, variance = join_rows(*sides, rank)
    for pair, (i, j) in enumerate(zip(sides[0].of_pair, sides[1].of_pair, strict=True)):
        u = drawn[0][i]
        v = drawn[1][j]
        predictors = (u[:, :rank] * v[:, :rank]).sum(axis=1) + u[:, rank] + v[:, rank]
        root = len(predictors) ** 0.5
        assert abs(predictors.mean() - mean[pair]) <= 5 * predictors.std() / root + 1e-9
        squares = (predictors - predictors.mean()) ** 2
        assert abs(squares.mean() - variance[pair]) <= 5 * squares.std() / root + 1e-9


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
