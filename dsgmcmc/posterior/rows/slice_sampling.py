r"""Draws rows whose distribution given their ratings is not normal, by elliptical slices.

The density of a row, with P = Lambda, is proportional to N(theta; m, P^-1) prod_r p(x_r | eta_r)
with eta = Phi theta + b, where log p is concave in eta. Its normal approximation is N(mode, A^-1)
with A = P + Phi^T diag(- d^2 log p / d eta^2) Phi at the mode. In the coordinates u with theta =
mode + L^-T u and A = L L^T, the density is proportional to w(u) N(u; 0, I). An elliptical slice
leaves this distribution invariant [Murray 2010, figure 2; Nishihara 2014, section 3]. If w is
nearly constant, every slice is a nearly independent draw.

A row's noise scale, and its own parameters of the likelihood, have coordinates z ~ N(0, I), which
are 0 at the shared values. Slices move v = (theta, z) together, in the coordinates of the normal
approximation of their joint density; the density need not be concave in z.

One user (or item) is drawn at all saved draws together, each a row here: what NumPy does for one
call is done for hundreds of rows.

[Murray 2010] I. Murray, R. P. Adams, D. J. C. MacKay: Elliptical slice sampling, AISTATS.
[Nishihara 2014] R. Nishihara, I. Murray, R. P. Adams: Parallel MCMC with generalized elliptical
slice sampling, JMLR 15.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from math import log, pi
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.own_prior import OwnParameters, OwnPrior
from dsgmcmc.model.predictive.base import EFFECT_NODES
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.types import Array, Float64, Int64

#: Slices, if rows have no other parameters than theta.
SLICES = 10
#: Slices, if they have, whose law is further from a normal one.
JOINT_SLICES = 30
#: Shares of the curvature between theta and z that are tried, until it is positive.
CROSS_SHARES = (1.0, 0.9, 0.5, 0.0)
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


class RatedRows:
    """One row at several draws, each with its own prior and likelihood; all have the same ratings.

    Parameters
    ----------
    law : subclass of Law
    rows : sequence of RatedRow
        The row at every draw.
    priors : sequence of OwnPrior
        Prior, at every draw, of what the row has besides theta.
    """

    def __init__(
        self, law: type[Law], rows: Sequence[RatedRow], priors: Sequence[OwnPrior]
    ) -> None:
        self.law = law
        self._prior = priors[0].stacked(priors)
        self.width = self._prior.width
        self.features = np.array([row.features for row in rows])  # (rows, n, D)
        self.offset = np.array([row.offset for row in rows])
        self.x = rows[0].x
        self.scales = np.array([row.scales for row in rows])
        self.effects = np.array([row.effects for row in rows])
        self.centre = np.array([row.centre for row in rows])
        self.precision = np.array([row.precision for row in rows])
        self._parameters = None  # (rows, m), or (rows, n, m)
        if rows[0].parameters is not None:
            self._parameters = np.array([row.parameters for row in rows])
        self._bounds = rows[0].bounds

    def at(self, positions: Int64) -> RatedRows:
        """Return the rows at some positions; they have no predictors of their own."""
        if len(positions) == len(self.scales):
            return self
        chosen = copy(self)
        for name in ("scales", "effects", "centre", "precision"):
            setattr(chosen, name, getattr(self, name)[positions])
        if self._parameters is not None:
            chosen._parameters = self._parameters[positions]
        chosen._prior = self._prior.select(positions)
        return chosen

    def own(self, z: Float64) -> OwnParameters:
        """Return what rows have besides theta at the coordinates z, (rows, width)."""
        return self._prior.at(z)

    def predictors(self, theta: Float64) -> Float64:
        """Return eta, (rows, n), of every row's ratings, given theta of every row, (rows, D)."""
        eta: Float64 = (self.features @ theta[:, :, np.newaxis])[:, :, 0] + self.offset
        return eta

    def log_density(self, eta: Float64, own: OwnParameters) -> Float64:
        """Return the log density of all ratings at their predictors; both are (rows, n)."""
        x = np.tile(self.x, len(eta))
        scales = (own.scale[:, np.newaxis] * self.scales).ravel()
        parameters = self._parameters_of_ratings(own)
        if self.effects.any():
            steps = np.sqrt(self.effects).ravel()
            terms = [
                self.law.log_likelihood_at(x, eta.ravel() + steps * node, scales, parameters)
                + log(share)
                for node, share in EFFECT_NODES
            ]
            return np.asarray(functools.reduce(np.logaddexp, terms)).reshape(eta.shape)
        logs = self.law.log_likelihood_at(x, eta.ravel(), scales, parameters)
        if self._bounds is None:
            return logs.reshape(eta.shape)
        bounds = np.tile(self._bounds, (len(eta), 1))
        bounded = known_by_bounds((bounds[:, 0], bounds[:, 1]))
        masses = self.law.log_between_at(bounds.T, eta.ravel(), scales, parameters)
        return np.where(bounded, masses, logs).reshape(eta.shape)

    def _parameters_of_ratings(self, own: OwnParameters) -> Array | None:
        """Return the likelihood's parameters for every rating, (rows n, m)."""
        if own.parameters is not None:
            return np.repeat(own.parameters, len(self.x), axis=0)
        if self._parameters is None:
            return None
        if self._parameters.ndim == 2:
            return np.repeat(self._parameters, len(self.x), axis=0)
        return self._parameters.reshape(-1, self._parameters.shape[-1])

    def log_likelihood(self, eta: Float64, own: OwnParameters) -> Float64:
        """Return the log likelihood of every row, (rows,), at the result of `predictors`."""
        return np.asarray(self.log_density(eta, own).sum(axis=1), np.float64)

    def log_prior(self, theta: Float64) -> Float64:
        """Log prior density of every row, (rows,), up to a constant."""
        u = theta - self.centre
        return np.asarray(-((u[:, np.newaxis] @ self.precision)[:, 0] * u).sum(axis=1) / 2)

    def energy(self, v: Float64) -> Float64:
        """Minus the log density of every row at v, (rows, D + width), up to a constant."""
        theta, z = self.split(v)
        likelihood = self.log_likelihood(self.predictors(theta), self.own(z))
        return np.asarray((z**2).sum(axis=1) / 2 - self.log_prior(theta) - likelihood)

    def split(self, v: Float64) -> tuple[Float64, Float64]:
        """Return theta, (rows, D), and z, (rows, width)."""
        width = self.centre.shape[1]
        return v[:, :width], v[:, width:]

    def slope_and_curvature(self, v: Float64) -> tuple[Float64, Float64]:
        """Return the derivatives of `energy`, by central differences.

        The curvature of the likelihood is made positive: of a rating in its predictor, and of all
        ratings in z.

        Returns
        -------
        slope : (rows, D + width) float64
        curvature : (rows, D + width, D + width) float64
        """
        theta, z = self.split(v)
        eta = self.predictors(theta)
        slopes, curvatures = self._of_predictors(eta, z)
        slope = v.copy()
        slope[:, : theta.shape[1]] = (self.precision @ (theta - self.centre)[..., np.newaxis])[
            ..., 0
        ] - (slopes[:, np.newaxis] @ self.features)[:, 0]
        curvature = np.zeros((*v.shape, v.shape[1]))
        of_theta = slice(0, theta.shape[1])
        of_z = slice(theta.shape[1], None)
        weighted = self.features * np.maximum(curvatures, 0.0)[..., np.newaxis]
        curvature[:, of_theta, of_theta] = (
            self.precision + weighted.transpose(0, 2, 1) @ self.features
        )
        if not self.width:
            return slope, curvature
        of_likelihood = np.empty((len(v), self.width, self.width))
        for k in range(self.width):
            step = np.zeros(self.width)
            step[k] = DIFFERENCE_STEP
            above = self._of_predictors(eta, z + step)[0]
            below = self._of_predictors(eta, z - step)[0]
            mixed = (above - below) / (2 * DIFFERENCE_STEP)
            crossed = -(mixed[:, np.newaxis] @ self.features)[:, 0]
            curvature[:, of_theta, theta.shape[1] + k] = crossed
            curvature[:, theta.shape[1] + k, of_theta] = crossed
            of_likelihood[:, k] = (
                self._slope_in_z(eta, z + step) - self._slope_in_z(eta, z - step)
            ) / (2 * DIFFERENCE_STEP)
        slope[:, of_z] -= self._slope_in_z(eta, z)
        values, vectors = np.linalg.eigh(-(of_likelihood + of_likelihood.transpose(0, 2, 1)) / 2)
        positive = (vectors * np.maximum(values, 0.0)[:, np.newaxis]) @ vectors.transpose(0, 2, 1)
        curvature[:, of_z, of_z] = np.eye(self.width) + positive
        return slope, curvature

    def _of_predictors(self, eta: Float64, z: Float64) -> tuple[Float64, Float64]:
        """Return first and minus second derivatives of log densities in predictors, (rows, n)."""
        own = self.own(z)
        above = self.log_density(eta + DIFFERENCE_STEP, own)
        there = self.log_density(eta, own)
        below = self.log_density(eta - DIFFERENCE_STEP, own)
        curvatures = (2 * there - above - below) / DIFFERENCE_STEP**2
        return (above - below) / (2 * DIFFERENCE_STEP), curvatures

    def _slope_in_z(self, eta: Float64, z: Float64) -> Float64:
        """Return the derivatives of the log likelihood in z, (rows, width)."""
        slope = np.empty_like(z)
        for k in range(self.width):
            step = np.zeros(self.width)
            step[k] = DIFFERENCE_STEP
            above = self.log_likelihood(eta, self.own(z + step))
            below = self.log_likelihood(eta, self.own(z - step))
            slope[:, k] = (above - below) / (2 * DIFFERENCE_STEP)
        return slope


