"""Kernel Stein discrepancy: the kernel by its definition, and its mean under the law."""

import numpy as np
import pytest
from stein import kernel_stein_discrepancy, stein_kernel

from dsgmcmc.densities.density import DoubleWell, Gaussian

LAW = Gaussian(np.array([3.0, -1.0]), np.array([[1.0, 0.4], [0.4, 2.0]]))


def test_the_kernel_is_that_of_its_definition() -> None:
    """Derivatives of k by complex steps and differences on five points, to 1e-7; the gradients are
    not linear.
    """
    c = 1.3
    beta = -0.4
    x = np.random.default_rng(1).normal(size=(5, 2))
    scores = -DoubleWell().gradient(x) - x[:, ::-1] ** 2

    def k(a: np.ndarray, b: np.ndarray) -> complex:
        return (c**2 + ((a - b) ** 2).sum()) ** beta

    h = 1e-5
    found = stein_kernel(x, scores, x, scores, c, beta)
    for i, a in enumerate(x):
        for j, b in enumerate(x):
            expected = scores[i] @ scores[j] * k(a, b)
            for d, e in enumerate(np.eye(2)):
                expected += scores[i, d] * (k(a, b + 1j * 1e-30 * e).imag / 1e-30)
                expected += scores[j, d] * (k(a + 1j * 1e-30 * e, b).imag / 1e-30)
                slopes = [k(a + s * h * e, b + 1j * 1e-30 * e).imag / 1e-30 for s in (1, -1)]
                expected += (slopes[0] - slopes[1]) / (2 * h)
            assert found[i, j] == pytest.approx(expected, rel=1e-7)


def test_blocks_and_origin_do_not_matter() -> None:
    """1,200 draws in blocks of 500 and far from 0, against the matrix as a whole, to 1e-12."""
    draws = np.random.default_rng(2).multivariate_normal(LAW.mean, LAW.covariance, 1200)
    gradients = LAW.gradient(draws)
    matrix = stein_kernel(draws - 3, -gradients, draws - 3, -gradients)
    assert kernel_stein_discrepancy(draws, gradients) ** 2 == pytest.approx(
        matrix.mean(), abs=1e-12
    )
