"""Plain Gibbs sampling with effects of groups: the oracle of `tests/statistical/test_group_effects_law.py`.

Every block is drawn from its textbook conditional, one row and one group after the other, with lambda given d alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

RATE = 0.1


def gibbs(
    i: np.ndarray,
    j: np.ndarray,
    x: np.ndarray,
    weights: np.ndarray,
    groups: list[np.ndarray],
    train: np.ndarray,
    rank: int,
    prior: float,
    sweeps: int,
) -> Iterator[tuple[np.ndarray, list[np.ndarray], np.ndarray]]:
    """Draw theta ~ N(0, 1 / prior), d and lambda.

    Parameters
    ----------
    i, j, x, weights : (n,)
        Rows, columns, centred ratings and the precision of each.
    groups : list of (n,) int
        Of every rating, by level.
    train : (n,) bool
        Which ratings count.

    Yields
    ------
    eta : (n,) predictors with their effects
    effects : list of (G,), by level
    precisions : (L,)
    """
    rng = np.random.default_rng(7)
    sizes = int(i.max()) + 1, int(j.max()) + 1
    theta = [rng.normal(0, 0.1, (n, rank + 1)) for n in sizes]
    effects = [np.zeros(int(group.max()) + 1) for group in groups]
    precisions = np.full(len(groups), 10.0)

    def shift(without: int = -1) -> np.ndarray:
        return sum(
            (d[g] for k, (d, g) in enumerate(zip(effects, groups, strict=True)) if k != without), np.zeros(len(x))
        )

    def eta() -> np.ndarray:
        w, h = theta[0][i], theta[1][j]
        return (w[:, :rank] * h[:, :rank]).sum(axis=1) + w[:, rank] + h[:, rank]

    for _ in range(sweeps):
        for side, (own, other) in enumerate(((i, j), (j, i))):
            target = x - shift() - theta[1 - side][other, rank]
            phi = theta[1 - side][other].copy()
            phi[:, rank] = 1.0
            for row in range(sizes[side]):
                mine = train & (own == row)
                weighted = phi[mine] * weights[mine, None]
                precision = prior * np.eye(rank + 1) + weighted.T @ phi[mine]
                root = np.linalg.inv(np.linalg.cholesky(precision))
                theta[side][row] = root.T @ (root @ (weighted.T @ target[mine]) + rng.normal(size=rank + 1))
        for k, group in enumerate(groups):
            left = np.where(train, weights * (x - eta() - shift(k)), 0.0)
            n = np.bincount(group, np.where(train, weights, 0.0), len(effects[k]))
            total = n + precisions[k]
            effects[k] = np.bincount(group, left, len(effects[k])) / total + rng.normal(size=len(n)) / np.sqrt(total)
            squares, many = (effects[k][n > 0] ** 2).sum(), int((n > 0).sum())
            precisions[k] = rng.gamma(1 + many / 2) / (RATE + squares / 2)
            effects[k][n == 0] = rng.normal(0, precisions[k] ** -0.5, int((n == 0).sum()))
        yield eta() + shift(), [d.copy() for d in effects], precisions.copy()