def draw_rows(rated: RatedRows, rng: Generator) -> tuple[Float64, OwnParameters]:
    """Draw every row given its ratings.

    Parameters
    ----------
    rated : RatedRows
        Rows with ratings, under a likelihood for which their conditional distribution is not
        normal.
    rng : Generator

    Returns
    -------
    theta : (rows, D) float64
    own : OwnParameters
    """
    mode, inverse = laplace(rated)
    theta_of_mode, _ = rated.split(mode)
    eta_of_mode = rated.predictors(theta_of_mode)
    n_own = mode.shape[1]

    def with_predictors(u: Float64) -> Float64:
        """Return u and what it adds to the predictors, both of which turn together."""
        theta, _ = rated.split(_back(inverse, u))
        added = (rated.features @ theta[..., np.newaxis])[..., 0]
        return np.concatenate([u, added], axis=1)

    def log_weight(moved: Float64, positions: Int64) -> Float64:
        u = moved[:, :n_own]
        chosen = rated.at(positions)
        theta, z = chosen.split(mode[positions] + _back(inverse[positions], u))
        eta = eta_of_mode[positions] + moved[:, n_own:]
        log_density = chosen.log_likelihood(eta, chosen.own(z)) + chosen.log_prior(theta)
        return np.asarray(log_density + ((u**2).sum(axis=1) - (z**2).sum(axis=1)) / 2)

    slices = SLICES
    if rated.width:
        slices = JOINT_SLICES
    moved = with_predictors(rng.standard_normal(mode.shape))
    for _ in range(slices):
        other = with_predictors(rng.standard_normal(mode.shape))
        moved = slice_on_ellipse(moved, other, log_weight, rng)
    theta, z = rated.split(mode + _back(inverse, moved[:, :n_own]))
    return theta, rated.own(z)


