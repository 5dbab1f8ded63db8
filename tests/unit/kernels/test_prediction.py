"""Predictions of cells, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.kernels.prediction import predict_kernel


@pytest.mark.parametrize(("K", "biases"), [(0, True), (1, False), (10, True), (33, True), (512, False)])
def test_predictions_equal_numpy(K, biases):
    """Protects the dot product and the biases, which the kernel must not multiply."""
    rng = np.random.default_rng(K)
    w, h = (rng.standard_normal((n, K + biases)).astype(np.float32) for n in (20, 30))
    rows, columns = (rng.integers(0, n, 500).astype(np.int32) for n in (20, 30))
    out = np.empty(500, np.float32)
    predict_kernel(K, biases)(rows, columns, w, h, out)
    want = (w[rows, :K].astype(float) * h[columns, :K]).sum(1) + w[rows, K:].sum(1) + h[columns, K:].sum(1)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5 * K)
