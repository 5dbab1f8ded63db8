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


class Factorisation:
    """Biases and one latent dimension, eta = w_i h_j + a_i + b_j, of ratings of rows i and columns j.

    Every number has the prior N(`origin`, 1 / `precision`), (2,) of factors and of biases. States are (chains, D), rows
    (w_i, a_i) first.
    """

    def __init__(
        self, i: np.ndarray, j: np.ndarray, shape: tuple[int, int], precision: float, origin: np.ndarray
    ) -> None:
        self.i, self.j, self.shape, self.precision, self.origin = i, j, shape, precision, origin
        self.dimension = 2 * sum(shape)
        self.by_row, self.by_column = np.eye(shape[0])[i], np.eye(shape[1])[j]

    def sides(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(w, a) of the rows and (h, b) of the columns, (chains, n, 2)."""
        theta = at.reshape(len(at), sum(self.shape), 2)
        return theta[:, : self.shape[0]], theta[:, self.shape[0] :]

    def eta(self, at: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Predictors of pairs, (chains, n)."""
        w, h = self.sides(at)
        return w[:, i, 0] * h[:, j, 0] + w[:, i, 1] + h[:, j, 1]

    def energy(self, at: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """That of the prior, and the gradient of the whole, given the slopes of the log likelihood in eta."""
        w, h = self.sides(at)
        g_w, g_h = self.precision * (w - self.origin), self.precision * (h - self.origin)
        g_w[..., 0] -= (slope * h[:, self.j, 0]) @ self.by_row
        g_h[..., 0] -= (slope * w[:, self.i, 0]) @ self.by_column
        g_w[..., 1] -= slope @ self.by_row
        g_h[..., 1] -= slope @ self.by_column
        off = np.concatenate([w, h], axis=1) - self.origin
        return self.precision * (off**2).sum(axis=(1, 2)) / 2, np.concatenate([g_w, g_h], axis=1).reshape(at.shape)
