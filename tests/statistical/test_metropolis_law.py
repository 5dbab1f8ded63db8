"""Metropolis kernels sample the posterior itself: against quadrature, within one per cent."""

from typing import Any

import numpy as np
import pytest
from chain_states import make_sampler, states
from densities import correlated, quadrature

from dsgmcmc.densities.density import DoubleWell
from dsgmcmc.densities.models.regression import Regression

pytestmark = pytest.mark.statistical


class Unscaled(DoubleWell):
    """The double well, with steps in the time of the dynamics."""

    curvature = np.ones(1)


def sampled(
    name: str, density: Any, iterations: int = 660, **settings: Any
) -> tuple[np.ndarray, Any]:
    """States of 2,000 chains after a burn-in of an eleventh, and the sampler."""
    sampler = make_sampler(name, **settings)
    # from far out in light tails a Langevin step overshoots, and is rejected for ever
    draws = states(density, sampler, iterations, sd=0.5, rows=2_000, seed=4)[iterations // 11 :]
    return np.concatenate(draws), sampler


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mala", {"step_size": 0.15}),
        ("hmc", {"step_size": 0.25, "length": 0.6}),
        ("mh", {"proposal": "walk", "scale": 1.0}),
    ],
)
def test_double_well(name: str, settings: dict[str, Any]) -> None:
    """Second and fourth moments by quadrature; 2,000 chains of 600 iterations have errors of
    .15 %.
    """
    theta, sampler = sampled(name, Unscaled(), **settings)
    assert (theta**2).mean() == pytest.approx(0.832745, rel=0.01)
    assert (theta**4).mean() == pytest.approx(1.082745, rel=0.01)
    assert 0.3 < sampler.metrics()["acceptance"] < 0.98


@pytest.fixture(scope="module")
def small() -> tuple[Regression, np.ndarray, np.ndarray]:
    """A logistic regression of 64 data in 2 dimensions, its mean and its variance by quadrature."""
    density = correlated(64, seed=12, prior_precision=0.1)
    mean, covariance = quadrature(density, *[np.linspace(-4, 6, 501)] * 2)
    return density, mean, np.diag(covariance)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("smh2", {}),
        ("smh2", {"fallback": 1e9, "proposal": "pcn", "rho": 0.3}),
        ("smh1", {"fallback": 1e9, "bound": "published"}),
        ("hmc", {}),
    ],
    ids=["smh2", "smh2-pcn", "smh1", "hmc"],
)
def test_logistic_regression(name: str, settings: dict[str, Any], small: Any) -> None:
    """Mean and variance; 2,000 chains of 600 iterations have errors of .2 %.

    Each looks at few data in most steps.
    """
    density, mean, variance = small
    theta, sampler = sampled(name, density, 165 if name == "hmc" else 660, **settings)
    np.testing.assert_allclose(theta.mean(axis=0), mean, atol=0.01 * np.sqrt(variance).min())
    np.testing.assert_allclose(theta.var(axis=0), variance, rtol=0.01)
    moves, _, plain, steps = sampler.counts.sum(axis=0)
    assert moves > 0.02 * steps
    assert plain < (1.01 if name == "hmc" else 0.5) * steps
