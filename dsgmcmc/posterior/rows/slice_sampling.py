r"""Draws rows whose distribution given their ratings is not normal, by elliptical slices.

The density of a row, with P = Lambda, is proportional to N(theta; m, P^-1) prod_r p(x_r | eta_r)
with eta = Phi theta + b, where log p is concave in eta. Its normal approximation is N(mode, A^-1)
with A = P + Phi^T diag(- d^2 log p / d eta^2) Phi at the mode. In the coordinates u with theta =
mode + L^-T u and A = L L^T, the density is proportional to w(u) N(u; 0, I). An elliptical slice
leaves this distribution invariant [Murray 2010, figure 2; Nishihara 2014, section 3]. If w is
nearly constant, every slice is a nearly independent draw.

A row's noise scale, and its own parameters of the likelihood, have coordinates z ~ N(0, I), which
are 0 at the shared values. Slices update them and theta in turns.

[Murray 2010] I. Murray, R. P. Adams, D. J. C. MacKay: Elliptical slice sampling, AISTATS.
[Nishihara 2014] R. Nishihara, I. Murray, R. P. Adams: Parallel MCMC with generalized elliptical
slice sampling, JMLR 15.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.own_prior import OwnParameters, OwnPrior
from dsgmcmc.model.predictive.base import EFFECT_NODES
from dsgmcmc.posterior.rows.new_ratings import joined_bounds
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.types import Array, Float64, Int64

#: Slices of theta, if rows have no other parameters.
SLICES = 10
#: Slices of theta, each followed by one of scale and own parameters, which mix more slowly.
ALTERNATE_SLICES = 90
#: Largest number of Newton steps to the mode; about five are usual.
NEWTON_STEPS = 50
#: Least gain of the log density in a Newton step that is not the last one.
LEAST_GAIN = 1e-6
#: Step of the derivatives of the normal approximation; their error does not change the target.
DIFFERENCE_STEP = 1e-3


class RatedRow(NamedTuple):
    """A row and its ratings.

    Attributes
    ----------
    features : (n, D) float64
        Phi.
    offset : (n,) float64
        b, which is added to the predictors.
    x : (n,) float64
        The ratings.
    scales : (n,) float64
        tau times the noise scales of the other sides of the ratings, which are 1 if the model has
        none.
    effects : (n,) float64
        Variances of unknown effects that are added to the predictors.
    centre : (D,) float64
        Prior mean.
    precision : (D, D) float64
        Prior precision.
    parameters : (m,) or (n, m) float or None
        Parameters of `Law.log_likelihood_at`: for all ratings, or for each.
    bounds : (n, 2) float64 or None
        Bounds of the ratings, equal if they are exact; None if all are.
    """

    features: Float64
    offset: Float64
    x: Float64
    scales: Float64
    effects: Float64
    centre: Float64
    precision: Float64
    parameters: Array | None
    bounds: Float64 | None = None

    def with_drawn_values(
        self, law: type[Law], theta: Float64, precision: Float64, rng: Generator
    ) -> RatedRow:
        """Return the row with values drawn between the bounds, given theta, (D,).

        `precision`, (n,), is that of the ratings' noise.
        """
        assert self.bounds is not None
        chosen = self.bounds[:, 0] < self.bounds[:, 1]
        x = self.x.astype(np.float64)
        x[chosen] = law.quantile_between(
            rng.random(np.count_nonzero(chosen)),
            (self.features @ theta + self.offset)[chosen],
            1 / precision[chosen],
            (self.bounds[chosen, 0], self.bounds[chosen, 1]),
        )
        return self._replace(x=x)


@dataclass(frozen=True)
class RatedRows:
    """Rows with ratings, all of one prior precision, and the likelihood of the ratings."""

    law: type[Law]
    rows: Sequence[RatedRow]

    def at(self, positions: Iterable[int]) -> RatedRows:
        """Return the rows at some positions."""
        return RatedRows(self.law, [self.rows[k] for k in positions])

    @property
    def lengths(self) -> list[int]:
        """Number of ratings of each row."""
        return [len(row.x) for row in self.rows]

    @property
    def centre(self) -> Float64:
        """Prior means, (rows, D) float64."""
        return np.array([row.centre for row in self.rows])

    @property
    def precision(self) -> Float64:
        """Prior precision of every row, (D, D) float64."""
        return self.rows[0].precision

    def predictors(self, theta: Float64) -> list[Float64]:
        """Return eta of every row's ratings, given theta of every row, (rows, D)."""
        return [
            row.features @ theta_of_row + row.offset
            for row, theta_of_row in zip(self.rows, theta, strict=True)
        ]

    def log_density(self, eta: Float64, own: OwnParameters) -> Float64:
        """Return the log density of all ratings, (n,), at their predictors, (n,)."""
        x = np.concatenate([row.x for row in self.rows])
        scales = np.concatenate([row.scales for row in self.rows])
        effects = np.concatenate([row.effects for row in self.rows])
        scales = np.repeat(own.scale, self.lengths) * scales
        parameters = self._parameters(own)
        if not effects.any():
            logs = self.law.log_likelihood_at(x, eta, scales, parameters)
            bounds = joined_bounds([row.x for row in self.rows], [row.bounds for row in self.rows])
            if bounds is None:
                return logs
            bounded = known_by_bounds((bounds[:, 0], bounds[:, 1]))
            masses = self.law.log_between_at(bounds.T, eta, scales, parameters)
            return np.where(bounded, masses, logs)
        terms = [
            self.law.log_likelihood_at(x, eta + np.sqrt(effects) * node, scales, parameters)
            + log(share)
            for node, share in EFFECT_NODES
        ]
        return functools.reduce(np.logaddexp, terms)

    def _parameters(self, own: OwnParameters) -> Array | None:
        """Return the likelihood's parameters for every rating, or those that all share."""
        if own.parameters is not None:
            return np.repeat(own.parameters, self.lengths, axis=0)
        shared = self.rows[0].parameters
        if shared is None or shared.ndim == 1:
            return shared
        return np.concatenate([row.parameters for row in self.rows if row.parameters is not None])

    def log_likelihood(self, eta: list[Float64], own: OwnParameters) -> Float64:
        """Return the log likelihood of every row, (rows,), at the result of `predictors`."""
        densities = self.log_density(np.concatenate(eta), own)
        owner = np.repeat(np.arange(len(self.rows)), self.lengths)
        return np.asarray(np.bincount(owner, densities), np.float64)

    def log_prior(self, theta: Float64) -> Float64:
        """Log prior density of every row, (rows,), up to a constant."""
        u = theta - self.centre
        return np.asarray(-((u @ self.precision) * u).sum(axis=1) / 2)

    def energy(self, theta: Float64, own: OwnParameters) -> Float64:
        """Minus the log density of every row, (rows,), up to a constant."""
        likelihood = self.log_likelihood(self.predictors(theta), own)
        return np.asarray(-self.log_prior(theta) - likelihood)

    def slope_and_curvature(self, theta: Float64, own: OwnParameters) -> tuple[Float64, Float64]:
        """Return the derivatives of `energy`, (rows, D) and (rows, D, D), by central differences.

        The curvature of the likelihood of a rating is at least 0.
        """
        eta = np.concatenate(self.predictors(theta))
        above = self.log_density(eta + DIFFERENCE_STEP, own)
        there = self.log_density(eta + 0.0, own)
        below = self.log_density(eta - DIFFERENCE_STEP, own)
        slopes = (above - below) / (2 * DIFFERENCE_STEP)
        curvatures = np.maximum((2 * there - above - below) / DIFFERENCE_STEP**2, 0.0)
        ends = np.cumsum(self.lengths)[:-1]
        of_likelihood = []
        information = []
        for row, slope, curvature in zip(
            self.rows, np.split(slopes, ends), np.split(curvatures, ends), strict=True
        ):
            of_likelihood.append(slope @ row.features)
            information.append((row.features.T * curvature) @ row.features)
        slope = (theta - self.centre) @ self.precision - np.array(of_likelihood)
        return slope, self.precision + np.array(information)


