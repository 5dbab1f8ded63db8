r"""Draws rows whose distribution given their ratings is not normal: many rows at once, by
elliptical slices.

The density of a row, with P = Lambda, is proportional to N(theta; m, P^-1) prod_r p(x_r | eta_r)
with eta = Phi theta + b, where log p is concave in eta. The mode and the curvature at the mode give
a normal approximation N(mode, A^-1) with A = P + Phi^T diag(- d^2 log p / d eta^2) Phi. In the
coordinates u with theta = mode + L^-T u and A = L L^T, the density is proportional to w(u) N(u; 0,
I). An elliptical slice leaves this distribution invariant [Murray 2010, figure 2; Nishihara 2014,
section 3], without a step size, tuning or rejections. If w is nearly constant, that is, if the
distribution is nearly normal, every slice is a nearly independent draw. The first of `SLICES`
slices starts from a draw of the normal approximation.

Individual scales and thresholds have the coordinates u ~ N(0, 1 / lambda) and d ~ N(0, 1 /
lambda_r), which are 0 at the shared values. Slices update them and theta in turns. They mix more
slowly, so `TURNS` turns are needed.

[Murray 2010] I. Murray, R. P. Adams, D. J. C. MacKay: Elliptical slice sampling, AISTATS.
[Nishihara 2014] R. Nishihara, I. Murray, R. P. Adams: Parallel MCMC with generalized elliptical
slice sampling, JMLR 15.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import log, pi
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.row_thresholds import cuts_of
from dsgmcmc.model.likelihoods.scales import log_scale
from dsgmcmc.model.likelihoods.thresholds import coordinates_of
from dsgmcmc.model.predictive.base import EFFECT_NODES
from dsgmcmc.types import Array, Float64, Int64

SLICES, TURNS = 10, 90  # slices of theta alone; turns of theta with scale and thresholds
NEWTON_STEPS = 50  # largest number of Newton steps to the mode; about five are usual
LEAST_GAIN = 1e-6  # of the log density in the last Newton step
DIFFERENCE_STEP = (
    1e-3  # for derivatives of the normal approximation; their error does not change the target
)


class RatedRow(NamedTuple):
    """A row and its ratings x: design matrix Phi (`features`) and offset b of the predictors, and
    its prior.

    `scales` are tau times the noise scales of the other sides of the ratings, which are 1 if the
    model has none; `effects` are the variances of unknown effects that are added to the predictors;
    `centre` is the prior mean; `thresholds` are those of `Law.log_likelihood_at`.
    """

    features: Float64
    offset: Float64
    x: Float64
    scales: Float64
    effects: Float64
    centre: Float64
    precision: Float64
    thresholds: Array | None


def predictors(rows: Sequence[RatedRow], theta: Float64) -> list[Float64]:
    """Return eta of every row's ratings, given theta of every row, (rows, D)."""
    return [row.features @ theta_k + row.offset for row, theta_k in zip(rows, theta, strict=True)]


def log_density(
    law: type[Law], rows: Sequence[RatedRow], eta: Float64, scale: Float64, cuts: Float64 | None
) -> Float64:
    """Return the log density of the ratings of rows, (n,), at their predictors.

    `scale` (rows,) are the rows' scales, and `cuts` (rows, R - 1) their thresholds, if they have
    individual ones.
    """
    lengths, thresholds = [len(row.x) for row in rows], rows[0].thresholds
    x, scales, effects = (
        np.concatenate(arrays) for arrays in zip(*(row[2:5] for row in rows), strict=True)
    )
    if cuts is not None:
        thresholds = np.repeat(cuts, lengths, axis=0)
    elif thresholds is not None and thresholds.ndim == 2:  # each rating has its own
        thresholds = np.concatenate([row.thresholds for row in rows if row.thresholds is not None])
    nodes = (
        [(np.sqrt(effects) * node, log(share)) for node, share in EFFECT_NODES]
        if effects.any()
        else [(0.0, 0.0)]
    )
    scales = np.repeat(scale, lengths) * scales
    terms = [law.log_likelihood_at(x, eta + d, scales, thresholds) + share for d, share in nodes]
    return functools.reduce(np.logaddexp, terms)


