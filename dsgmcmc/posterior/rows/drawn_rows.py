r"""Draws rows whose distribution given their ratings is not normal, from normal approximations.

The density of a row, with P = Lambda, is proportional to N(theta; m, P^-1) prod_r p(x_r | eta_r)
with eta = Phi theta + b, where log p is concave in eta. A row's noise scale, and its own parameters
of the likelihood, have coordinates z ~ N(0, I), which are 0 at the shared values; the density need
not be concave in z. The normal approximation of v = (theta, z) is N(mode, A^-1), with A = L L^T the
curvature at the mode. In the coordinates u with v = mode + L^-T u, the density is proportional to
w(u) N(u; 0, I).

Of `PROPOSALS` draws of u from N(0, I), one is chosen with probability proportional to w [Rubin
1988]. If the effective number of proposals, (sum w)^2 / sum w^2, is too small, elliptical slices
follow, which leave w(u) N(u; 0, I) invariant [Murray 2010, figure 2; Nishihara 2014, section 3].

One user (or item) is drawn at all saved draws together, each a row here: what NumPy does for one
call is done for hundreds of rows.

[Rubin 1988] D. B. Rubin: Using the SIR algorithm to simulate posterior distributions, Bayesian
Statistics 3.
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
from dsgmcmc.model.likelihoods.own_prior import Expansion, OwnParameters, OwnPrior
from dsgmcmc.model.predictive.base import EFFECT_NODES
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.types import Array, Float64, Int64

#: Draws from the normal approximation, of which one is chosen.
PROPOSALS = 8
#: Least effective number of proposals; slices follow if it is smaller.
LEAST_EFFECTIVE = 4.0
#: Slices that follow.
SLICES = 30
#: Shares of the curvature between theta and z that are tried, until it is positive.
CROSS_SHARES = (1.0, 0.9, 0.5, 0.0)
#: Largest number of Newton steps to the mode; about five are usual.
NEWTON_STEPS = 50
#: Gain of the log density that a Newton step promises, below which it is the last one: w corrects
#: for what is missing to the mode.
LEAST_GAIN = 0.03
#: Ratings from which on the mode is first looked for given every `THINNED`-th of them.
MANY_RATINGS = 200
THINNED = 8
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


class Quadratic(NamedTuple):
    """Minus the log density of every row, up to a constant, and its derivatives.

    Attributes
    ----------
    energy : (rows,) float64
    slope : (rows, D + width) float64
    curvature : (rows, D + width, D + width) float64
    """

    energy: Float64
    slope: Float64
    curvature: Float64


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
        self.features = np.array([row.features for row in rows], np.float32)  # (rows, n, D)
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
        """Return the rows at some positions."""
        if len(positions) == len(self.scales):
            return self
        chosen = copy(self)
        for name in ("features", "offset", "scales", "effects", "centre", "precision"):
            setattr(chosen, name, getattr(self, name)[positions])
        if self._parameters is not None:
            chosen._parameters = self._parameters[positions]
        chosen._prior = self._prior.select(positions)
        return chosen

    def thinned(self) -> RatedRows:
        """Return the rows with every `THINNED`-th of their ratings."""
        chosen = copy(self)
        chosen.x = self.x[::THINNED]
        for name in ("features", "offset", "scales", "effects"):
            setattr(chosen, name, getattr(self, name)[:, ::THINNED])
        if self._parameters is not None and self._parameters.ndim == 3:
            chosen._parameters = self._parameters[:, ::THINNED]
        if self._bounds is not None:
            chosen._bounds = self._bounds[::THINNED]
        return chosen

    def own(self, z: Float64) -> OwnParameters:
        """Return what rows have besides theta at the coordinates z, (rows, width)."""
        return self._prior.at(z)

    def predictors(self, theta: Float64) -> Float64:
        """Return eta, (rows, n), of every row's ratings, given theta of every row, (rows, D)."""
        theta = theta.astype(np.float32)
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

    def expand(self, v: Float64) -> Quadratic:
        """Return `energy` and its derivatives at v.

        The curvature of the likelihood is made positive: of a rating in its predictor, and of all
        ratings in z.
        """
        theta, z = self.split(v)
        expansion = self._expansion(self.predictors(theta), z)
        deviation = theta - self.centre
        pull = (self.precision @ deviation[..., np.newaxis])[..., 0]
        energy = (z**2).sum(axis=1) / 2 + (pull * deviation).sum(axis=1) / 2
        slope = np.concatenate(
            [pull - self._summed(expansion.slope), z - expansion.own_slope], axis=1
        )
        width = theta.shape[1]
        curvature = np.empty((*v.shape, v.shape[1]))
        weights = np.maximum(expansion.curvature, 0.0).astype(np.float32)
        weighted = self.features * weights[..., np.newaxis]
        curvature[:, :width, :width] = self.precision + weighted.transpose(0, 2, 1) @ self.features
        for k in range(self.width):
            crossed = self._summed(expansion.crossed[k])
            curvature[:, :width, width + k] = crossed
            curvature[:, width + k, :width] = crossed
        values, vectors = np.linalg.eigh(expansion.own_curvature)
        positive = (vectors * np.maximum(values, 0.0)[:, np.newaxis]) @ vectors.transpose(0, 2, 1)
        curvature[:, width:, width:] = np.eye(self.width) + positive
        return Quadratic(energy - expansion.log_density, slope, curvature)

    def _summed(self, of_ratings: Float64) -> Float64:
        """Return the sums of numbers of ratings, (rows, n), times their features, (rows, D)."""
        weights = of_ratings.astype(np.float32)
        sums: Float64 = (weights[:, np.newaxis] @ self.features)[:, 0].astype(np.float64)
        return sums

    def _expansion(self, eta: Float64, z: Float64) -> Expansion:
        """Return the log densities of ratings, and their derivatives in predictors and in z.

        They are the likelihood's own if it has some, and otherwise central differences.
        """
        expand = self.law.expansion
        if expand is None or self._bounds is not None or self.effects.any():
            return self._differences(eta, z)
        own = self.own(z)
        parameters = own.parameters
        if parameters is None:
            parameters = self._parameters
        scales = own.scale[:, np.newaxis] * self.scales
        return expand(self.x, eta, scales, parameters, moves=self._moves(z))

    def _moves(self, z: Float64) -> list[OwnParameters]:
        """Return the derivatives of log scales and of parameters in every coordinate."""
        moves = []
        for step in DIFFERENCE_STEP * np.eye(self.width):
            above = self.own(z + step)
            below = self.own(z - step)
            parameters = None
            if above.parameters is not None and below.parameters is not None:
                parameters = (above.parameters - below.parameters) / (2 * DIFFERENCE_STEP)
            log_scale = np.log(above.scale / below.scale) / (2 * DIFFERENCE_STEP)
            moves.append(OwnParameters(log_scale, parameters))
        return moves

    def _differences(self, eta: Float64, z: Float64) -> Expansion:
        """Return what `_expansion` does, by central differences."""
        n = 1 + self.width
        steps = DIFFERENCE_STEP * np.eye(n)

        def both(step: Float64) -> tuple[Float64, Float64]:
            above = self.log_density(eta + step[0], self.own(z + step[1:]))
            below = self.log_density(eta - step[0], self.own(z - step[1:]))
            return above - below, above + below

        there = self.log_density(eta, self.own(z))
        slopes = np.empty((n, *eta.shape))
        sums = np.empty((n, *eta.shape))
        curvatures = np.empty((n, n, *eta.shape))
        for i, step in enumerate(steps):
            slopes[i], sums[i] = both(step)
            curvatures[i, i] = 2 * there - sums[i]
            for j in range(i):
                curvatures[i, j] = (sums[i] + sums[j] - both(step + steps[j])[1]) / 2 - there
                curvatures[j, i] = curvatures[i, j]
        slopes /= 2 * DIFFERENCE_STEP
        curvatures /= DIFFERENCE_STEP**2
        return Expansion(
            log_density=there.sum(axis=1),
            slope=slopes[0],
            curvature=curvatures[0, 0],
            crossed=curvatures[0, 1:],
            own_slope=slopes[1:].sum(axis=2).T,
            own_curvature=curvatures[1:, 1:].sum(axis=3).transpose(2, 0, 1),
        )


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
    mode, lower = laplace(rated)
    transposed = lower.transpose(0, 2, 1)
    u = rng.standard_normal((*mode.shape, PROPOSALS))
    moved = np.linalg.solve(transposed, u)
    log_weight = np.empty((len(mode), PROPOSALS))
    for k in range(PROPOSALS):
        log_weight[:, k] = (u[..., k] ** 2).sum(axis=1) / 2
        log_weight[:, k] -= rated.energy(mode + moved[..., k])
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    total = weight.sum(axis=1)
    level = rng.random(len(mode)) * total
    chosen = (np.cumsum(weight, axis=1) < level[:, np.newaxis]).sum(axis=1)
    chosen = np.minimum(chosen, PROPOSALS - 1)
    rows = np.arange(len(mode))
    v = mode + moved[rows, :, chosen]
    poor = np.flatnonzero(total**2 < LEAST_EFFECTIVE * (weight**2).sum(axis=1))
    if len(poor):
        v[poor] = move_by_slices(
            rated.at(poor), mode[poor], lower[poor], u[poor, :, chosen[poor]], rng=rng
        )
    theta, z = rated.split(v)
    return theta, rated.own(z)


