"""Rows drawn from normal laws, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.kernels.normal_rows import LANES, draw_normal_rows
from dsgmcmc.kernels.outer import statistics_width


def laws(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Standard normals, statistics, scales, and a prior mean."""
    rng = np.random.default_rng(n + d)
    data = rng.standard_normal((n, 2 * d, d + 1))
    i, j = np.tril_indices(d + 1)
    sums = np.ascontiguousarray(np.einsum("nra,nrc->nac", data, data)[:, i, j], np.float32)
    assert sums.shape[1] == statistics_width(d)
    return rng.standard_normal((n, d)).astype(np.float32), sums, rng.gamma(4, 0.5, n), rng.standard_normal(d)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (LANES, 3), (LANES + 5, 4), (3, 17), (2 * LANES + 1, 33)])
def test_mean_and_noise(n: int, d: int, dense: bool, by_row: bool) -> None:
    """P^-1 v + L^-T z with P = L L^T, of groups of rows that are full and not, with prior means of their own or one."""
    z, sums, scale, mean = laws(n, d)
    lambda_ = 0.5 * np.eye(d) + (0.3 if dense else 0)
    rng = np.random.default_rng(2)
    shift = rng.standard_normal((n, d)) if by_row else None
    found = z.copy()
    draw_normal_rows(found, sums, scale, RowPrior(mean, lambda_ if dense else lambda_.diagonal(), shift))
    for i in range(n):
        a = np.zeros((d + 1, d + 1))
        a[np.tril_indices(d + 1)] = sums[i]
        gram = np.tril(a)[:d, :d] + np.tril(a, -1)[:d, :d].T
        lower = np.linalg.cholesky(lambda_ + scale[i] * gram)
        v = lambda_ @ (mean + shift[i] if by_row else mean) + scale[i] * a[d, :d]
        expected = np.linalg.solve(lower.T, np.linalg.solve(lower, v) + z[i])
        np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Solved beside others or alone, in whichever place: the same bits."""
    z, sums, scale, mean = laws(LANES + 3, 6)
    together, alone = z.copy(), z.copy()
    prior = RowPrior(mean, np.ones(6))
    draw_normal_rows(together, sums, scale, prior)
    for i in range(len(z)):
        draw_normal_rows(alone[i : i + 1], sums[i : i + 1], scale[i : i + 1], prior)
    assert together.tobytes() == alone.tobytes()
