"""Ratings cut into column blocks, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dsgmcmc.kernels.csr import split_columns, turned
from dsgmcmc.kernels.stored import index_type


def ratings(n: int, m: int, density: float = 0.2) -> sparse.csr_array:
    rng = np.random.default_rng(n * m)
    dense = rng.integers(1, 6, (n, m)) * (rng.random((n, m)) < density)
    return sparse.csr_array(dense.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("bounds", [[0, 40], [0, 7, 7, 23, 40], [0, 1, 39, 40], [0, 39, 65_576], [0, 39, 65_575]])
def test_blocks_are_the_columns(bounds, dtype):
    """Protects the cut: every rating once, in its block, columns local and ascending, empty blocks too.

    Column numbers take two bytes if all are below 65,536.
    """
    full = ratings(30, 40)
    blocks = split_columns(
        full.indptr.astype(np.int64),
        full.indices.astype(np.int32),
        full.data.astype(dtype),
        np.array(bounds, np.int64),
    )
    assert len(blocks) == len(bounds) - 1
    index = np.int32 if bounds[-1] == 65_576 else np.uint16
    for (indptr, indices, values), low, high in zip(blocks, bounds[:-1], bounds[1:], strict=True):
        assert (indptr.dtype, indices.dtype, values.dtype) == (np.int64, index, dtype)
        want = full[:, low:high].tocsr()
        want.sort_indices()
        assert np.array_equal(indptr, want.indptr)
        assert np.array_equal(indices, want.indices)
        np.testing.assert_array_equal(values, want.data)


@pytest.mark.parametrize("shape", [(30, 40), (1, 5), (70_000, 3)])
def test_the_same_by_column(shape):
    """Protects what rows of H are drawn from: every rating once, rows ascending, columns without ratings too."""
    full = ratings(*shape)
    want = full.tocsc()
    for index, dtype in ((np.int32, np.float32), (np.uint16, np.uint8)):
        given = full.indptr.astype(np.int64), full.indices.astype(index), full.data.astype(dtype)
        indptr, indices, values = turned(*given, shape[1])
        assert (indptr.dtype, indices.dtype, values.dtype) == (np.int64, index_type(shape[0]), dtype)
        assert np.array_equal(indptr, want.indptr)
        assert np.array_equal(indices, want.indices)
        assert np.array_equal(values, want.data)


def test_nothing_to_cut():
    """Protects processes whose rows have no ratings, and those without rows."""
    for n in (0, 3):
        empty = np.zeros(0, np.int32), np.zeros(0, np.float32)
        blocks = split_columns(np.zeros(n + 1, np.int64), *empty, np.array([0, 2, 5]))
        assert [len(values) for _, _, values in blocks] == [0, 0]
        assert [indptr.tolist() for indptr, _, _ in blocks] == [[0] * (n + 1)] * 2


@pytest.mark.parametrize(("indptr", "column"), [([0, 2], 1), ([1, 1], 1), ([0, 1], 5), ([0, 1], -1)])
def test_refuses_what_is_no_matrix(indptr, column):
    """Protects memory: the compiled loops do not check bounds."""
    with pytest.raises(ValueError, match=r"CSR|column"):
        split_columns(np.array(indptr), np.array([column], np.int32), np.ones(1, np.float32), np.array([0, 2, 5]))
