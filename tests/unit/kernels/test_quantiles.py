"""Quantiles of mixtures of normals, against a bracketing root finder."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dsgmcmc.kernels.quantiles import summarise


def test_quantiles_of_awkward_mixtures():
    """Far apart, of unlike widths and weights: where Newton's method alone would leave the distribution."""
    rng = np.random.default_rng(2)
    centre = rng.normal(0, 20, (200, 7)).astype(np.float32)
    variance = (10.0 ** rng.uniform(-4, 4, (200, 7))).astype(np.float32)
    weights = rng.dirichlet(np.full(7, 0.5))
    levels = (0.003, 0.9)
    _, _, *found = summarise(centre, variance, weights, levels, tuple(norm.ppf(levels)))
    for c, v, *quantiles in zip(centre.astype(float), variance.astype(float), *found, strict=True):
        for level, quantile in zip(levels, quantiles, strict=True):

            def excess(x: float, level: float = level, c: np.ndarray = c, v: np.ndarray = v) -> float:
                return float(weights @ norm.cdf((x - c) / np.sqrt(v)) - level)

            exact = brentq(excess, c.min() - 1e4, c.max() + 1e4, xtol=1e-12)
            assert abs(excess(quantile)) < 5e-5 or quantile == pytest.approx(exact, rel=1e-5)
