"""Products with small matrices, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.kernels.products import add_rotated, gram


@pytest.mark.parametrize("D", [1, 3, 33, 66])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_times_a_matrix(D: int, dtype: type) -> None:
    """Added, or in place; and a row's bits do not depend on where it stands, nor on its neighbours."""
    rng = np.random.default_rng(D)
    values, matrix, out = (rng.normal(size=shape).astype(dtype) for shape in ((100, D), (D, D), (100, D)))
    expected = out + values @ matrix
    add_rotated(out, values, matrix)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * D)
    turned, some = values.copy(), values[37:90].copy()
    for array in (turned, some):
        add_rotated(array, array, matrix, keep=0.0)
    np.testing.assert_allclose(turned, values @ matrix, rtol=1e-5, atol=1e-5 * D)
    assert some.tobytes() == turned[37:90].tobytes()


@pytest.mark.parametrize("ones", [True, False])
def test_outer_products_of_rows(ones: bool) -> None:
    """Weighted; the bias counts as what multiplies it."""
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=(100, 7)).astype(np.float32), rng.random(100).astype(np.float32)
    rows = values.astype(np.float64)
    if ones:
        rows[:, -1] = 1.0
    np.testing.assert_allclose(gram(values, weights, ones), (rows.T * weights) @ rows, rtol=1e-5, atol=1e-5)
