"""Targets whose moments are known: what their docstrings promise, by quadrature, and gradients of their energies."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.densities.density import DoubleWell, Gaussian

GRID = np.linspace(-7, 7, 20001)
NORMAL = Gaussian([1.0, -2.0], [[2.0, 0.6], [0.6, 1.0]])


@pytest.mark.parametrize("density", [NORMAL, DoubleWell()], ids=lambda density: type(density).__name__)
def test_gradients_are_those_of_the_energy(density) -> None:
    """Central differences, exact to 1e-7."""
    theta = np.random.default_rng(0).normal(size=(5, density.dimension))
    found = density.gradient(theta)
    for k, e in enumerate(1e-5 * np.eye(density.dimension)):
        slope = (density.energy(theta + e) - density.energy(theta - e)) / 2e-5
        np.testing.assert_allclose(found[:, k], slope, rtol=1e-7, atol=1e-7)


def test_double_well_moments() -> None:
    """To the digits that are written."""
    p = np.exp(-DoubleWell().energy(GRID[:, None]))
    for power, moment in ((2, DoubleWell.square), (4, DoubleWell.fourth)):
        assert abs((p * GRID**power).sum() / p.sum() - moment) < 1e-6
