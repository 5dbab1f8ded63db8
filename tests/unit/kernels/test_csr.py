"""Ratings cut into column blocks, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dsgmcmc.kernels.csr import split_columns


def ratings(n: int, m: int, density: float = 0.2) -> sparse.csr_array:
    rng = np.random.default_rng(n * m)
    dense = rng.integers(1, 6, (n, m)) * (rng.random((n, m)) < density)
    return sparse.csr_array(dense.astype(np.float32))


@pytest.mark.parametrize("bounds", [[0, 40], [0, 7, 7, 23, 40], [0, 1, 39, 40]])
def test_blocks_are_the_columns(bounds):
    """Protects the cut: every rating once, in its block, columns local and ascending, empty blocks too."""
    full = ratings(30, 40)
    blocks = split_columns(
        full.indptr.astype(np.int64),
        full.indices.astype(np.int32),
        full.data,
        np.array(bounds, np.int64),
        offset=3.5,
    )
    assert len(blocks) == len(bounds) - 1
    for (indptr, indices, values), low, high in zip(blocks, bounds[:-1], bounds[1:], strict=True):
        assert (indptr.dtype, indices.dtype, values.dtype) == (np.int64, np.int32, np.float32)
        want = full[:, low:high].tocsr()
        want.sort_indices()
        assert np.array_equal(indptr, want.indptr)
        assert np.array_equal(indices, want.indices)
        np.testing.assert_array_equal(values, want.data - np.float32(3.5))


def test_nothing_to_cut():
    """Protects processes whose rows have no ratings, and those without rows."""
    for n in (0, 3):
        empty = np.zeros(0, np.int32), np.zeros(0, np.float32)
        blocks = split_columns(np.zeros(n + 1, np.int64), *empty, np.array([0, 2, 5]), 0.0)
        assert [len(values) for _, _, values in blocks] == [0, 0]
        assert [indptr.tolist() for indptr, _, _ in blocks] == [[0] * (n + 1)] * 2


@pytest.mark.parametrize(("indptr", "column"), [([0, 2], 1), ([1, 1], 1), ([0, 1], 5), ([0, 1], -1)])
def test_refuses_what_is_no_matrix(indptr, column):
    """Protects memory: the compiled loops do not check bounds."""
    with pytest.raises(ValueError, match=r"CSR|column"):
        split_columns(np.array(indptr), np.array([column], np.int32), np.ones(1, np.float32), np.array([0, 2, 5]), 0.0)
