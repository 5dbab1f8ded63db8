r"""Draws of a row given its ratings, where its law is not normal: elliptical slice sampling about a normal law.

The density is N(theta; m, P^-1) prod_r p(x_r | eta_r), eta = Phi theta + b, of which log p is concave in eta. Its mode
and curvature there make N(mode, A^-1), A = P + Phi^T diag(- d^2 log p / d eta^2) Phi. With theta = mode + L^-T u, A =
L L^T, what is left of the density is w(u) N(u; 0, I), and an elliptical slice leaves that as it is [Murray 2010, figure
2; Nishihara 2014, section 3]: no step, no tuning, nothing rejected. Where w is flat, that is where the law is all but
normal, every slice is a new draw.

[Murray 2010] I. Murray, R. P. Adams, D. J. C. MacKay: Elliptical slice sampling, AISTATS.
[Nishihara 2014] R. Nishihara, I. Murray, R. P. Adams: Parallel MCMC with generalized elliptical slice sampling, JMLR
15.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, log, pi, sin
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Float64

#: Log density of every rating, (n,), given their predictors (n,).
LogDensity = Callable[[Float64], Float64]

NEWTON = 50
"""Steps to the mode at most; some five are usual."""

STEP = 1e-3
"""Of the finite differences, of which the normal law is made: draws are right whatever they are."""


def slice_on_ellipse(u: Float64, log_weight: Callable[[Float64], float], rng: np.random.Generator) -> Float64:
    """Move u so that w(u) N(u; 0, I) stays as it is [Murray 2010, figure 2]."""
    other, level = rng.standard_normal(len(u)), log_weight(u) + log(rng.random())
    angle = rng.uniform(0.0, 2 * pi)
    low, high = angle - 2 * pi, angle
    while True:
        moved: Float64 = cos(angle) * u + sin(angle) * other
        if log_weight(moved) > level or high - low < 1e-12:
            return moved
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)


class Normal(NamedTuple):
    """A normal law N(mean, (L L^T)^-1).

    Attributes
    ----------
    mean : (D,) float64
    inverse : (D, D) float64
        L^-1.
    """

    mean: Float64
    inverse: Float64

    def at(self, u: Float64) -> Float64:
        """Give the point that is u in coordinates in which the law is N(0, I)."""
        found: Float64 = self.mean + self.inverse.T @ u
        return found


def laplace(features: Float64, offset: Float64, log_density: LogDensity, mean: Float64, precision: Float64) -> Normal:
    """Normal law of a row's mode and curvature there.

    Parameters
    ----------
    features : (n, D) float64
        Phi.
    offset : (n,) float64
        b.
    log_density : callable
        Of the ratings.
    mean, precision : (D,) and (D, D) float64
        m and P of the prior.
    """

    def energy(theta: Float64) -> float:
        u = theta - mean
        return float(u @ precision @ u / 2 - log_density(features @ theta + offset).sum())

    theta = mean
    here = energy(theta)
    for _ in range(NEWTON):
        slope, curvature = _derivatives(log_density, features @ theta + offset)
        a = precision + (features.T * curvature) @ features
        step = np.linalg.solve(a, precision @ (theta - mean) - features.T @ slope)
        length, there = 1.0, energy(theta - step)
        while not there <= here and length > 1e-6:
            length /= 2
            there = energy(theta - length * step)
        theta, gain, here = theta - length * step, here - there, there
        if not gain > 1e-6:
            break
    _, curvature = _derivatives(log_density, features @ theta + offset)
    lower = np.linalg.cholesky(precision + (features.T * curvature) @ features)
    return Normal(theta, np.linalg.inv(lower))


def _derivatives(log_density: LogDensity, eta: Float64) -> tuple[Float64, Float64]:
    """Slope, and curvature with the other sign, by central differences; no curvature is negative."""
    above, here, below = log_density(eta + STEP), log_density(eta), log_density(eta - STEP)
    return (above - below) / (2 * STEP), np.maximum((2 * here - above - below) / STEP**2, 0.0)