def draw_rows(rated: RatedRows, prior: OwnPrior, rng: Generator) -> tuple[Float64, OwnParameters]:
    """Draw every row given its ratings.

    Parameters
    ----------
    rated : RatedRows
        Rows with ratings, under a likelihood for which their conditional distribution is not
        normal.
    prior : OwnPrior
        Prior of what rows have besides theta.
    rng : Generator

    Returns
    -------
    theta : (rows, D) float64
    own : OwnParameters
    """
    z = np.zeros((len(rated.rows), prior.width))
    mode, inverse = laplace(rated, prior.at(z))

    def log_weight_of_theta(u: Float64, positions: Int64) -> Float64:
        theta = mode[positions] + np.einsum("nij,ni->nj", inverse[positions], u)
        chosen = rated.at(positions)
        own = prior.at(z[positions])
        likelihood = chosen.log_likelihood(chosen.predictors(theta), own)
        return np.asarray(likelihood + chosen.log_prior(theta) + (u**2).sum(axis=1) / 2)

    def log_weight_of_z(z: Float64, positions: Int64) -> Float64:
        at_theta = [eta[k] for k in positions]
        return rated.at(positions).log_likelihood(at_theta, prior.at(z))

    u = rng.standard_normal(mode.shape)
    if not z.size:
        for _ in range(SLICES):
            u = slice_on_ellipse(u, log_weight_of_theta, rng)
    else:
        for _ in range(ALTERNATE_SLICES):
            u = slice_on_ellipse(u, log_weight_of_theta, rng)
            eta = rated.predictors(mode + np.einsum("nij,ni->nj", inverse, u))
            z = slice_on_ellipse(z, log_weight_of_z, rng)
    theta = mode + np.einsum("nij,ni->nj", inverse, u)
    return theta, prior.at(z)


