"""Weights of ratings of two levels: the law of PG(1, z), and numbers by row and column."""

import numpy as np
import pytest
from scipy.integrate import quad

from dsgmcmc.kernels.philox import NoiseKey
from dsgmcmc.kernels.polya_gamma import FAR, MARGIN, NEAR, TAIL, _module, draw_weights
from dsgmcmc.types import Float32, Purpose

ROWS = 500
COLUMNS = 400
KEY = NoiseKey(first=0, seed=3, chain=1, purpose=Purpose.RATING_WEIGHT, iteration=7, factor=0)


def draws(z: float, rows: range = range(ROWS), columns: range = range(COLUMNS)) -> Float32:
    """Weights of a full block of ratings, all with one z, (rows, columns)."""
    n = len(rows)
    m = len(columns)
    indptr = m * np.arange(n + 1, dtype=np.int64)
    indices = np.tile(np.arange(m, dtype=np.uint16), n)
    all_z = np.full(n * m, z, np.float32)
    key = KEY._replace(first=rows.start)
    weights = draw_weights((indptr, indices), all_z, first_column=columns.start, key=key)
    return weights.reshape(n, m)


def density(x: float, z: float) -> float:
    """The density of PG(1, z), by its alternating series."""
    n = np.arange(200)
    terms = (-1.0) ** n * (2 * n + 1) * np.exp(-((2 * n + 1) ** 2) / (8 * x))
    return float(np.cosh(z / 2) * np.exp(-z * z * x / 2) * terms.sum() / np.sqrt(2 * np.pi * x**3))


@pytest.mark.parametrize("z", [0.0, 0.4, -1.0, 2.5, 3.2, -6.0, 15.0, 40.0])
def test_mean_and_variance_are_those_of_the_law(z: float) -> None:
    """Known in closed form; the mean of 200,000 draws within 4 standard errors, variances 2 %."""
    weights = draws(z).astype(np.float64)
    mean = 1 / 4
    variance = 1 / 24
    if z:
        mean = np.tanh(z / 2) / (2 * z)
        variance = (np.sinh(z) - z) / (4 * z**3 * np.cosh(z / 2) ** 2)
    assert abs(weights.mean() - mean) < 4 * np.sqrt(variance / weights.size)
    assert weights.var() == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("z", [0.0, 1.7, 4.0])
def test_shares_of_draws_are_those_of_the_density(z: float) -> None:
    """By quadrature, on either side of 0.16, where two proposals meet, within 4 standard errors."""
    weights = draws(z)
    for low, high in ((0.02, 0.08), (0.08, 0.16), (0.16, 0.3), (0.3, 0.8)):
        expected, _ = quad(density, low, high, args=(z,))
        found = np.mean((weights > low) & (weights <= high))
        assert abs(found - expected) < 4 * np.sqrt(expected / weights.size)


def test_the_polynomial_bounds_the_probability_of_the_upper_proposal() -> None:
    """Where it does not decide, p(h) is computed."""
    h = np.linspace(0.0, 30.0, 30_001)
    exact = np.array([_module().tail_probability(each) for each in h])
    near = h < NEAR
    polynomial = np.polynomial.Polynomial(TAIL)(h[near])
    assert np.abs(polynomial - exact[near]).max() < 0.8 * MARGIN
    assert exact[~near].max() < 0.95 * FAR


def test_a_draw_depends_on_its_row_and_column_alone() -> None:
    """Blocks of any rows and columns have the numbers that the whole matrix has."""
    matrix = draws(1.3)
    part = draws(1.3, range(120, 290), range(33, 340))
    assert np.array_equal(part, matrix[120:290, 33:340])
    assert len(np.unique(matrix)) > 0.99 * matrix.size


def test_a_predictor_that_is_not_finite_ends() -> None:
    """Such a chain has diverged, and is stopped by others."""
    assert draws(float("inf"), range(2), range(2)).shape == (2, 2)
    assert draws(float("nan"), range(2), range(2)).shape == (2, 2)


def test_measurements_of_one_pair_have_weights_of_their_own() -> None:
    """The first has the weight that it has alone; the others' are independent of it, and of those
    of other pairs: correlations of 5,000 draws within 4 standard errors, 0.057.
    """
    n = 5_000
    indptr = np.array([0, 3 * n], np.int64)
    indices = np.repeat(np.arange(n, dtype=np.uint16), 3)
    z = np.full(3 * n, 1.3, np.float32)
    three = draw_weights((indptr, indices), z, first_column=0, key=KEY).reshape(n, 3)
    alone = draw_weights(
        (np.array([0, n], np.int64), indices[::3].copy()), z[:n], first_column=0, key=KEY
    )
    assert three[:, 0].tolist() == alone.tolist()
    correlations = np.corrcoef(np.column_stack([three[:-1], three[1:]]).T)
    assert np.abs(correlations - np.eye(6)).max() < 0.057