def log_likelihood(
    law: type[Law],
    rows: Sequence[RatedRow],
    eta: list[Float64],
    scale: Float64,
    cuts: Float64 | None,
) -> Float64:
    """Return the log likelihood of every row, (rows,), at the predictors of `predictors`; see
    `log_density`.
    """
    densities = log_density(law, rows, np.concatenate(eta), scale, cuts)
    owner = np.repeat(np.arange(len(rows)), [len(row.x) for row in rows])
    return np.asarray(np.bincount(owner, densities), np.float64)


def _log_prior(rows: Sequence[RatedRow], theta: Float64) -> Float64:
    """Log prior density of every row, (rows,), up to a constant."""
    u = theta - np.array([row.centre for row in rows])
    return np.asarray(-((u @ rows[0].precision) * u).sum(axis=1) / 2)


class Spread(NamedTuple):
    """Prior sds of the coordinates of a row's scale, (1,) or (0,), and of its gaps, (R - 2,) or
    (0,).

    The coordinates are 0 at the shared values; `bound` limits |log s|. The vector z has the
    coordinates in units of their sds, so that the prior of z is N(0, I).
    """

    scale: Float64
    gaps: Float64
    bound: float

    @classmethod
    def of(
        cls, law: type[Law], scale_precision: Float64 | None, gap_precision: Float64 | None
    ) -> Spread:
        """Convert from precisions, which are None if rows have no such parameter."""
        scale = (
            np.zeros(0) if scale_precision is None else np.array([scale_precision.item() ** -0.5])
        )
        return cls(
            scale, np.zeros(0) if gap_precision is None else gap_precision**-0.5, law.scale_bound
        )

    def at(self, z: Float64, thresholds: Float64 | None) -> tuple[Float64, Float64 | None]:
        """Return scales and thresholds of rows at z, (rows, len(z)), given the shared thresholds.

        Scales of rows that have none are 1, thresholds of rows that have none are None.
        """
        n = len(self.scale)
        scale = np.exp(log_scale(self.scale * z[:, :n], self.bound)).prod(axis=1)
        if not len(self.gaps) or thresholds is None:
            return scale, None
        return scale, cuts_of(coordinates_of(thresholds), self.gaps * z[:, n:])


def draw_rows(
    law: type[Law],
    rows: Sequence[RatedRow],
    thresholds: Float64 | None,
    spread: Spread,
    rng: Generator,
) -> tuple[Float64, Float64, Float64 | None]:
    """Draw every row given its ratings.

    Parameters
    ----------
    law : type of Law
        Likelihood under which the conditional distribution of a row is not normal.
    rows : sequence of RatedRow
        Each has ratings, and all have one precision.
    thresholds : (R - 1,) float64, optional
        Shared thresholds between levels.
    spread : Spread
        Priors of the scales and gaps of rows.

    Returns
    -------
    theta : (rows, D) float64
    scale : (rows,) float64
    thresholds : (rows, R - 1) float64, or None if rows have no individual ones
    """
    z = np.zeros((len(rows), len(spread.scale) + len(spread.gaps)))
    mode, inverse = laplace(law, rows, *spread.at(z, thresholds))

    def log_weight_of_theta(u: Float64, places: Int64) -> Float64:
        chosen, theta = (
            [rows[k] for k in places],
            mode[places] + np.einsum("nij,ni->nj", inverse[places], u),
        )
        likelihood = log_likelihood(
            law, chosen, predictors(chosen, theta), *spread.at(z[places], thresholds)
        )
        return np.asarray(likelihood + _log_prior(chosen, theta) + (u**2).sum(axis=1) / 2)

    def log_weight_of_z(z: Float64, places: Int64) -> Float64:
        chosen, at_theta = [rows[k] for k in places], [eta[k] for k in places]
        return log_likelihood(law, chosen, at_theta, *spread.at(z, thresholds))

    u = rng.standard_normal(mode.shape)
    for _ in range(TURNS if z.size else SLICES):
        u = slice_on_ellipse(u, log_weight_of_theta, rng)
        theta = mode + np.einsum("nij,ni->nj", inverse, u)
        if z.size:
            eta = predictors(rows, theta)
            z = slice_on_ellipse(z, log_weight_of_z, rng)
    return theta, *spread.at(z, thresholds)


