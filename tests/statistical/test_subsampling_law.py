"""Noise adjustment: gradients of a few data, and the law of Langevin dynamics with all of them [El Hanchi, 5.2.2]."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.densities.adjusted_sgld import AdjustedSGLD, AdjustedSGLDConfig
from dsgmcmc.densities.regression import Link, Regression
from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig

D, N, STEP, ITERATIONS = 6, 60, 0.3, 20_000
#: Columns orthogonal, of one length: the posterior's precision is LAMBDA in every direction.
FEATURES = np.linalg.qr(np.random.default_rng(0).normal(size=(N, D)))[0] * np.sqrt(N)
RESPONSES = 0.3 * np.random.default_rng(1).normal(size=N)
#: Normal responses of variance 1.
NORMAL = Link(
    "normal",
    value=lambda eta, y, shape: 0.5 * (y - eta) ** 2,
    slope=lambda eta, y, shape: eta - y,
    curvature=lambda eta, y, shape: 1.0 + 0.0 * (eta - y),
    third=lambda eta, y, shape: 0.0 * (eta - y),
    suprema=(1.0, 0.0),
    typical=1.0,
)
DENSITY = Regression(FEATURES, RESPONSES, NORMAL, prior_precision=5.0)
LAMBDA = N + 5.0
EPS = STEP / N


def variance(kind, config, gradient: str) -> tuple[float, dict[str, float]]:
    """Mean over the elements of (theta - mean)^2 in units of the posterior's, and what the sampler counted."""
    sampler = kind(config(step_size=STEP, gradient=gradient), 0)
    target = vector_target(DENSITY, sampler, grid=6, schedule="random")
    mean = RESPONSES @ FEATURES / LAMBDA
    draws = np.array([theta[0].copy() for theta in sample(target, sampler, ITERATIONS)])[200:]
    return float(LAMBDA * ((draws - mean) ** 2).mean()), sampler.metrics()


@pytest.mark.parametrize("gradient", ["importance", pytest.param("adaptive", marks=pytest.mark.long)])
def test_the_law_is_that_of_exact_gradients(gradient: str) -> None:
    """1 / (1 - eps lambda / 2) within 2 %: 3 standard errors of 6 x 20,000 draws, a third of them independent."""
    ratio, counted = variance(AdjustedSGLD, AdjustedSGLDConfig, gradient)
    assert counted["clipped"] < 0.01
    assert ratio == pytest.approx(1 / (1 - EPS * LAMBDA / 2), rel=0.02)


@pytest.mark.long
def test_without_adjustment_it_is_wider() -> None:
    """The same gradients: more than 10 % of variance, or the other test would show nothing."""
    assert variance(SGLD, SGLDConfig, "importance")[0] * (1 - EPS * LAMBDA / 2) > 1.1