def move_by_slices(
    rated: RatedRows, mode: Float64, lower: Float64, u: Float64, *, rng: Generator
) -> Float64:
    """Move every row from u, (rows, D + width), by elliptical slices; return v, of this shape."""
    inverse = np.linalg.inv(lower)

    def back(u: Float64, positions: Int64) -> Float64:
        """Return v of rows, given their u."""
        return mode[positions] + (u[:, np.newaxis] @ inverse[positions])[:, 0]

    def log_weight(u: Float64, positions: Int64) -> Float64:
        energy = rated.at(positions).energy(back(u, positions))
        return np.asarray((u**2).sum(axis=1) / 2 - energy)

    for _ in range(SLICES):
        u = slice_on_ellipse(u, rng.standard_normal(u.shape), log_weight, rng)
    return back(u, np.arange(len(u)))


def slice_on_ellipse(
    u: Float64,
    other: Float64,
    log_weight: Callable[[Float64, Int64], Float64],
    rng: Generator,
) -> Float64:
    """Move every row of u, (rows, D), so that w(u) N(u; 0, I) is left invariant.

    `other`, (rows, D), is drawn from N(0, I). `log_weight` returns log w of rows, (q,), given their
    u, (q, D), and their positions, (q,). The rows that are outside their slices try again together
    [Murray 2010, figure 2].
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
    lower : (rows, D + width, D + width) float64
        L, from the curvature before the last step.
    """
    v = np.pad(rated.centre, ((0, 0), (0, rated.width)))
    if len(rated.x) > MANY_RATINGS:
        v, _ = laplace(rated.thinned())
    width = rated.centre.shape[1]
    here = rated.expand(v)
    for _ in range(NEWTON_STEPS):
        curvature, lower = _factored(here.curvature, width)
        step = np.linalg.solve(curvature, here.slope[..., np.newaxis])[..., 0]
        if ((here.slope * step).sum(axis=1) < 2 * LEAST_GAIN).all():
            return v - step, lower
        length = np.ones((len(v), 1))
        new = rated.expand(v - step)
        while (worse := ~(new.energy <= here.energy + LEAST_GAIN) & (length[:, 0] > 1e-6)).any():
            length[worse] /= 2
            new = rated.expand(v - length * step)
        v = v - length * step
        here = new
    return v, _factored(here.curvature, width)[1]


def _factored(curvature: Float64, width: int) -> tuple[Float64, Float64]:
    """Return curvatures, (rows, D + m, D + m), of which the first D are of theta, and their L.

    Where they are not positive, those between theta and z are made smaller, for all rows.
    """
    for share in CROSS_SHARES:
        scaled = curvature.copy()
        scaled[:, :width, width:] *= share
        scaled[:, width:, :width] *= share
        with suppress(np.linalg.LinAlgError):
            return scaled, np.asarray(np.linalg.cholesky(scaled))
    raise np.linalg.LinAlgError("curvatures are not finite")
