"""Densities on a plain vector, given by energy and gradient for any subset of the data, and their
curvature.

The unit of step sizes is 1 / P, where P = curvature + the prior's precision. The unit of initial
states is 1 / sqrt(P), and they are drawn about the attribute `start`. `complete` computes
`curvature` and `start` for a density that does not define them, in these steps:

1. L-BFGS runs from `start`, or else from the prior's mean. It ends at theta*, at or close to a
   mode.
2. c is the diagonal of the matrix H of second derivatives of the likelihood's energy at theta*, by
   central differences of gradients along every axis. For D above `MAX_AXES`, c is the mean of z *
   (H z) over `SIGN_VECTORS` vectors z of random signs. Elements that are not positive become
   `MIN_CURVATURE` times the largest element of c or of the prior's precision.
3. Both steps are repeated twice from theta* with theta in units of 1 / sqrt(P), because L-BFGS
   stops early where the elements of theta have very different scales.
4. Power iteration yields lambda, the largest eigenvalue of P^-1/2 (H + prior) P^-1/2 with P = c +
   the prior's precision. If lambda is above 1, P is multiplied by lambda. In the metric P no
   curvature at theta* is then above 1, so all steps that are stable for N(0, 1) are stable at
   theta*.

theta* becomes `start`, if there is none. But if an element of c is not positive at the last theta*,
then theta* is no mode: the energy may fall without end, as in hierarchies whose scale tends to 0.
`start` is then the point from which L-BFGS ran first, and steps 2 and 4 compute the curvature
there. If `curvature` is defined, only step 1 remains, and `curvature` is its unit. A density
without a gradient gets a curvature of 1, and starts about the prior's mean.

The result depends on the density alone, and takes some hundred gradients of all data. Away from
theta* the curvature may be larger; `hmc` and `mala` adapt their steps in burn-in.

`Gaussian` and `DoubleWell` have known moments and serve as first tests of a sampler. They have no
prior, and `n_data` is 1: `energy` is minus the log density up to a constant, and its argument
`data` is ignored.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import dense, diagonal
from dsgmcmc.types import Array, Float64

#: A subset of the data: a slice, or an array of indices.
Data = slice | Array
ALL = slice(None)

#: Maximum number of iterations of L-BFGS, and number of power iterations.
DESCENT_STEPS, POWER_STEPS = 300, 20
#: Maximum of D for which gradients are differenced along every axis; number of vectors of random
#: signs for larger D.
MAX_AXES, SIGN_VECTORS = 200, 100
#: Fractions of the largest element of c or of the prior's precision: an element of c that is not
#: above the first counts as not positive, and becomes the second.
LEAST_CURVATURE, MIN_CURVATURE = 1e-12, 1e-6
#: An eigenvalue of the second derivatives, in units of the curvature, that is not above this counts
#: as not positive.
LEAST_EIGENVALUE = 1e-8
#: Spacings of the differences in the three rounds of steps 1 and 2: without a unit in the first,
#: then in 1 / sqrt(P).
SPACINGS = (1e-3, 0.1, 0.1)


class Density(Protocol):
    """A posterior of a vector theta of length D, with a Gaussian prior.

    Attributes
    ----------
    dimension : int
        D.
    n_data : int
        Number N of data.
    curvature : (D,) float64
        Typical second derivative of the likelihood's energy, the unit of step sizes.
        `sample_density` computes it for a density without one.
    start : (D,) float64
        Point about which chains start; optional, and computed like `curvature`.
    prior_mean, prior_precision : (D,) and (D,) or (D, D) float64
        Gaussian prior; precision 0 if there is no prior, or if `energy` contains it.
    """

    dimension: int
    n_data: int
    curvature: Float64
    prior_mean: Float64
    prior_precision: Float64

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,) for theta (n, D)."""

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D)."""


D = TypeVar("D", bound=Density)


@runtime_checkable
class Riemannian(Density, Protocol):
    """A density with a metric G(theta), for Riemannian samplers."""

    def metric(self, theta: Float64) -> tuple[Float64, Float64]:
        """Return a root of the inverse metric, and its divergence.

        Parameters
        ----------
        theta : (n, D) float64
            Points.

        Returns
        -------
        root : (n, D) or (n, D, D) float64
            S with S S^T = G^-1: the diagonal of a diagonal matrix, or the full matrix.
        divergence : (n, D) float64
            sum_j d S_ji / d theta_j.
        """


def prior_energy(density: Density, theta: Float64) -> Float64:
    """Minus the log density of the prior up to a constant, (n,) for theta (n, D)."""
    return 0.5 * ((theta - density.prior_mean) * prior_gradient(density, theta)).sum(axis=1)


def prior_gradient(density: Density, theta: Float64) -> Float64:
    """Gradient of `prior_energy`, (n, D)."""
    offset, precision = theta - density.prior_mean, density.prior_precision
    return offset @ precision if precision.ndim == 2 else offset * precision


def posterior_gradient(density: Density, theta: Float64) -> Float64:
    """Gradient of the energy of all data and the prior, (n, D)."""
    return density.gradient(theta) + prior_gradient(density, theta)


def start_of(density: Density) -> Float64:
    """Return the point about which chains start, (D,): the attribute `start`, or else the prior's
    mean.
    """
    return np.asarray(getattr(density, "start", density.prior_mean), np.float64)


def precision_of(density: Density) -> Float64:
    """Return the typical curvature plus the prior's precision, for every element of theta, (D,)."""
    return density.curvature + diagonal(density.prior_precision)


