"""Sums of chosen rows have the bits of sums in the order of the rows, whatever the columns."""

import numpy as np
import pytest

from dsgmcmc.kernels.row_sums import sum_rows


@pytest.mark.parametrize("columns", [1, 255, 256, 600])
def test_adds_rows_in_their_order(columns):
    """Lists do not depend on how many columns are summed together."""
    rng = np.random.default_rng(columns)
    matrix = rng.normal(size=(40, columns)).astype(np.float32)
    rows = rng.integers(-1, 40, 60)
    ends = np.array([0, 0, 25, 26, 60])
    out = np.full((4, columns), np.nan, np.float32)
    sum_rows(matrix, rows, ends, out)
    for i in range(4):
        expected = np.zeros(columns, np.float32)
        for row in rows[ends[i] : ends[i + 1]]:
            if row >= 0:
                expected += matrix[row]
        np.testing.assert_array_equal(out[i], expected)
