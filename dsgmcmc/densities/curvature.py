"""Curvature and start of a density that does not define them.

With P = curvature + the prior's precision, steps have the unit 1 / P. `complete` computes
`curvature` and `start` as follows:

1. L-BFGS runs from `start`, or else from the prior's mean. It ends at theta*, at or close to a
   mode.
2. c is the diagonal of the second derivatives H of the likelihood's energy at theta*.
3. Both steps are repeated twice from theta* with theta in units of 1 / sqrt(P), because L-BFGS
   stops early where the elements of theta have very different scales.
4. If lambda, the largest eigenvalue of P^-1/2 (H + prior) P^-1/2, is above 1, P is multiplied by
   lambda. In the metric P no curvature at theta* is then above 1, so all steps that are stable for
   N(0, 1) are stable at theta*.

The result depends on the density alone, and takes some hundred gradients of all data.
"""

from __future__ import annotations

import copy

import numpy as np

from dsgmcmc.densities.density import (
    D,
    Density,
    check_attributes,
    check_gradient,
    precision_of,
    prior_energy,
    prior_gradient,
    start_of,
)
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import dense, diagonal
from dsgmcmc.types import Float64

#: Maximum number of iterations of L-BFGS.
DESCENT_STEPS = 300
#: Number of power iterations.
POWER_STEPS = 20
#: Maximum of D for which gradients are differenced along every axis.
MAX_AXES = 200
#: Number of vectors of random signs for larger D.
SIGN_VECTORS = 100
#: An element of c counts as positive above this fraction of the largest element of c or of the
#: prior's precision.
LEAST_CURVATURE = 1e-12
#: Fraction of the same element that replaces an element of c that is not positive.
MIN_CURVATURE = 1e-6
#: An eigenvalue of the second derivatives counts as positive above this, in units of the curvature.
LEAST_EIGENVALUE = 1e-8
#: Spacings of the differences in the three rounds of steps 1 and 2: without a unit in the first,
#: then in 1 / sqrt(P).
SPACINGS = (1e-3, 0.1, 0.1)


def complete(density: D) -> D:
    """Return a copy of the density with a curvature, and with a start if it has a gradient.

    A density without a gradient gets a curvature of 1, and starts about the prior's mean.

    Raises
    ------
    InputError
        If an attribute has a wrong shape, or the computed curvature is not finite.
    """
    completed = copy.copy(density)
    has_curvature = getattr(density, "curvature", None) is not None
    if not has_curvature:
        completed.curvature = np.ones(getattr(density, "dimension", 1))
    check_attributes(completed)
    if not hasattr(density, "gradient"):
        return completed
    with np.errstate(all="ignore"):
        mode = None
        if not has_curvature:
            mode, completed.curvature = _compute_curvature(completed)
        if not hasattr(density, "start"):
            vars(completed)["start"] = mode_of(completed) if mode is None else mode
    return completed


def mode_of(density: Density) -> Float64:
    """Return the point at which L-BFGS ends, at or close to a mode of the posterior, (D,)."""
    return _descend(density, start_of(density), 1 / np.sqrt(precision_of(density)))


def inverse_root(density: Density) -> Float64:
    """Return a root R of the inverse of the posterior's second derivatives at the start, (D, D).

    R R^T is the inverse. An eigenvalue that is not positive becomes 1, in units of the curvature.
    """
    unit = 1 / np.sqrt(precision_of(density))
    H = _hessian(density, start_of(density), SPACINGS[-1] * unit) + dense(density.prior_precision)
    scaled = unit * (H + H.T) / 2 * unit[:, None]
    values, axes = np.linalg.eigh(np.nan_to_num(scaled, posinf=0.0, neginf=0.0))
    return unit[:, None] * axes / np.sqrt(np.where(values > LEAST_EIGENVALUE, values, 1.0))


