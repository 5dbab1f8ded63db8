r"""Draws of a row given its ratings, if its distribution is not normal, by elliptical slice sampling.

The density of a row is N(theta; m, P^-1) prod_r p(x_r | eta_r) with eta = Phi theta + b, where log p is concave in eta.
The mode and the curvature at the mode give a normal approximation N(mode, A^-1) with A = P + Phi^T diag(- d^2 log p /
d eta^2) Phi. In the coordinates u with theta = mode + L^-T u and A = L L^T, the density is proportional to
w(u) N(u; 0, I). An elliptical slice leaves this distribution invariant [Murray 2010, figure 2; Nishihara 2014, section
3], without a step size, tuning or rejections. If w is nearly constant, that is, if the distribution is nearly normal,
every slice is a nearly independent draw. `SLICES` slices are made, starting from a draw of the normal approximation.

Rows may have individual scales or thresholds. Their coordinates u ~ N(0, 1 / lambda) and d ~ N(0, 1 / lambda_r), which
are 0 at the shared values, are updated by slices in turns with theta. They mix more slowly, so `TURNS` turns are made.

[Murray 2010] I. Murray, R. P. Adams, D. J. C. MacKay: Elliptical slice sampling, AISTATS.
[Nishihara 2014] R. Nishihara, I. Murray, R. P. Adams: Parallel MCMC with generalized elliptical slice sampling, JMLR
15.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, exp, log, pi, sin
from typing import NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.ordinal import coordinates_of, cuts_of
from dsgmcmc.model.likelihoods.scales import log_scale
from dsgmcmc.model.predictive.base import EFFECT_NODES
from dsgmcmc.types import Array, Float64

#: Log density of every rating, (n,), given their predictors (n,).
LogDensity = Callable[[Float64], Float64]

SLICES, TURNS = 10, 90

NEWTON = 50
"""Largest number of Newton steps to the mode; about five are usual."""

STEP = 1e-3
"""Step of the finite differences for the normal approximation; their error does not change the target."""


class RatedRow(NamedTuple):
    """A row and its ratings x: design matrix and offset of the predictors, mean (`centre`) and precision of the prior.

    `effects` are the variances of unknown effects that are added to the predictors.
    """

    features: Float64
    offset: Float64
    x: Float64
    centre: Float64
    precision: Float64
    effects: Array | float = 0.0


class Spread(NamedTuple):
    """Prior sds of the coordinates of a row's scale, (1,) or (0,), and of its gaps, (R - 2,) or (0,).

    The coordinates are 0 at the shared values; `bound` is the bound of |log s|. The vector z has the coordinates in
    units of these sds, so that its prior is N(0, I).
    """

    scale: Float64
    gaps: Float64
    bound: float

    @classmethod
    def of(cls, law: type[Law], scale_precision: float | None, gap_precision: Float64 | None) -> Spread:
        """Convert from precisions; None if rows have no such parameter."""
        scale = np.zeros(0) if scale_precision is None else np.array([scale_precision**-0.5])
        return cls(scale, np.zeros(0) if gap_precision is None else gap_precision**-0.5, law.scale_bound)

    def at(self, z: Float64, thresholds: Array | None) -> tuple[float, Array | None]:
        """Scale and thresholds at z, given the shared thresholds."""
        n = len(self.scale)
        scale = exp(log_scale(self.scale * z[:n], self.bound)[0]) if n else 1.0
        if len(self.gaps) and thresholds is not None:
            thresholds = cuts_of(coordinates_of(thresholds), self.gaps * z[n:])
        return scale, thresholds


def draw_row(
    law: type[Law], row: RatedRow, others: Float64, thresholds: Array | None, spread: Spread, rng: np.random.Generator
) -> tuple[Float64, float, Array | None]:
    """Draw a row given its ratings.

    Parameters
    ----------
    law : type of Law
        Likelihood under which the conditional distribution of a row is not normal.
    others : (n,) float64
        Noise scales of the other side of each rating; 1 if the model has none.
    thresholds : (R - 1,) or (n, R - 1) float, or None
        Thresholds between levels: shared, or for every rating.

    Returns
    -------
    theta : (D,) float64
    scale : float
    thresholds : array or None
        Thresholds of the row if it has individual ones, otherwise as given.
    """
    nodes = [(np.sqrt(row.effects) * node, log(share)) for node, share in EFFECT_NODES]
    if not np.any(row.effects):
        nodes = [(np.zeros(()), 0.0)]

    def log_density(eta: Float64, z: Float64) -> Float64:
        scale, cuts = spread.at(z, thresholds)
        terms = [law.log_likelihood_of_predictors(row.x, eta + d, scale * others, cuts) + share for d, share in nodes]
        total: Float64 = np.logaddexp.reduce(terms, axis=0)
        return total

    def log_weight_of_theta(u: Float64) -> float:
        theta = mode + inverse.T @ u
        from_centre = theta - row.centre
        prior = float(from_centre @ row.precision @ from_centre)
        return float(log_density(row.features @ theta + row.offset, z).sum()) + (float(u @ u) - prior) / 2

    def log_weight_of_z(z: Float64) -> float:
        return float(log_density(eta, z).sum())

    z = np.zeros(len(spread.scale) + len(spread.gaps))
    mode, inverse = laplace(row.features, row.offset, partial(log_density, z=z), row.centre, row.precision)
    u = rng.standard_normal(len(row.centre))
    for _ in range(TURNS if len(z) else SLICES):
        u = slice_on_ellipse(u, log_weight_of_theta, rng)
        theta = mode + inverse.T @ u
        if len(z):
            eta = row.features @ theta + row.offset
            z = slice_on_ellipse(z, log_weight_of_z, rng)
    return theta, *spread.at(z, thresholds)


def slice_on_ellipse(u: Float64, log_weight: Callable[[Float64], float], rng: np.random.Generator) -> Float64:
    """Move u by a transition that leaves w(u) N(u; 0, I) invariant [Murray 2010, figure 2]."""
    other, level = rng.standard_normal(len(u)), log_weight(u) + log(rng.random())
    angle = rng.uniform(0.0, 2 * pi)
    low, high = angle - 2 * pi, angle
    while True:
        moved: Float64 = cos(angle) * u + sin(angle) * other
        if log_weight(moved) > level or high - low < 1e-12:
            return moved
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)


def laplace(
    features: Float64, offset: Float64, log_density: LogDensity, mean: Float64, precision: Float64
) -> tuple[Float64, Float64]:
    """Laplace approximation N(mode, (L L^T)^-1) of a row, by its curvature at the mode.

    Parameters
    ----------
    features : (n, D) float64
        Phi.
    offset : (n,) float64
        b.
    log_density : callable
        Log density of every rating, given the predictors.
    mean, precision : (D,) and (D, D) float64
        m and P of the prior.

    Returns
    -------
    mode : (D,) float64
    inverse : (D, D) float64
        L^-1.
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
    return theta, np.linalg.inv(lower)


def _derivatives(log_density: LogDensity, eta: Float64) -> tuple[Float64, Float64]:
    """First derivative and minus the second derivative (at least 0), by central differences."""
    above, here, below = log_density(eta + STEP), log_density(eta), log_density(eta - STEP)
    return (above - below) / (2 * STEP), np.maximum((2 * here - above - below) / STEP**2, 0.0)
