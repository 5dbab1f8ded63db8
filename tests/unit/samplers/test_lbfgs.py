"""The coefficient recursions of HAMCMC against dense BFGS matrices."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.samplers.sgmcmc.lbfgs import Products, coefficients


def dense(s, y, h0):
    """H, B and S of the pairs by the textbook updates [Nocedal & Wright 2006, eq. 6.17 and 6.19]."""
    n = len(h0)
    h, b, root = np.diag(h0), np.diag(1 / h0), np.diag(np.sqrt(h0))
    for si, yi in zip(s, y, strict=True):
        rho = 1 / (si @ yi)
        left = np.eye(n) - rho * np.outer(si, yi)
        h = left @ h @ left.T + rho * np.outer(si, si)
        bs = b @ si
        q = yi - np.sqrt((si @ yi) / (si @ bs)) * bs
        root = (np.eye(n) - rho * np.outer(si, q)) @ root
        b = b - np.outer(bs, bs) / (si @ bs) + rho * np.outer(yi, yi)
    return h, b, root


@pytest.mark.parametrize("memory", range(2, 11))
@pytest.mark.parametrize("metric", ["identity", "diagonal"])
def test_recursions_on_coefficients_equal_dense_bfgs(memory, metric):
    """H g, S z, S S^T = H, H y = s and B H = I to 1e-10: the algebra on which the sampler stands."""
    rng = np.random.default_rng(memory)
    n, m = 30, memory - 1
    a = rng.standard_normal((n, n))
    hessian = a @ a.T / n + np.eye(n)
    s = rng.standard_normal((m, n))
    y = s @ hessian
    h0 = np.full(n, 0.3) if metric == "identity" else rng.uniform(0.1, 2.0, n)
    g, z = rng.standard_normal((2, n))
    h, b, root = dense(s, y, h0)

    def close(x, expected):
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-10 * np.abs(expected).max())

    close(root @ root.T, h)
    close(h @ y[-1], s[-1])
    close(b @ h, np.eye(n))
    rz = np.sqrt(h0) * z
    products = Products(
        sy=s @ y.T,
        yhy=y * h0 @ y.T,
        sbs=s / h0 @ s.T,
        sg=s @ g,
        yhg=y * h0 @ g,
        yrz=y @ rz,
        sbrz=s / h0 @ rz,
    )
    ca, cb, ce = coefficients(products, np.ones(m, bool))
    close(h0 * (g + ca @ y) + cb @ s, h @ g)
    close(rz + ce @ s, root @ z)


def test_invalid_pairs_are_left_out():
    """A pair that fails the curvature test must not reach H: the others' BFGS comes out."""
    rng = np.random.default_rng(0)
    n, m = 12, 4
    s = rng.standard_normal((m, n))
    y = s * rng.uniform(0.5, 2.0, n)
    y[1] = -y[1]
    h0 = np.full(n, 0.5)
    g, z = rng.standard_normal((2, n))
    rz = np.sqrt(h0) * z
    valid = np.array([True, False, True, True])
    products = Products(s @ y.T, y * h0 @ y.T, s / h0 @ s.T, s @ g, y * h0 @ g, y @ rz, s / h0 @ rz)
    a, b, e = coefficients(products, valid)
    h, _, root = dense(s[valid], y[valid], h0)
    assert a[1] == b[1] == e[1] == 0
    np.testing.assert_allclose(h0 * (g + a @ y) + b @ s, h @ g, atol=1e-12)
    np.testing.assert_allclose(rz + e @ s, root @ z, atol=1e-12)


def test_without_pairs_h_is_the_first_metric():
    """The first samples come from SGLD steps: no pair, H = H^0."""
    zero = np.zeros((2, 2))
    a, b, e = coefficients(Products(zero, zero, zero, *np.zeros((4, 2))), np.zeros(2, bool))
    assert not a.any()
    assert not b.any()
    assert not e.any()
