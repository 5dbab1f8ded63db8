r"""Positive stable variables, which make heavy-tailed laws of normal ones.

P > 0 with the exponent 0 < a < 1 has E exp(-s P) = exp(-s^a). A normal pair of variance v lambda^(2 / alpha), with
v = 2 P and a = alpha / 2, has the characteristic function of an isotropic alpha-stable law,

    E exp(-|z|^2 v lambda^(2/alpha) / 2) = exp(-lambda |z|^alpha).

In the usual parameters P is S(a, 1, sigma, 0) with sigma = cos(pi a / 2)^(1 / a), since that law has E exp(-s P) =
exp(-(sigma s)^a / cos(pi a / 2)) [Samorodnitsky 1994, proposition 1.2.12]. With the [Kanter 1975] function

    A(u) = sin((1 - a) u) sin(a u)^(a / (1 - a)) / sin(u)^(1 / (1 - a)),

P is (A(U) / E)^((1 - a) / a), of U uniform on (0, pi) and E exponential; so Pr(P <= x) is the mean over U of
exp(-A(U) x^(-a / (1 - a))).

[Samorodnitsky 1994] G. Samorodnitsky, M. Taqqu: Stable non-Gaussian random processes.
[Kanter 1975] M. Kanter: Stable densities under change of scale and total variation inequalities.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Float64

#: Log odds of the first and the last node: one in 3,000 lies below, one in 160,000 above.
ODDS = (-8.0, 12.0)
#: Points of the quadrature over U, and of the table of the distribution function.
ANGLES, TABLE = 500, 3000


def positive_stable(a: float, shape: tuple[int, ...], generator: np.random.Generator) -> Float64:
    """Draw an array of P of the exponent `a`."""
    angle, exponential = np.pi * generator.random(shape), generator.exponential(size=shape)
    found: Float64 = np.exp((1 - a) / a * (_log_kanter(a, angle) - np.log(exponential)))
    return found


def stable_nodes(a: float, nodes: int) -> tuple[Float64, Float64]:
    """Values of P and their weights, (nodes,) each: the trapezoidal rule over the log odds of Pr(P <= x)."""
    log_kanter = _log_kanter(a, (np.arange(ANGLES) + 0.5) * np.pi / ANGLES)
    x = log_kanter.min() + np.linspace(-5, 5 + 1.2 * ODDS[1] / (1 - a), TABLE)  # a / (1 - a) times log P
    below = np.exp(-np.exp(np.minimum(log_kanter - x[:, None], 700.0))).mean(axis=1)
    odds = 1 / (1 + np.exp(-np.linspace(*ODDS, nodes)))
    weights = odds * (1 - odds)
    return np.exp((1 - a) / a * np.interp(odds, below, x)), weights / weights.sum()


def _log_kanter(a: float, u: Float64) -> Float64:
    """Logarithm of A(u)."""
    found: Float64 = np.log(np.sin((1 - a) * u)) + (a * np.log(np.sin(a * u)) - np.log(np.sin(u))) / (1 - a)
    return found
