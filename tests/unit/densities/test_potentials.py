"""Targets whose moments are known: what their docstrings promise, by quadrature, and gradients of their energies."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.densities.density import Banana, DoubleWell, Gaussian

GRID = np.linspace(-7, 7, 20001)
NORMAL = Gaussian([1.0, -2.0], [[2.0, 0.6], [0.6, 1.0]])


@pytest.mark.parametrize("density", [NORMAL, DoubleWell(), Banana()], ids=lambda density: type(density).__name__)
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


def test_banana_moments() -> None:
    """Both coordinates, by quadrature on a grid."""
    x1, x2 = np.meshgrid(np.linspace(-6, 6, 601), np.linspace(-4, 8, 601), indexing="ij")
    p = np.exp(-Banana().energy(np.column_stack([x1.ravel(), x2.ravel()])))
    p /= p.sum()
    x1, x2 = x1.ravel(), x2.ravel()
    assert abs(p @ x1**2 - Banana.square) < 1e-6
    assert abs(p @ x1**4 - Banana.fourth) < 1e-5
    assert abs(p @ x2 - Banana.mean) < 1e-6
    assert abs(p @ x2**2 - (p @ x2) ** 2 - Banana.variance) < 1e-5


def test_gaussian_moments() -> None:
    """The energy's constants: a second difference is the precision, and the gradient is 0 at the mean."""
    assert not NORMAL.gradient(NORMAL.mean[None]).any()
    e = np.eye(2)
    found = [[NORMAL.energy((NORMAL.mean + a + b)[None])[0] for a in e] for b in e]
    alone = [NORMAL.energy((NORMAL.mean + a)[None])[0] for a in e]
    cross = found[0][1] - alone[0] - alone[1]
    np.testing.assert_allclose(
        [2 * alone[0], 2 * alone[1], cross], [*np.diag(NORMAL.precision), NORMAL.precision[0, 1]]
    )
