"""The network: its backpropagation by differences, and what estimators use of it."""

from __future__ import annotations

from typing import Any

import neural_network as network
import numpy as np
import pytest
from neural_network import ACTIVATIONS, Network

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.sums import SumDensity

RNG = np.random.default_rng(5)
BYTES, LABELS = RNG.integers(0, 256, size=(11, 3), dtype=np.uint8), RNG.integers(0, 3, size=11)


def small(activation: Any, **more: Any) -> Network:
    return Network(BYTES, LABELS, 4, activation=activation, scale=1 / 255, **more)


def states(density: Network, number: int = 2) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(number, density.dimension))


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven data go through the loop over chunks, too."""
    monkeypatch.setattr(network, "CHUNK", 4)


@pytest.mark.parametrize("index", [ALL, slice(1, None, 3), np.array([0, 5, 5, 10])], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_backpropagation_is_the_derivative_of_the_energy(activation: Any, index: Data) -> None:
    """Of every datum by every weight and bias, by central differences; and the sums are those of the data."""
    density = small(activation)
    theta = states(density)
    energies, gradients = density.energies(theta, index), density.gradients(theta, index)
    assert gradients.shape == (2, len(LABELS[index]), 3 * 4 + 4 + 4 * 3 + 3)
    for k in range(density.dimension):
        step = 1e-5 * np.eye(density.dimension)[k]
        found = (density.energies(theta + step, index) - density.energies(theta - step, index)) / 2e-5
        np.testing.assert_allclose(gradients[:, :, k], found, atol=1e-9)
    np.testing.assert_allclose(density.gradient(theta, index), gradients.sum(axis=1), atol=1e-13)
    p = density.probabilities(theta, BYTES[index])
    np.testing.assert_allclose(p[:, range(len(LABELS[index])), LABELS[index]], np.exp(-energies), rtol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_kept_of_gradients_stands_for_them(activation: Any) -> None:
    """Sums and lengths are made without forming gradients of data: they must be those of the gradients formed."""
    density = small(activation)
    theta, index, p = states(density, 1), np.array([3, 3, 9, 0, 7]), np.array([0.1, 0.1, 0.5, 1.0, 2.0])
    slopes = density.slopes(theta, index) - density.slopes(-theta, index)  # differences, as of control variates
    assert slopes.shape == (1, 5, density.width)
    wanted = SumDensity.weighted(density, slopes, index, p)
    np.testing.assert_allclose(density.weighted(slopes, index, p), wanted, atol=1e-13)
    np.testing.assert_allclose(density.lengths(slopes, index), SumDensity.lengths(density, slopes, index), rtol=1e-12)
    every = density.slopes(theta)
    np.testing.assert_allclose(density.total(every), SumDensity.total(density, every), atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_information_is_the_mean_square_of_gradients(activation: Any) -> None:
    """Over labels drawn as the network says; `stiffness` bounds the matrix of each datum."""
    density = small(activation)
    theta = states(density, 1)
    p = density.probabilities(theta, BYTES)[0]
    matrices = np.zeros((11, density.dimension, density.dimension))
    for k in range(3):
        gradients = Network(BYTES, np.full(11, k), 4, activation=activation, scale=1 / 255, classes=3).gradients(theta)
        matrices += p[:, k, None, None] * gradients[0][:, :, None] * gradients[0][:, None, :]
    found = density.fisher(theta[0])
    np.testing.assert_allclose(found, np.diagonal(matrices, axis1=1, axis2=2).sum(axis=0), atol=1e-12)
    largest = np.linalg.eigvalsh(matrices)[:, -1]
    assert (largest <= density.stiffness(theta)[0] * (1 + 1e-12)).all()
