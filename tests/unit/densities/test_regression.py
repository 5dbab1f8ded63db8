"""Sums over data: energies, gradients and bounds of every datum agree with each other, for every
link.
"""

from typing import Any

import numpy as np
import pytest
from densities import Plain, differences

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.models.regression import LOGISTIC, Link, Regression, student
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.errors import InputError

LINKS = [LOGISTIC, student(4.0), student(0.7)]
N = 23
D = 3


def regression(link: Link, **more: Any) -> Regression:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(N, D)) * [0.5, 1.0, 2.0]
    responses = (
        rng.random(N) < 0.4 if link is LOGISTIC else features.sum(axis=1) + rng.standard_t(3, N)
    )
    return Regression(features, responses, link, **more)


def ids(link: Any) -> str:
    return f"{link.name}-{link.shape:g}" if isinstance(link, Link) else str(link)


@pytest.mark.parametrize("link", LINKS, ids=ids)
@pytest.mark.parametrize("order", range(3))
def test_every_derivative_of_a_link_is_that_of_the_one_before(link: Link, order: int) -> None:
    """Slope, curvature and third derivative, by central differences; SMH's Taylor terms rest on
    them.
    """
    eta = np.linspace(-9, 9, 61)
    y = np.array([[0.0], [1.0]])
    functions = (link.value, link.slope, link.curvature, link.third)
    h = 1e-4  # its square times the fifth derivative, and rounding of the value over it
    found = (
        functions[order](eta + h, y, link.shape) - functions[order](eta - h, y, link.shape)
    ) / (2 * h)
    wanted = functions[order + 1](eta + 0 * y, y, link.shape)
    np.testing.assert_allclose(wanted, found + 0 * y, atol=2e-8, rtol=1e-7)


@pytest.mark.parametrize("link", LINKS, ids=ids)
def test_suprema_are_reached_and_not_passed(link: Link) -> None:
    """A bound too low makes Metropolis kernels sample another law, one too high makes them slow."""
    eta = np.linspace(-30, 30, 600_001)
    y = np.array([[0.0], [1.0]])
    for supremum, function in zip(link.suprema, (link.curvature, link.third), strict=True):
        largest = np.abs(function(eta, y, link.shape)).max()
        assert largest <= supremum * (1 + 1e-12)
        assert largest >= supremum * (1 - 1e-6)


@pytest.mark.parametrize(
    "density",
    [*map(regression, LINKS), Plain(regression(LOGISTIC))],
    ids=lambda density: type(density).__name__,
)
@pytest.mark.parametrize("index", [ALL, slice(2, None, 7), np.array([0, 5, 5, 22])], ids=str)
def test_data_one_by_one_make_the_whole(density: SumDensity, index: Data) -> None:
    """Energies add up to the energy, gradients to its gradient, and these are those of the
    energies.
    """
    theta = np.random.default_rng(1).normal(size=(4, D))
    energies = density.energies(theta, index)
    gradients = density.gradients(theta, index)
    picked = np.arange(N)[index]
    assert energies.shape == (4, len(picked))
    assert gradients.shape == (4, len(picked), D)
    np.testing.assert_allclose(density.energy(theta, index), energies.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(
        density.gradient(theta, index), gradients.sum(axis=1), rtol=1e-11, atol=1e-12
    )
    for column, datum in enumerate(picked):
        np.testing.assert_allclose(
            density.energies(theta, np.array([datum]))[:, 0], energies[:, column], rtol=1e-12
        )
    found = differences(lambda at: density.energies(at, index), theta, 1e-6)
    np.testing.assert_allclose(gradients, found, atol=1e-7, rtol=1e-7)


def test_what_is_wrong_is_said_in_one_line() -> None:
    """Of shapes, of numbers, and of bounds that a density does not have."""
    with pytest.raises(InputError, match=r"found \(5, 2\) and \(4,\)"):
        Regression(np.ones((5, 2)), np.ones(4))
    with pytest.raises(InputError, match="finite"):
        Regression(np.full((5, 2), np.nan), np.ones(5))
    with pytest.raises(InputError, match="Plain has no bounds"):
        Plain(regression(LOGISTIC)).bounds(1)
    with pytest.raises(InputError, match="positive"):
        student(0.0)
