"""HAMCMC as in the paper, with dense matrices: the oracle of the distributed sampler, and quick on
many chains.

    theta_t = theta_{t-M} - eps H_t grad U~_t(theta_{t-M}) + sqrt(2 eps) S_t z

[Simsekli 2016, algorithm 1] for C independent chains at once, H_t and S_t as (C, D, D) arrays by
the textbook BFGS updates of the pairs tau = t-M+1 .. t-1, oldest first. The square root is the one
that gives S S^T = H. It knows nothing of blocks, coefficients and minibatch parts, and keeps the
whole history.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np


@dataclass
class DenseHAMCMC:
    """A set of chains.

    Parameters
    ----------
    gradient : callable
        f(theta (C, D), iteration) -> (C, D): gradient of the energy on the minibatch of an
        iteration.
    memory : int
        M.
    eps, trust : float
        Step, and weight of B^0 s in y.
    h0 : callable
        f(iteration, g) -> (C, D) or (D,): diagonal of H^0 at an iteration with the drift gradient
        g.
    """

    gradient: Callable[[np.ndarray, int], np.ndarray]
    memory: int
    eps: float
    trust: float
    h0: Callable[[int, np.ndarray], np.ndarray]
    #: Pairs that were left out, by chain.
    skipped: np.ndarray = field(default_factory=lambda: np.zeros(1, int))

    def run(
        self, start: np.ndarray, normals: Callable[[int], np.ndarray], iterations: int
    ) -> Iterator[np.ndarray]:
        """Yield theta_t, (C, D), for t = 0, 1, ...; `normals` gives z of an iteration."""
        M = self.memory
        thetas: list[np.ndarray] = []
        pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self.skipped = np.zeros(len(start), int)
        for t in range(iterations):
            if t >= M:
                before = thetas[-M]
            elif t > 0:
                before = thetas[-1]
            else:
                before = start
            g = self.gradient(before, t)
            h = np.broadcast_to(self.h0(t, g), start.shape)
            used = pairs[-(M - 1) :] if t >= 2 * M + 1 else []
            H, S = self.metric(h, used)
            if used:
                self.skipped += ~self.valid(h, *used[-1])
            z = normals(t)
            new = before - self.eps * _apply(H, g) + np.sqrt(2 * self.eps) * _apply(S, z)
            s = new - before
            pairs.append((s, self.gradient(new, t) - g + self.trust * s / h))
            thetas.append(new)
            thetas = thetas[-M:]
            pairs = pairs[-M:]
            yield new

    def valid(self, h: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Whether a pair passes the curvature test, by chain."""
        return _dot(s, y) > 0.1 * self.trust * _dot(s, s / h)

    def metric(
        self, h: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """H and S, (C, D, D), from the diagonal h (C, D) of H^0."""
        one = np.eye(h.shape[1])
        H = h[:, :, None] * one
        B = one / h[:, :, None]
        S = np.sqrt(h)[:, :, None] * one
        for s, y in pairs:
            valid = self.valid(h, s, y)[:, None, None]
            curvature = np.where(valid[:, 0, 0], _dot(s, y), 1.0)[:, None, None]
            bs = _apply(B, s)
            s_b_s = _dot(s, bs)[:, None, None]
            left = one - _outer(s, y) / curvature
            q = y - np.sqrt(curvature / s_b_s)[:, :, 0] * bs
            H = np.where(valid, left @ H @ left.swapaxes(1, 2) + _outer(s, s) / curvature, H)
            S = np.where(valid, (one - _outer(s, q) / curvature) @ S, S)
            B = np.where(valid, B - _outer(bs, bs) / s_b_s + _outer(y, y) / curvature, B)
        return H, S


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ci,ci->c", a, b)


def _outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, :, None] * b[:, None, :]


def _apply(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.einsum("cij,cj->ci", matrix, vector)
