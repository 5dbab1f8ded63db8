"""The network: its backpropagation by differences."""

from typing import Any

import neural_network as network
import numpy as np
import pytest
from densities import differences
from neural_network import ACTIVATIONS, Network

from dsgmcmc.densities.density import ALL, Data

RNG = np.random.default_rng(5)
BYTES = RNG.integers(0, 256, size=(11, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 3, size=11)


@pytest.mark.parametrize("index", [ALL, slice(1, None, 3), np.array([0, 5, 5, 10])], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_backpropagation_is_the_derivative_of_the_energy(
    activation: Any, index: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every weight and bias, by central differences; eleven data go through the loop over
    chunks, too.
    """
    monkeypatch.setattr(network, "CHUNK", 4)
    density = Network(BYTES, LABELS, 4, activation, 1 / 255)
    theta = np.random.default_rng(1).normal(size=(2, density.dimension))
    found = differences(lambda at: density.energy(at, index), theta)
    np.testing.assert_allclose(density.gradient(theta, index), found, atol=1e-8)
    p = density.probabilities(theta, BYTES[index])[:, range(len(LABELS[index])), LABELS[index]]
    np.testing.assert_allclose(-np.log(p).sum(axis=1), density.energy(theta, index), rtol=1e-12)
