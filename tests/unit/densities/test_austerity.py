"""Austerity's promise, enumerated: how often a sequential test decides wrongly, over all orders of a few data."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from dsgmcmc.densities.mh import Austerity, AusterityConfig
from dsgmcmc.densities.sums import SumDensity

N, BATCH = 6, 2


class Fixed(SumDensity):
    """Whose energies rise by these numbers where theta goes from 0 to 1."""

    n_data = N

    def __init__(self, rises: np.ndarray) -> None:
        self.rises = rises

    def energies(self, theta, index=slice(None)):
        """See `SumDensity.energies`."""
        return theta * self.rises[index]

    def gradients(self, theta, index=slice(None)):
        """Not needed."""
        raise NotImplementedError


def orders() -> np.ndarray:
    """All orders of the data that differ in who is in which batch, each once."""
    every = [np.sort(np.reshape(order, (-1, BATCH)), axis=1).ravel() for order in permutations(range(N))]
    return np.unique(every, axis=0)


def wrong(rises: np.ndarray, bars: np.ndarray, risk: float) -> np.ndarray:
    """Probability of a wrong decision against each bar, (len(bars),), the data being in random order."""
    kernel, density = Austerity(AusterityConfig(risk=risk, batch=BATCH), 0), Fixed(rises)
    pair = np.array([[0.0], [1.0]])
    found = [
        [kernel.rises_by_no_more(density, pair, bar, order)[0] != (rises.sum() <= bar) for order in orders()]
        for bar in bars
    ]
    return np.mean(found, axis=1)


def test_even_data_are_decided_as_rarely_wrongly_as_promised() -> None:
    """Over the law of -log u: at most `risk` a test, of which there are two before all data are seen; never at 0."""
    rises = np.array([-1.2, -0.4, 0.1, 0.5, 0.9, 1.6])
    bars = -np.log((np.arange(20) + 0.5) / 20)
    assert len(orders()) == 90
    for risk in (0.05, 0.2):
        assert wrong(rises, bars, risk).mean() <= 2 * risk
    assert wrong(rises, bars, 0.2).max() > 0.1  # so the bound is not idle
    assert not wrong(rises, bars, 0.0).any()
