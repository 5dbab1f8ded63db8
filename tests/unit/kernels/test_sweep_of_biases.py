"""A sweep through rows, for biases only, against its formula in NumPy."""

import numpy as np
import pytest

from dsgmcmc.kernels.biases import sweep_rows


@pytest.mark.parametrize("weighted", [False, True])
def test_means_of_rows_and_sums_of_columns_are_those_of_numpy(weighted):
    """To the last bit: sums are in the order of the ratings. A row without ratings has mean 0."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, 50)
    indptr = np.append(0, np.cumsum(counts))
    n = int(indptr[-1])
    columns = rng.integers(0, 7, n).astype(np.int32)
    deviations = rng.normal(size=n)
    weights = rng.gamma(2.0, size=n).astype(np.float32) if weighted else np.ones(n, np.float32)
    of_columns = rng.normal(size=7)
    rows = np.repeat(np.arange(50), counts)
    numbers = np.bincount(rows, weights, 50)
    sums = np.bincount(rows, (deviations - of_columns[columns]) * weights, 50)
    expected_means = 2.5 * sums / (2.5 * numbers + 0.7)
    expected = deviations - expected_means[rows]
    expected_sums = np.bincount(columns, expected * weights, 7)
    of_rows = np.full(50, np.nan)
    found = sweep_rows(
        indptr,
        columns,
        deviations,
        weights if weighted else None,
        numbers=numbers,
        tau=2.5,
        strength=0.7,
        means=(of_rows, of_columns),
    )
    np.testing.assert_array_equal(of_rows, expected_means)
    np.testing.assert_array_equal(deviations, expected)
    np.testing.assert_array_equal(found, expected_sums)
    assert counts.min() == 0