def slice_on_ellipse(
    u: Float64, log_weight: Callable[[Float64, Int64], Float64], rng: Generator
) -> Float64:
    """Move every row of u, (rows, D), so that w(u) N(u; 0, I) is left invariant.

    `log_weight` returns log w of rows, (q,), given their u, (q, D), and their positions, (q,). The
    rows that are outside their slices try again together [Murray 2010, figure 2].
    """
    moved = np.empty_like(u)
    other = rng.standard_normal(u.shape)
    left = np.arange(len(u))
    level = log_weight(u, left) + np.log(rng.random(len(u)))
    angle = rng.uniform(0.0, 2 * pi, len(u))
    low = angle - 2 * pi
    high = angle.copy()
    while len(left):
        at = angle[left, np.newaxis]
        tried = np.cos(at) * u[left] + np.sin(at) * other[left]
        moved[left] = tried
        inside = log_weight(tried, left) > level[left]
        closed = high[left] - low[left] < 1e-12
        left = left[~(inside | closed)]
        negative = angle[left] < 0
        low[left[negative]] = angle[left[negative]]
        high[left[~negative]] = angle[left[~negative]]
        angle[left] = rng.uniform(low[left], high[left])
    return moved


def laplace(rated: RatedRows, own: OwnParameters) -> tuple[Float64, Float64]:
    """Return the normal approximation N(mode, (L L^T)^-1) of every row.

    Returns
    -------
    mode : (rows, D) float64
    inverse : (rows, D, D) float64
        L^-1, from the curvature at the mode.
    """
    theta = rated.centre
    energy = rated.energy(theta, own)
    for _ in range(NEWTON_STEPS):
        slope, curvature = rated.slope_and_curvature(theta, own)
        step = np.linalg.solve(curvature, slope[..., np.newaxis])[..., 0]
        length = np.ones((len(theta), 1))
        new = rated.energy(theta - step, own)
        while (worse := ~(new <= energy + LEAST_GAIN) & (length[:, 0] > 1e-6)).any():
            length[worse] /= 2
            new = rated.energy(theta - length * step, own)
        theta = theta - length * step
        gain = energy - new
        energy = new
        if not (gain > LEAST_GAIN).any():
            break
    curvature = rated.slope_and_curvature(theta, own)[1]
    return theta, np.linalg.inv(np.linalg.cholesky(curvature))