def start_points(density: Density, sd: float) -> Float64:
    """Return points drawn like initial states, (8, D), always the same; `sd` is in units of 1 /
    sqrt(precision).
    """
    unit = sd / np.sqrt(precision_of(density))
    return start_of(density) + unit * np.random.default_rng(0).standard_normal(
        (8, density.dimension)
    )


def check_attributes(density: Density) -> None:
    """Raise `InputError` unless the attributes of a density have the right shapes."""
    kind = type(density).__name__
    for name in ("dimension", "n_data"):
        value = getattr(density, name, None)
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{kind}.{name} must be a positive integer: found {value!r}")
    size = density.dimension
    vector, matrix = (size,), (size, size)
    for name, shapes in (
        ("curvature", [vector]),
        ("prior_mean", [vector]),
        ("prior_precision", [vector, matrix]),
    ):
        value = getattr(density, name, None)
        expected = " or ".join(map(str, shapes))
        if (
            not isinstance(value, np.ndarray)
            or value.shape not in shapes
            or value.dtype.kind not in "fiu"
        ):
            actual = (
                f"{value.dtype} {value.shape}"
                if isinstance(value, np.ndarray)
                else repr(value)[:80]
            )
            raise InputError(
                f"{kind}.{name} must be an array of numbers, {expected}: found {actual}"
            )
        if not np.isfinite(value).all():
            raise InputError(f"{kind}.{name} must be finite: found {value}")


def check_energy(density: Density, points: Float64) -> None:
    """Raise `InputError` if the energy at one of the points (m, D) has a wrong shape, or is NaN at
    all points.
    """
    kind = type(density).__name__
    for point in points:
        energy = np.asarray(density.energy(point[None]))
        if energy.shape not in ((1,), ()):
            raise InputError(
                f"{kind}.energy must be (n,) for theta (n, D): found {energy.shape} for n = 1"
            )
        if not np.isnan(energy).all():
            return
    raise InputError(
        f"{kind}.energy is NaN at {len(points)} points drawn like initial states, one of them"
        f" {points[0]}"
    )


def check_gradient(density: Density, theta: Float64, gradient: Any) -> None:
    """Raise `InputError` unless the gradient of `energy` at theta (n, D) has the shape of theta.

    For one row, shape (D,) is accepted, too.
    """
    shape = np.shape(gradient)
    if shape != theta.shape and not (len(theta) == 1 and shape == theta.shape[1:]):
        raise InputError(
            f"{type(density).__name__}.gradient must have the shape of theta {theta.shape}: found"
            f" {shape}"
        )


