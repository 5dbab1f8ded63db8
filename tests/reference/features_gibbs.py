"""Exact Gibbs for a factorisation whose rows have features: the oracle of
`statistical/test_features_law.py`.

x_ij ~ N(mu + a_i + b_j + W_i . H_j, 1 / (tau g_i g'_j)); rows of either side theta_i ~ N(m + B^T
x_i, (g_i diag(lambda))^-1) with fixed scales g_i and x_i centred, m and lambda as in `gibbs.py`
(normal-gamma, m = 0 of the bias), B_f ~ N(0, (beta_g diag(lambda))^-1) and beta_g ~ Gamma(1, 1).
One sweep draws theta of the rows and of the columns, then for both sides lambda and m given theta -
X B and B, beta given B, and B given the rest by generalised least squares, column by column. Dense,
in double precision, written to be checked.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Side:
    """Features of one side, centred, their groups by number, and what is sampled of it."""

    x: np.ndarray  # (n, F)
    groups: np.ndarray  # (F,) int
    theta: np.ndarray  # (n, D)
    m: np.ndarray  # (D,)
    precision: np.ndarray  # (D,)
    effects: np.ndarray  # (F, D)
    strength: np.ndarray  # (groups,)
    scale: np.ndarray  # (n,)


def draw_theta(
    side: Side, other: np.ndarray, observed: np.ndarray, x: np.ndarray, tau: float, rng
) -> None:
    """All rows at once; ``x`` (n, n') are ratings and ``observed`` the other side's scales, with
    zeros where there are none. A row's own scale divides the variance and leaves the mean.
    """
    features = other.copy()
    features[:, -1] = 1.0
    prior = side.m + side.x @ side.effects
    gram = np.einsum("ij,jk,jl->ikl", observed, features, features)
    precision = tau * gram + np.diag(side.precision)
    moment = tau * (observed * (x - other[:, -1])) @ features + side.precision * prior
    root = np.sqrt(side.scale)
    lower = np.linalg.cholesky(np.linalg.inv(precision))
    side.theta = np.linalg.solve(precision, moment[..., None])[..., 0]
    side.theta += (lower @ rng.standard_normal(side.theta.shape)[..., None])[..., 0] / root[:, None]


def draw_prior(side: Side, rng) -> None:
    """Lambda and m given theta - X B and B, beta given B, B given all of them."""
    n, d = side.theta.shape
    beta = side.strength[side.groups]
    residual = side.theta - side.x @ side.effects
    g = side.scale
    total = g.sum()
    average = g @ residual / total
    of_effects = (beta[:, None] * side.effects**2).sum(axis=0)
    scatter = g @ (residual - average) ** 2
    shape = 1 + (n + len(beta)) / 2
    rate = 5 + (scatter + total * average**2 / (total + 1) + of_effects) / 2
    rate[-1] = 5 + (g @ residual[:, -1] ** 2 + of_effects[-1]) / 2
    side.precision = rng.gamma(shape, 1 / rate)
    side.m = rng.normal(total * average / (total + 1), 1 / np.sqrt((total + 1) * side.precision))
    side.m[-1] = 0.0
    squares = (side.effects**2 * side.precision).sum(axis=1)
    for group in range(len(side.strength)):
        of_group = side.groups == group
        side.strength[group] = rng.gamma(1 + of_group.sum() * d / 2) / (
            1 + squares[of_group].sum() / 2
        )
    beta = side.strength[side.groups]
    weighted = side.x.T * g
    inverse = np.linalg.inv(weighted @ side.x + np.diag(beta))
    for k in range(d):
        mean = inverse @ (weighted @ (side.theta[:, k] - side.m[k]))
        side.effects[:, k] = rng.multivariate_normal(
            mean, inverse / side.precision[k], method="cholesky"
        )


def gibbs(
    sides: tuple[Side, Side],
    observed: np.ndarray,
    x: np.ndarray,
    tau: float,
    sweeps: int,
    seed: int = 0,
):
    """Yield after every sweep, whose state is in `sides`."""
    rng = np.random.default_rng(seed)
    rows, columns = sides
    for _ in range(sweeps):
        draw_theta(rows, columns.theta, observed * columns.scale, x, tau, rng)
        draw_theta(columns, rows.theta, observed.T * rows.scale, x.T, tau, rng)
        for side in sides:
            draw_prior(side, rng)
        yield
