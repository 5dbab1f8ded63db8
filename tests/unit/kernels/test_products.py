"""Products without BLAS against NumPy."""

import numpy as np
import pytest

from dsgmcmc.kernels.products import add_rotated, inner


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "D"), [(1, 1), (64, 5), (150, 9)])
def test_products_of_rows_and_of_columns(n: int, D: int, dtype: type) -> None:
    """Also with rows that do not fill the last chunk, after chunks that were full."""
    rng = np.random.default_rng(0)
    left, right, matrix = (
        rng.normal(size=shape).astype(dtype) for shape in ((n, D), (n, D), (D, D))
    )
    rotated = right.copy()
    add_rotated(rotated, left, matrix, keep=0.5)
    np.testing.assert_allclose(inner(left, right), left.T @ right, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(inner(left, left), inner(left, left.copy()))
    np.testing.assert_allclose(rotated, 0.5 * right + left @ matrix, rtol=1e-4, atol=1e-4)
