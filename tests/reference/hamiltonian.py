"""Hamiltonian Monte Carlo in NumPy, many chains side by side: the truth of the laws that no Gibbs sampler has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

#: Minus the log density of states (chains, D), (chains,), and its gradient, (chains, D).
Energy = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
CHAINS, BURN_IN, LEAPS = 20, 300, 20


def hamiltonian(energy: Energy, start: np.ndarray, step: float, draws: int) -> Iterator[np.ndarray]:
    """Yield states of all chains, (CHAINS, D), `draws` of them together; the caller may change what `energy` knows.

    Trajectories have 20 leapfrog steps, each of them 0.8 to 1.2 times `step`. Fails if a fifth is rejected.
    """
    rng = np.random.default_rng(0)
    at, accepted = start, []
    for number in range(BURN_IN + draws // CHAINS):
        value, gradient = energy(at)
        momentum = rng.normal(size=at.shape)
        before = value + (momentum**2).sum(axis=1) / 2
        eps = step * rng.uniform(0.8, 1.2, (len(at), 1))
        new = at
        for _ in range(LEAPS):
            momentum = momentum - eps / 2 * gradient
            new = new + eps * momentum
            value, gradient = energy(new)
            momentum = momentum - eps / 2 * gradient
        taken = np.log(rng.random(len(at))) < before - value - (momentum**2).sum(axis=1) / 2
        accepted.append(taken.mean())
        at = np.where(taken[:, None], new, at)
        if number >= BURN_IN:
            yield at
    assert np.mean(accepted) > 0.8


def indicator(of: np.ndarray, n: int) -> np.ndarray:
    """Matrix (len(of), n) that sums what belongs to each of n rows."""
    return np.eye(n)[of]
