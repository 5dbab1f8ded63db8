"""BAOAB on targets whose law is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate
from test_sgld_stationary import Problem, batches, z_scores

from dsgmcmc.densities.density import ALL
from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.samplers.sgmcmc.baoab import BAOAB, BAOABConfig

pytestmark = pytest.mark.statistical
CHAINS = 4000


class Gaussian:
    """N(mean, precision^-1); the sampler is told only the diagonal of the precision."""

    def __init__(self, precision, mean):
        self.precision, self.mean = np.array(precision), np.array(mean)
        self.dimension = len(mean)
        self.n_data = 10**9  # the data are many, so that l, which bounds the coupling of two factors, is 1
        self.curvature = np.diag(self.precision).copy()
        self.prior_mean = self.prior_precision = np.zeros(self.dimension)

    def gradient(self, theta, data=ALL):
        """Of the energy, whatever the data."""
        return (theta - self.mean) @ self.precision


class LogCosh:
    """Density proportional to exp(-log cosh(x) - x^2 / 20), one-dimensional: not Gaussian."""

    dimension, n_data = 1, 10**9
    curvature = np.array([1.1])
    prior_mean = prior_precision = np.zeros(1)

    def gradient(self, theta, data=ALL):
        """Of the energy, whatever the data."""
        return np.tanh(theta) + theta / 10


def draws(density, eps, friction, burn_in, sweeps, seed=0):
    """States of many chains after every sweep, (sweeps, chains, D)."""
    config = BAOABConfig(step_size=eps, warm_up=0, friction=friction)
    sampler = BAOAB(config, 0)
    target = vector_target(density, sampler, rows=CHAINS, seed=seed)
    states = [theta.copy() for theta in sample(target, sampler, burn_in + sweeps)]
    return np.array(states[burn_in:])


@pytest.mark.parametrize("friction", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("eps", [0.1, 0.35, 1.0])
def test_harmonic_oscillator_has_the_exact_variance(friction, eps):
    """BAOAB's configurational variance of a harmonic oscillator is exact for every stable step and friction.

    The last states of 4,000 independent chains: their variance has the standard error sqrt(2 / 4000) = 0.022.
    """
    burn_in = 150 if friction == 0.9 else 100
    x = draws(Gaussian([[2.0]], [0.0]), eps, friction, burn_in, 1)[-1, :, 0]
    assert abs(np.var(x) * 2.0 - 1.0) < 4.5 * np.sqrt(2 / CHAINS)


def test_correlated_gaussian_mean_and_covariance():
    """A metric that knows only the diagonal changes the speed, not the law: |z| < 4.5 for all moments."""
    precision = np.array([[2.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 0.5]])
    mean = np.array([1.0, -2.0, 0.5])
    x = draws(Gaussian(precision, mean), 0.35, 0.9, 300, 1)[-1]
    covariance = np.linalg.inv(precision)
    z = (x.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / CHAINS)
    assert np.abs(z).max() < 4.5
    spread = np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / CHAINS)
    assert (np.abs(np.cov(x.T) - covariance) / spread).max() < 4.5


def test_error_on_another_target_falls_as_the_step_squared():
    """On log cosh the error of E[x^2] falls at least as eps^2 (h^4), down to the resolution of the test.

    At eps = 2 it is resolved; halving eps must leave at most a quarter of it, and eps = 0.35, the default, nothing
    that 4,000 chains and 400 sweeps can see.
    """

    def density(x):
        return np.exp(-np.log(np.cosh(x)) - x**2 / 20)

    total = integrate.quad(density, -30, 30)[0]
    exact = integrate.quad(lambda x: x**2 * density(x), -30, 30)[0] / total
    error, resolution = {}, {}
    for eps in (1.6, 0.8, 0.35):
        squares = (draws(LogCosh(), eps, 0.5, 100, 300) ** 2).mean(axis=0)[:, 0]  # one mean for each chain
        error[eps] = squares.mean() - exact
        resolution[eps] = squares.std() / np.sqrt(CHAINS)
    assert abs(error[1.6]) > 5 * resolution[1.6]
    assert abs(error[0.8]) < abs(error[1.6]) / 4 + 4 * resolution[0.8]
    assert abs(error[0.35]) < 4 * resolution[0.35] + abs(error[1.6]) / 16


def test_kronecker_metric_on_a_factorisation(tmp_path):
    """With H held fixed W is Gaussian, and BAOAB's mean and covariance are exact at any step: |z| < 5 for all of them.

    Standard errors from 100 batches; SGLD at a step with 20 % error is told apart by the same test of its own file.
    """
    problem = Problem(tmp_path / "r.h5")
    sampler = BAOAB(BAOABConfig(metric="kronecker", step_size=0.3, warm_up=0, friction=0.5), 0)
    target = problem.target(4, "cyclic", sampler)
    sampler.start(target, 0.1)
    problem.hold(target)
    laws = problem.laws(target, 1e-9)
    first, second = batches(target, sampler, laws, length=60, burn_in=200)
    assert np.abs(z_scores(first, 0.0)).max() < 5
    assert np.abs(z_scores(second, np.array([each.covariance for each in laws]))).max() < 5