def multiply(matrices: Float64, rows: Float64) -> Float64:
    """Multiply every row (n, D) by its matrix (n, D, D), or by a diagonal matrix given as (n, D)."""
    return np.einsum("nij,nj->ni", matrices, rows) if matrices.ndim == 3 else matrices * rows


def complete(density: D) -> D:
    """Return a copy of the density with a curvature, and with a start if it has a gradient (see the
    module).

    Raises
    ------
    InputError
        If an attribute has a wrong shape, or the computed curvature is not finite.
    """
    completed, mode = copy.copy(density), None
    has_curvature = getattr(density, "curvature", None) is not None
    if not has_curvature:
        completed.curvature = np.ones(getattr(density, "dimension", 1))
    check_attributes(completed)
    if not hasattr(density, "gradient"):
        return completed
    with np.errstate(all="ignore"):
        if not has_curvature:
            mode, completed.curvature = _compute_curvature(completed)
        if not hasattr(density, "start"):
            vars(completed)["start"] = mode_of(completed) if mode is None else mode
    return completed


def mode_of(density: Density) -> Float64:
    """Return the point at which L-BFGS ends, at or close to a mode of the posterior, (D,)."""
    return _descend(density, start_of(density), 1 / np.sqrt(precision_of(density)))


def _compute_curvature(density: Density) -> tuple[Float64, Float64]:
    """Return `start` and the curvature there, both (D,), as the module describes them."""
    mode, prior = start_of(density), diagonal(density.prior_precision)
    unit = np.ones(density.dimension)
    for spacing in SPACINGS:
        mode = _descend(density, mode, unit)
        c = _diagonal(density, mode, spacing * unit)
        precision = _positive(c, prior) + prior
        unit = 1 / np.sqrt(precision)
    if (precision != c + prior).any():
        mode = start_of(density)
        precision = (
            _positive(_diagonal(density, mode, np.full(len(mode), SPACINGS[0])), prior) + prior
        )
    curvature = max(_largest_eigenvalue(density, mode, precision), 1.0) * precision - prior
    if not np.isfinite(curvature).all():
        raise InputError(
            f"the curvature of {type(density).__name__} is not finite: add an attribute curvature,"
            " (D,)"
        )
    return mode, curvature


def _descend(density: Density, start: Float64, unit: Float64) -> Float64:
    """Return the point (D,) at which L-BFGS ends if it runs from `start` (D,), in units `unit` (D,)
    of theta.
    """
    from scipy.optimize import minimize  # importing it takes longer than a short run

    def value(x: Float64) -> tuple[float, Float64]:
        point = (start + unit * x)[None]
        energy, gradient = density.energy(point), density.gradient(point)
        check_gradient(density, point, gradient)
        slope = gradient + prior_gradient(density, point)
        return (
            float(np.ravel(energy + prior_energy(density, point))[0]),
            unit * np.asarray(slope, np.float64).ravel(),
        )

    options = {"maxiter": DESCENT_STEPS}
    mode: Float64 = (
        start
        + unit
        * minimize(value, np.zeros(len(unit)), jac=True, method="L-BFGS-B", options=options).x
    )
    return mode if np.isfinite(mode).all() else start


def _positive(c: Float64, prior: Float64) -> Float64:
    """Replace elements of c that are not positive; without curvature and prior, all become 1."""
    largest = max(float(np.nanmax(c)), float(prior.max()))
    return np.where(
        c > LEAST_CURVATURE * largest, c, MIN_CURVATURE * largest if largest > 0 else 1.0
    )


