"""Alpha-stable factors: the posterior of a scale given latent variables that are drawn, against quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from latent import given_latent
from stable_factors import Source, StableFactors

from dsgmcmc.densities import KERNELS
from dsgmcmc.densities.sample import sample, vector_target

SPECTROGRAM = np.random.default_rng(0).standard_cauchy((12, 1)) * np.exp(0.5j * np.arange(12))[:, None]


def test_the_posterior_of_a_scale() -> None:
    """One entry of H from 12 data with W = 1, alpha = 1.2, by parts of 4: E log h and its standard deviation.

    To .06, of which .03 is the bias of this step with these parts, .02 four standard errors of 200 chains. With twice
    the scale of Phi it would be off by .42.
    """
    density = StableFactors(SPECTROGRAM, [Source(1.2, np.ones((12, 1)))], scale=0.3, nodes=40)
    h = np.exp(np.linspace(-5, 5, 1000))  # in which the law of log h is summed
    energy = density.energy(h[:, None]) - np.log(h)
    weights = np.exp(energy.min() - energy)
    weights /= weights.sum()
    mean = weights @ np.log(h)
    sd = np.sqrt(weights @ (np.log(h) - mean) ** 2)

    sampler = given_latent(KERNELS["sgld"](KERNELS["sgld"].Config(step_size=0.01), 0))
    density.start = np.full(1, np.exp(mean))
    target = vector_target(density, sampler, rows=200, grid=3)
    states = sample(target, sampler, iterations=1200, sd=0.2)
    draws = np.log(np.abs([theta.copy() for theta in states][200::10]))
    assert draws.mean() == pytest.approx(mean, abs=0.06)
    assert draws.std() == pytest.approx(sd, abs=0.06)
