"""A sweep through rows, for biases only, against its formula in NumPy."""

import numpy as np
import pytest

from dsgmcmc.kernels.biases import sweep_rows
from dsgmcmc.kernels.compact_ratings import kernel_arguments


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("index", [np.uint16, np.int32])
@pytest.mark.parametrize("weighted", [False, True])
def test_means_of_rows_and_sums_of_columns_are_those_of_numpy(weighted, index, coded):
    """To the last bit: sums are in the order of the ratings. A row without ratings has mean 0."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, 50)
    indptr = np.append(0, np.cumsum(counts))
    n = int(indptr[-1])
    columns = rng.integers(0, 7, n).astype(index)
    table = rng.normal(size=5).astype(np.float32)
    codes = rng.integers(0, 5, n).astype(np.uint8)
    values = table[codes]
    arguments = kernel_arguments(indptr, columns, values, None)
    if coded:
        arguments = kernel_arguments(indptr, columns, codes, table)
    weights = rng.gamma(2.0, size=n).astype(np.float32) if weighted else np.ones(n, np.float32)
    of_columns = rng.normal(size=7)
    rows = np.repeat(np.arange(50), counts)
    numbers = np.bincount(rows, weights, 50)
    deviations = values.astype(float) - 0.4
    sums = np.bincount(rows, (deviations - of_columns[columns]) * weights, 50)
    expected_means = 2.5 * sums / (2.5 * numbers + 0.7)
    residuals = deviations - expected_means[rows]
    of_rows = np.full(50, np.nan)
    found = np.ones(7)
    squares = sweep_rows(
        arguments,
        weights if weighted else None,
        numbers=numbers,
        mean=0.4,
        tau=2.5,
        strength=0.7,
        means=(of_rows, of_columns),
        sums=found,
    )
    np.testing.assert_array_equal(of_rows, expected_means)
    # bincount starts at 0, and a sweep at the sums so far
    expected_sums = np.bincount(
        np.append(range(7), columns), np.append(np.ones(7), residuals * weights)
    )
    np.testing.assert_array_equal(found, expected_sums)
    assert squares == pytest.approx(float(np.sum(residuals**2 * weights)), rel=1e-12)
    assert counts.min() == 0