def _compute_curvature(density: Density) -> tuple[Float64, Float64]:
    """Return `start` and the curvature there, both (D,), as the module describes them.

    If an element of c is not positive at the last theta*, then theta* is no mode: the energy may
    fall without end, as in hierarchies whose scale tends to 0. `start` is then the point from which
    L-BFGS ran first, and the curvature is that of this point.
    """
    prior = diagonal(density.prior_precision)
    mode = start_of(density)
    unit = np.ones(density.dimension)
    for spacing in SPACINGS:
        mode = _descend(density, mode, unit)
        c = _diagonal(density, mode, spacing * unit)
        precision = _positive(c, prior) + prior
        unit = 1 / np.sqrt(precision)
    if (precision != c + prior).any():
        mode = start_of(density)
        c = _diagonal(density, mode, np.full(len(mode), SPACINGS[0]))
        precision = _positive(c, prior) + prior
    curvature = max(_largest_eigenvalue(density, mode, precision), 1.0) * precision - prior
    if not np.isfinite(curvature).all():
        raise InputError(
            f"the curvature of {type(density).__name__} is not finite: add an attribute curvature,"
            " (D,)"
        )
    return mode, curvature


def _descend(density: Density, start: Float64, unit: Float64) -> Float64:
    """Return the point (D,) at which L-BFGS ends if it runs from `start`, in units `unit`, (D,)."""
    from scipy.optimize import minimize  # importing it takes longer than a short run

    def value(x: Float64) -> tuple[float, Float64]:
        point = (start + unit * x)[None]
        energy = density.energy(point)
        gradient = density.gradient(point)
        check_gradient(density, point, gradient)
        slope = gradient + prior_gradient(density, point)
        posterior_energy = float(np.ravel(energy + prior_energy(density, point))[0])
        return posterior_energy, unit * np.asarray(slope, np.float64).ravel()

    options = {"maxiter": DESCENT_STEPS}
    found = minimize(value, np.zeros(len(unit)), jac=True, method="L-BFGS-B", options=options)
    mode: Float64 = start + unit * found.x
    return mode if np.isfinite(mode).all() else start


def _positive(c: Float64, prior: Float64) -> Float64:
    """Replace elements of c that are not positive; without curvature and prior, all become 1."""
    largest = max(float(np.nanmax(c)), float(prior.max()))
    replacement = MIN_CURVATURE * largest if largest > 0 else 1.0
    return np.where(c > LEAST_CURVATURE * largest, c, replacement)


def _diagonal(density: Density, point: Float64, spacing: Float64) -> Float64:
    """Return the diagonal of the likelihood's second derivatives H at a point (D,), (D,).

    For D above `MAX_AXES`, it is the mean of z * (H z) over vectors z of random signs.
    """
    if density.dimension <= MAX_AXES:
        return np.diag(_hessian(density, point, spacing))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SIGN_VECTORS, density.dimension))
    products = [z * _slope(density, point, z * spacing) / spacing for z in signs]
    return np.mean(products, axis=0)


def _hessian(density: Density, point: Float64, spacing: Float64) -> Float64:
    """Return the likelihood's second derivatives at a point (D,), (D, D).

    They are central differences of gradients along every axis, with spacings (D,).
    """
    return np.array([_slope(density, point, step) for step in np.diag(spacing)]) / spacing[:, None]


def _slope(density: Density, point: Float64, step: Float64) -> Float64:
    """Return half the difference of the likelihood's gradients at point + step and point - step.

    It is nearly H step, (D,).
    """
    ahead = np.asarray(density.gradient((point + step)[None]), np.float64)
    behind = np.asarray(density.gradient((point - step)[None]), np.float64)
    return 0.5 * (ahead - behind).ravel()


def _largest_eigenvalue(density: Density, mode: Float64, precision: Float64) -> float:
    """Return the largest eigenvalue of P^-1/2 (H + prior) P^-1/2, by power iteration."""
    root = np.sqrt(precision)
    v = np.random.default_rng(1).standard_normal(len(precision))
    prior = density.prior_precision
    value = 0.0
    for _ in range(POWER_STEPS):
        x = SPACINGS[-1] * (v / np.linalg.norm(v)) / root
        prior_slope = prior @ x if prior.ndim == 2 else prior * x
        v = (_slope(density, mode, x) + prior_slope) / root / SPACINGS[-1]
        value = float(np.linalg.norm(v))
        if not value > 0:
            return 1.0
    return value