def _diagonal(density: Density, mode: Float64, spacing: Float64) -> Float64:
    """Return the diagonal of the likelihood's second derivatives, (D,)."""
    if density.dimension <= MAX_AXES:
        return np.diag(_hessian(density, mode, spacing))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SIGN_VECTORS, density.dimension))
    products = [z * _slope(density, mode, z * spacing) / spacing for z in signs]
    return np.mean(products, axis=0)


def _hessian(density: Density, point: Float64, spacing: Float64) -> Float64:
    """Return the likelihood's second derivatives at a point (D,), by differences with these
    spacings (D,): (D, D).
    """
    return np.array([_slope(density, point, step) for step in np.diag(spacing)]) / spacing[:, None]


def inverse_root(density: Density) -> Float64:
    """Return a root R of the inverse of the posterior's second derivatives at the start, R R^T =
    inverse, (D, D).

    An eigenvalue that is not positive becomes 1, in units of the curvature.
    """
    unit = 1 / np.sqrt(precision_of(density))
    H = _hessian(density, start_of(density), SPACINGS[-1] * unit) + dense(density.prior_precision)
    values, axes = np.linalg.eigh(
        np.nan_to_num(unit * (H + H.T) / 2 * unit[:, None], posinf=0.0, neginf=0.0)
    )
    return unit[:, None] * axes / np.sqrt(np.where(values > LEAST_EIGENVALUE, values, 1.0))


def _slope(density: Density, mode: Float64, step: Float64) -> Float64:
    """Return half the difference of the likelihood's gradients at mode + step and mode - step,
    (D,): nearly H step.
    """
    ahead, behind = (
        np.asarray(density.gradient((mode + sign * step)[None]), np.float64) for sign in (1, -1)
    )
    return 0.5 * (ahead - behind).ravel()


def _largest_eigenvalue(density: Density, mode: Float64, precision: Float64) -> float:
    """Return the largest eigenvalue of P^-1/2 (H + prior) P^-1/2, by power iteration."""
    root, v = np.sqrt(precision), np.random.default_rng(1).standard_normal(len(precision))
    prior, value = density.prior_precision, 0.0
    for _ in range(POWER_STEPS):
        x = SPACINGS[-1] * (v / np.linalg.norm(v)) / root
        v = (
            (_slope(density, mode, x) + (prior @ x if prior.ndim == 2 else prior * x))
            / root
            / SPACINGS[-1]
        )
        value = float(np.linalg.norm(v))
        if not value > 0:
            return 1.0
    return value


class Gaussian:
    """N(mean, covariance).

    Parameters
    ----------
    mean : (D,) array
        Mean.
    covariance : (D, D) array
        Positive definite.
    """

    n_data = 1

    def __init__(self, mean: Float64, covariance: Float64) -> None:
        self.mean, self.covariance = (
            np.asarray(mean, np.float64),
            np.asarray(covariance, np.float64),
        )
        self.precision = np.linalg.inv(self.covariance)
        self.dimension, self.curvature = len(self.mean), np.diag(self.precision).copy()
        self.prior_mean, self.prior_precision = np.zeros(self.dimension), np.zeros(self.dimension)

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Energy, (n,) for theta (n, D)."""
        offset = theta - self.mean
        return 0.5 * (offset * (offset @ self.precision)).sum(axis=1)

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of the energy, (n, D)."""
        return (theta - self.mean) @ self.precision


class DoubleWell:
    """U = x^4 - 2 x^2 [Ma 2015, fig. 2 left]: modes at -1 and 1, with a barrier of 1 between them.

    By quadrature E x^2 is 0.832745; E x^4 = E x^2 + 1 / 4, because E x U' = 1.
    """

    dimension, n_data = 1, 1
    curvature = np.array([8.0])  # at the modes
    prior_mean, prior_precision = np.zeros(1), np.zeros(1)
    square, fourth = 0.832745, 1.082745

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Energy, (n,) for theta (n, 1)."""
        return (theta**4 - 2 * theta**2).sum(axis=1)

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of the energy, (n, 1)."""
        return 4 * theta**3 - 4 * theta