def slice_on_ellipse(
    u: Float64, log_weight: Callable[[Float64, Int64], Float64], rng: Generator
) -> Float64:
    """Move every row of u, (rows, D), so that w(u) N(u; 0, I) is left invariant [Murray 2010,
    figure 2].

    `log_weight` returns log w of rows, (q,), given their u, (q, D), and their positions, (q,). The
    rows that are outside their slices try again together.
    """
    moved, other, left = np.empty_like(u), rng.standard_normal(u.shape), np.arange(len(u))
    level = log_weight(u, left) + np.log(rng.random(len(u)))
    angle = rng.uniform(0.0, 2 * pi, len(u))
    low, high = angle - 2 * pi, angle.copy()
    while len(left):
        turned = angle[left, np.newaxis]
        tried = moved[left] = np.cos(turned) * u[left] + np.sin(turned) * other[left]
        left = left[~((log_weight(tried, left) > level[left]) | (high[left] - low[left] < 1e-12))]
        below = angle[left] < 0
        low[left], high[left] = (
            np.where(below, angle[left], low[left]),
            np.where(below, high[left], angle[left]),
        )
        angle[left] = rng.uniform(low[left], high[left])
    return moved


def laplace(
    law: type[Law], rows: Sequence[RatedRow], scale: Float64, cuts: Float64 | None
) -> tuple[Float64, Float64]:
    """Return the Laplace approximation N(mode, (L L^T)^-1) of every row, from its curvature at the
    mode.

    Returns
    -------
    mode : (rows, D) float64
    inverse : (rows, D, D) float64
        L^-1.
    """

    def energy(theta: Float64) -> Float64:
        return np.asarray(
            -_log_prior(rows, theta)
            - log_likelihood(law, rows, predictors(rows, theta), scale, cuts)
        )

    def slope_and_curvature(theta: Float64) -> tuple[Float64, Float64]:
        """Derivatives by central differences; minus the second derivative of the log density is at
        least 0.
        """
        shifts, eta = (
            (DIFFERENCE_STEP, 0.0, -DIFFERENCE_STEP),
            np.concatenate(predictors(rows, theta)),
        )
        above, there, below = (log_density(law, rows, eta + shift, scale, cuts) for shift in shifts)
        curvature = np.maximum((2 * there - above - below) / DIFFERENCE_STEP**2, 0.0)
        parts = [
            np.split(values, ends)
            for values in ((above - below) / (2 * DIFFERENCE_STEP), curvature)
        ]
        of_rows = [(row.features, v, c) for row, v, c in zip(rows, *parts, strict=True)]
        slope = (theta - centre) @ rows[0].precision - np.array([v @ phi for phi, v, _ in of_rows])
        return slope, rows[0].precision + np.array([(phi.T * c) @ phi for phi, _, c in of_rows])

    ends = np.cumsum([len(row.x) for row in rows])[:-1]
    theta = centre = np.array([row.centre for row in rows])
    old = energy(theta)
    for _ in range(NEWTON_STEPS):
        slope, curvature = slope_and_curvature(theta)
        step = np.linalg.solve(curvature, slope[..., np.newaxis])[..., 0]
        length, new = np.ones((len(theta), 1)), energy(theta - step)
        while (worse := ~(new <= old + LEAST_GAIN) & (length[:, 0] > 1e-6)).any():
            length[worse] /= 2
            new = energy(theta - length * step)
        theta, gain, old = theta - length * step, old - new, new
        if not (gain > LEAST_GAIN).any():
            break
    return theta, np.linalg.inv(np.linalg.cholesky(slope_and_curvature(theta)[1]))
