r"""Compute the curvature of a density that does not define it, before the first iteration.

The unit of step sizes is 1 / P, where P = curvature + the prior's precision. The curvature is computed in three steps:

1. L-BFGS runs from `start`, or else from the prior's mean. It ends at theta*, a mode or a point close to one.
2. c is the diagonal of the matrix H of second derivatives of the likelihood's energy at theta*, by central differences
   of gradients along every axis. For D above `EVERY_AXIS`, c is the mean of z * (H z) over `SIGNS` vectors z of random
   signs. Elements that are negative or tiny become `MIN_CURVATURE` times the largest element.
3. Power iteration yields lambda, the largest eigenvalue of P^-1/2 (H + prior) P^-1/2 with P = c + the prior's
   precision. If lambda is above 1, P is multiplied by lambda. In the metric P no curvature at theta* is then above 1,
   so all steps that are stable for N(0, 1) are stable at theta*.

The result depends on the density alone, and takes some hundred gradients of all data. Away from theta* the curvature
may be larger; samplers with adaptive steps adapt them in burn-in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from dsgmcmc.densities.density import D, Density, check_attributes, posterior_gradient, prior_energy
from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64

DESCENT, EVERY_AXIS, SIGNS, POWER = 300, 200, 100, 20
MIN_CURVATURE = 1e-6
#: Spacing of the differences: first in units of theta, then in standard deviations.
SPACING = (1e-3, 0.1)


def with_curvature(density: D) -> D:
    """Return the density if it has a curvature, otherwise a copy with the computed curvature.

    Raises
    ------
    InputError
        If the computed curvature is not finite.
    """
    if getattr(density, "curvature", None) is not None:
        return density
    measured = copy.copy(density)
    measured.curvature = np.ones(getattr(density, "dimension", 1))
    check_attributes(measured)
    if not hasattr(density, "gradient"):
        return measured
    with np.errstate(all="ignore"):
        measured.curvature = _probe(measured)
    return measured


def _probe(density: Density) -> Float64:
    prior = np.asarray(density.prior_precision, np.float64)
    of_prior = np.diag(prior).copy() if prior.ndim == 2 else prior
    mode = _descend(density)
    curvature = _positive(_diagonal(density, mode, np.full(density.dimension, SPACING[0])), of_prior)
    curvature = _positive(_diagonal(density, mode, SPACING[1] / np.sqrt(curvature + of_prior)), of_prior)
    precision = curvature + of_prior
    largest = _largest(lambda x: _times(density, mode, x), precision)
    curvature_there: Float64 = np.maximum(largest, 1.0) * precision - of_prior
    if not np.isfinite(curvature_there).all():
        raise InputError(
            f"no curvature of {type(density).__name__} can be found about {mode[:3]}...: give it an attribute "
            "curvature, (D,) typical second derivatives of its energy"
        )
    return curvature_there


def _descend(density: Density) -> Float64:
    """Return the point at which L-BFGS ends, (D,)."""
    from scipy.optimize import minimize  # importing it takes longer than a short run

    def value(theta: Float64) -> tuple[float, Float64]:
        there = theta[None]
        energy = float((density.energy(there) + prior_energy(density, there))[0])
        return energy, np.asarray(posterior_gradient(density, there), np.float64).ravel()

    start = np.asarray(getattr(density, "start", density.prior_mean), np.float64)
    mode: Float64 = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": DESCENT}).x
    return mode if np.isfinite(mode).all() else start


def _positive(diagonal: Float64, of_prior: Float64) -> Float64:
    """Replace elements of the diagonal that are not positive, or tiny; for a flat energy all become 1."""
    least = MIN_CURVATURE * max(float(np.nanmax(diagonal)), float(of_prior.max()))
    positive: Float64 = np.where(diagonal > least, diagonal, least if least > 0 else 1.0)
    return positive


def _diagonal(density: Density, mode: Float64, spacing: Float64) -> Float64:
    """Diagonal of the likelihood's second derivatives, (D,)."""
    dimension = density.dimension
    if dimension <= EVERY_AXIS:
        steps = np.diag(spacing)
        return np.array([_slope(density, mode, step)[k] / spacing[k] for k, step in enumerate(steps)])
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SIGNS, dimension))
    products = [z * _slope(density, mode, z * spacing) / spacing for z in signs]
    return np.asarray(np.mean(products, axis=0), np.float64)


def _slope(density: Density, mode: Float64, step: Float64) -> Float64:
    """Half the difference of the likelihood's gradients at mode + step and mode - step, about H step, (D,)."""
    ahead, behind = (np.asarray(density.gradient((mode + sign * step)[None]), np.float64) for sign in (1, -1))
    slope: Float64 = 0.5 * (ahead - behind).ravel()
    return slope


def _times(density: Density, mode: Float64, x: Float64) -> Float64:
    """Multiply H + prior by a displacement x, which has the length of a tenth of a standard deviation."""
    prior = np.asarray(density.prior_precision, np.float64)
    return _slope(density, mode, x) + (prior @ x if prior.ndim == 2 else prior * x)


def _largest(product: Callable[[Float64], Float64], precision: Float64) -> float:
    """Largest eigenvalue of P^-1/2 (H + prior) P^-1/2, by power iteration."""
    root, v, value = np.sqrt(precision), np.random.default_rng(1).standard_normal(len(precision)), 0.0
    for _ in range(POWER):
        v = v / np.linalg.norm(v)
        w = product(SPACING[1] * v / root) / root / SPACING[1]
        value = float(np.linalg.norm(w))
        v = w
        if not value > 0:
            return 1.0
    return value
