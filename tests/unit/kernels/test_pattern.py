"""Sums along the pattern of ratings, against matrix products."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dsgmcmc.kernels.gradient import spread_kernel


@pytest.mark.parametrize("D", [1, 5, 33, 130])
def test_equals_products_with_the_pattern(D: int) -> None:
    """Protects both directions, what was in the output before, empty rows, and columns in blocks with a rest."""
    rng = np.random.default_rng(D)
    pattern = sparse.random_array((13, 9), density=0.4, rng=rng, format="csr")
    pattern.data[:] = 1
    in_w, in_h, out_w, out_h = (rng.integers(-9, 9, (n, D)).astype(np.float32) for n in (13, 9, 13, 9))
    want_w, want_h = out_w + pattern @ in_h, out_h + pattern.T @ in_w
    indptr, indices = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32)
    spread_kernel(D)(indptr, indices.view(np.uint16), in_w, in_h, out_w, out_h)
    np.testing.assert_array_equal(out_w, want_w)
    np.testing.assert_array_equal(out_h, want_h)
