"""BAOAB on targets whose law is known."""

from __future__ import annotations

import numpy as np
import pytest
from chain_states import make_sampler, states
from densities import Normal
from scipy import integrate

from dsgmcmc.densities.density import ALL

pytestmark = pytest.mark.statistical
CHAINS = 4000
N_DATA = 10**9  # so many data that l, which bounds the coupling of two factors, is 1


class LogCosh:
    """Density proportional to exp(-log cosh(x) - x^2 / 20), one-dimensional: not Gaussian."""

    dimension, n_data = 1, N_DATA
    curvature = np.array([1.1])
    prior_mean = prior_precision = np.zeros(1)

    def gradient(self, theta, data=ALL):
        """Gradient of the energy, whatever the data."""
        return np.tanh(theta) + theta / 10


def draws(density, eps, friction, burn_in, sweeps):
    """States of many chains after every sweep, (sweeps, chains, D)."""
    sampler = make_sampler("baoab", step_size=eps, warm_up=0, friction=friction)
    return states(density, sampler, burn_in + sweeps, rows=CHAINS)[burn_in:]


@pytest.mark.parametrize("friction", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("eps", [0.1, 0.35, 1.0])
def test_harmonic_oscillator_has_the_exact_variance(friction, eps):
    """BAOAB's configurational variance of a harmonic oscillator is exact for every stable step and friction.

    The last states of 4,000 independent chains: their variance has the standard error sqrt(2 / 4000) = 0.022.
    """
    burn_in = 150 if friction == 0.9 else 100
    x = draws(Normal([0.0], [[2.0]], [2.0], N_DATA), eps, friction, burn_in, 1)[-1, :, 0]
    assert abs(np.var(x) * 2.0 - 1.0) < 4.5 * np.sqrt(2 / CHAINS)


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
