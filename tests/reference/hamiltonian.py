"""Hamiltonian Monte Carlo in NumPy, many chains side by side: the truth of the laws that no Gibbs sampler has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

#: Minus the log density of states (chains, D), (chains,), and its gradient, (chains, D).
Energy = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
CHAINS, BURN_IN, LEAPS = 20, 300, 20


def hamiltonian(energy: Energy, start: np.ndarray, step: float, draws: int) -> Iterator[np.ndarray]:
    """Yield states of all chains, (CHAINS, D), `draws` of them together.

    Trajectories have 20 leapfrog steps, each of them 0.8 to 1.2 times `step`. Fails if a fifth is rejected.
    """
    rng = np.random.default_rng(0)
    states, accepted = start, []
    for number in range(BURN_IN + draws // CHAINS):
        value, gradient = energy(states)
        momentum = rng.normal(size=states.shape)
        before = value + (momentum**2).sum(axis=1) / 2
        eps = step * rng.uniform(0.8, 1.2, (len(states), 1))
        new = states
        for _ in range(LEAPS):
            momentum = momentum - eps / 2 * gradient
            new = new + eps * momentum
            value, gradient = energy(new)
            momentum = momentum - eps / 2 * gradient
        taken = np.log(rng.random(len(states))) < before - value - (momentum**2).sum(axis=1) / 2
        accepted.append(taken.mean())
        states = np.where(taken[:, None], new, states)
        if number >= BURN_IN:
            yield states
    assert np.mean(accepted) > 0.8


class Factorisation:
    """Biases and one latent dimension, eta = w_i h_j + a_i + b_j, of ratings of rows i and columns j.

    Every number has the prior N(0, 1). States are (chains, D), rows (w_i, a_i) first.
    """

    def __init__(self, i: np.ndarray, j: np.ndarray, shape: tuple[int, int]) -> None:
        self.i, self.j, self.shape = i, j, shape
        self.dimension = 2 * sum(shape)
        self.by_row, self.by_column = np.eye(shape[0])[i], np.eye(shape[1])[j]

    def sides(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(w, a) of the rows and (h, b) of the columns, (chains, n, 2)."""
        theta = states.reshape(len(states), sum(self.shape), 2)
        return theta[:, : self.shape[0]], theta[:, self.shape[0] :]

    def eta(self, states: np.ndarray) -> np.ndarray:
        """Predictors of the ratings, (chains, n)."""
        w, h = self.sides(states)
        return w[:, self.i, 0] * h[:, self.j, 0] + w[:, self.i, 1] + h[:, self.j, 1]

    def energy(self, states: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The energy of the prior, and the gradient of the whole, given the slopes of the log likelihood in eta."""
        w, h = self.sides(states)
        g_w, g_h = w.copy(), h.copy()
        g_w[..., 0] -= (slope * h[:, self.j, 0]) @ self.by_row
        g_h[..., 0] -= (slope * w[:, self.i, 0]) @ self.by_column
        g_w[..., 1] -= slope @ self.by_row
        g_h[..., 1] -= slope @ self.by_column
        return (states**2).sum(axis=1) / 2, np.concatenate([g_w, g_h], axis=1).reshape(states.shape)