def _back(inverse: Float64, u: Float64) -> Float64:
    """Return L^-T u of every row, given L^-1, (rows, D, D), and u, (rows, D)."""
    turned: Float64 = (u[:, np.newaxis, :] @ inverse)[:, 0]
    return turned


def slice_on_ellipse(
    u: Float64,
    other: Float64,
    log_weight: Callable[[Float64, Int64], Float64],
    rng: Generator,
) -> Float64:
    """Move every row of u, (rows, D), so that w(u) N(u; 0, I) is left invariant.

    `other`, (rows, D), is drawn from N(0, I); both may be followed by linear functions of
    themselves. `log_weight` returns log w of rows, (q,), given their u, (q, D), and their
    positions, (q,). The rows that are outside their slices try again together [Murray 2010, figure
    2].
    """
    moved = np.empty_like(u)
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


def laplace(rated: RatedRows) -> tuple[Float64, Float64]:
    """Return the normal approximation N(mode, (L L^T)^-1) of every row's v = (theta, z).

    Returns
    -------
    mode : (rows, D + width) float64
    inverse : (rows, D + width, D + width) float64
        L^-1, from the curvature at the mode.
    """
    v = np.pad(rated.centre, ((0, 0), (0, rated.width)))
    energy = rated.energy(v)
    for _ in range(NEWTON_STEPS):
        slope, curvature = rated.slope_and_curvature(v)
        inverse = _inverse_root(curvature, rated.centre.shape[1])
        step = _back(inverse, (inverse @ slope[..., np.newaxis])[..., 0])
        length = np.ones((len(v), 1))
        new = rated.energy(v - step)
        while (worse := ~(new <= energy + LEAST_GAIN) & (length[:, 0] > 1e-6)).any():
            length[worse] /= 2
            new = rated.energy(v - length * step)
        v = v - length * step
        gain = energy - new
        energy = new
        if not (gain > LEAST_GAIN).any():
            break
    return v, _inverse_root(rated.slope_and_curvature(v)[1], rated.centre.shape[1])


def _inverse_root(curvature: Float64, width: int) -> Float64:
    """Return L^-1 of curvatures L L^T, (rows, D + m, D + m), of which the first D are of theta.

    Where they are not positive, those between theta and z are made smaller, for all rows.
    """
    for share in CROSS_SHARES:
        scaled = curvature.copy()
        scaled[:, :width, width:] *= share
        scaled[:, width:, :width] *= share
        with suppress(np.linalg.LinAlgError):
            return np.linalg.inv(np.linalg.cholesky(scaled))
    raise np.linalg.LinAlgError("curvatures are not finite")
