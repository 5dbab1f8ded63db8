"""Sums of outer products against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.kernels.outer import CHUNK, add_outer_products, squared_errors, statistics_width
from dsgmcmc.kernels.stored import kernel_arguments

COLUMNS = 30


def case(rank: int, biases: bool) -> tuple[np.ndarray, ...]:
    """Rows without a rating, with a few, with a chunk of them and with several: ratings, features and weights."""
    rng = np.random.default_rng(rank)
    indptr = np.cumsum([0, 0, 3, CHUNK, 2 * CHUNK + 5, 0, 1])
    indices = rng.integers(COLUMNS, size=indptr[-1]).astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    features = rng.standard_normal((COLUMNS, rank + biases)).astype(np.float32)
    return indptr, indices, values, features, rng.gamma(4, 0.25, COLUMNS).astype(np.float32)


def rows_of(rank: int, biases: bool, indices: np.ndarray, values: np.ndarray, features: np.ndarray) -> np.ndarray:
    """(phi, t) of every rating."""
    phi, t = features[indices].astype(np.float64), values.astype(np.float64)
    if biases:
        t = t - phi[:, rank]
        phi[:, rank] = 1
    return np.column_stack([phi, t])


@pytest.mark.parametrize(("rank", "biases"), [(1, True), (3, False), (15, True), (16, False), (33, True)])
def test_statistics_and_squared_errors(rank: int, biases: bool) -> None:
    """Weighted sums for every row, added to what is there, and what they say of the errors at a theta."""
    indptr, indices, values, features, g = case(rank, biases)
    n, d = len(indptr) - 1, rank + biases
    out = np.ones((n, statistics_width(d)), np.float32)
    ratings = kernel_arguments(indptr, indices, values, None)
    add_outer_products(ratings, features, np.sqrt(g), rank, out)
    theta = np.random.default_rng(1).standard_normal((n, d)).astype(np.float32)
    errors = squared_errors(theta, out - 1)
    for i in range(n):
        chosen = slice(indptr[i], indptr[i + 1])
        f, weight = rows_of(rank, biases, indices[chosen], values[chosen], features), g[indices[chosen]].astype(float)
        expected = (f.T * weight) @ f
        size = 1 + np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))[np.tril_indices(d + 1)]
        assert (np.abs(out[i] - 1 - expected[np.tril_indices(d + 1)]) < 2e-6 * size).all()
        found = weight @ (f[:, d] - f[:, :d] @ theta[i]) ** 2
        assert errors[i] == pytest.approx(found, rel=1e-4)
