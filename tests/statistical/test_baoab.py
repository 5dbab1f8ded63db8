"""BAOAB on a harmonic oscillator, whose distribution it samples exactly."""

from __future__ import annotations

import numpy as np
import pytest
from chain_states import make_sampler, states
from densities import Normal

pytestmark = pytest.mark.statistical
CHAINS = 4000
N_DATA = 10**9  # so many data that l, which bounds the coupling of two factors, is 1


@pytest.mark.parametrize("friction", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("eps", [0.1, 0.35, 1.0])
def test_harmonic_oscillator_has_the_exact_variance(friction, eps):
    """BAOAB's configurational variance of a harmonic oscillator is exact for every stable step and friction.

    OBABO and ABOBA, whose drift and noise are the same as the step goes to 0, are not exact [Leimkuhler & Matthews
    2013]. The last states of 4,000 independent chains: their variance has the standard error sqrt(2 / 4000) = 0.022.
    """
    sampler = make_sampler("baoab", step_size=eps, warm_up=0, friction=friction)
    density = Normal([0.0], [[2.0]], [2.0], N_DATA)
    x = states(density, sampler, 151 if friction == 0.9 else 101, rows=CHAINS)[-1, :, 0]
    assert abs(np.var(x) * 2.0 - 1.0) < 4.5 * np.sqrt(2 / CHAINS)
