"""Consensus of shards: exact where the shards' laws are normal."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.densities.draws import consensus
from dsgmcmc.densities.regression import Regression, normal
from dsgmcmc.errors import InputError


def law(density: Regression) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a linear regression's posterior."""
    zero = np.zeros((1, density.dimension))
    gradient = density.gradient(zero) + density.prior_gradient(zero)
    covariance = np.linalg.inv(density.hessian(zero[0]))
    return -gradient[0] @ covariance, covariance


def test_three_shards_of_a_linear_regression_give_its_posterior() -> None:
    """Mean within 2 % of a standard deviation, covariance within 2 %: 4 standard errors of 60,000 draws."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2)) @ np.array([[1.0, 0.7], [0.0, 0.5]])
    y = x @ [1.0, -2.0] + rng.normal(size=90)
    shards = []
    for shard, size in zip(np.split(np.arange(90), [15, 40]), (15, 25, 50), strict=True):  # unlike in size
        assert len(shard) == size
        part = Regression(x[shard], y[shard], normal(), prior_mean=0.5, prior_precision=2.0 / 3)
        shards.append(rng.multivariate_normal(*law(part), 60_000))
    draws = consensus(shards)
    mean, covariance = law(Regression(x, y, normal(), prior_mean=0.5, prior_precision=2.0))
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) < 0.02 * spread).all()
    assert (np.abs(np.cov(draws, rowvar=False) - covariance) < 0.025 * np.outer(spread, spread)).all()
    plain = np.cov(np.mean(shards, axis=0), rowvar=False)
    assert plain[0, 0] > 1.2 * covariance[0, 0], "a plain average is wrong here, and this test would see it"


def test_what_cannot_be_combined_is_refused() -> None:
    """Unlike numbers of draws, and fewer draws than it takes."""
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="same K and D"):
        consensus([rng.normal(size=(5, 2)), rng.normal(size=(6, 2))])
    with pytest.raises(InputError, match="shard 1 have a singular covariance"):
        consensus([rng.normal(size=(5, 2)), np.ones((5, 2))])
