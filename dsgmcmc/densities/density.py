"""Densities on a plain vector, defined by energy and gradient for any subset of the data.

The unit of step sizes is 1 / P, where P = curvature + the prior's precision. The unit of initial
states is 1 / sqrt(P), and they are drawn about the attribute `start`.
`dsgmcmc.densities.curvature` computes `curvature` and `start` for a density that does not define
them.

`Gaussian` and `DoubleWell` have known moments and serve as first tests of a sampler. They have no
prior, and `n_data` is 1: `energy` is minus the log density up to a constant, and its argument
`data` is ignored.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import diagonal
from dsgmcmc.types import Array, Float64

#: A subset of the data: a slice, or an array of indices.
Data = slice | Array
ALL = slice(None)

#: Number of points at which `sample_density` evaluates an energy before it samples.
TRIAL_POINTS = 8
#: Largest number of characters of a wrong value in a message.
SHOWN = 80


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
    offset = theta - density.prior_mean
    if density.prior_precision.ndim == 2:
        return offset @ density.prior_precision
    return offset * density.prior_precision


def posterior_gradient(density: Density, theta: Float64) -> Float64:
    """Gradient of the energy of all data and the prior, (n, D)."""
    return density.gradient(theta) + prior_gradient(density, theta)


def start_of(density: Density) -> Float64:
    """Return the point about which chains start, (D,): `start`, or else the prior's mean."""
    return np.asarray(getattr(density, "start", density.prior_mean), np.float64)


def precision_of(density: Density) -> Float64:
    """Return the typical curvature plus the prior's precision, for every element of theta, (D,)."""
    return density.curvature + diagonal(density.prior_precision)


def start_points(density: Density, sd: float) -> Float64:
    """Return points drawn like initial states, (TRIAL_POINTS, D), always the same.

    `sd` is in units of 1 / sqrt(precision).
    """
    unit = sd / np.sqrt(precision_of(density))
    normals = np.random.default_rng(0).standard_normal((TRIAL_POINTS, density.dimension))
    return start_of(density) + unit * normals


def check_attributes(density: Density) -> None:
    """Raise `InputError` unless the attributes of a density have the right shapes."""
    title = type(density).__name__
    for name in ("dimension", "n_data"):
        value = getattr(density, name, None)
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{title}.{name} must be a positive integer: found {value!r}")
    vector = (density.dimension,)
    matrix = (density.dimension, density.dimension)
    _check_array(density, "curvature", vector)
    _check_array(density, "prior_mean", vector)
    _check_array(density, "prior_precision", vector, matrix)


def _check_array(density: Density, name: str, *shapes: tuple[int, ...]) -> None:
    """Raise `InputError` unless an attribute is a finite array with one of these shapes."""
    value = getattr(density, name, None)
    title = f"{type(density).__name__}.{name}"
    expected = f"{title} must be an array of numbers, {' or '.join(map(str, shapes))}"
    if not isinstance(value, np.ndarray):
        raise InputError(f"{expected}: found {repr(value)[:SHOWN]}")
    if value.shape not in shapes or value.dtype.kind not in "fiu":
        raise InputError(f"{expected}: found {value.dtype} {value.shape}")
    if not np.isfinite(value).all():
        raise InputError(f"{title} must be finite: found {value}")


def check_energy(density: Density, points: Float64) -> None:
    """Raise `InputError` if the energy has a wrong shape, or is NaN at all points (m, D)."""
    title = type(density).__name__
    for point in points:
        energy = np.asarray(density.energy(point[None]))
        if energy.shape not in ((1,), ()):
            raise InputError(
                f"{title}.energy must be (n,) for theta (n, D): found {energy.shape} for n = 1"
            )
        if not np.isnan(energy).all():
            return
    raise InputError(
        f"{title}.energy is NaN at {len(points)} points drawn like initial states, one of them"
        f" {points[0]}"
    )


def check_gradient(density: Density, theta: Float64, gradient: Any) -> None:
    """Raise `InputError` unless the gradient of `energy` at theta (n, D) has the shape of theta.

    For one row, shape (D,) is accepted, too.
    """
    shape = np.shape(gradient)
    if shape == theta.shape or (len(theta) == 1 and shape == theta.shape[1:]):
        return
    raise InputError(
        f"{type(density).__name__}.gradient must have the shape of theta {theta.shape}:"
        f" found {shape}"
    )


def multiply(matrices: Float64, rows: Float64) -> Float64:
    """Multiply every row (n, D) by its matrix, (n, D, D), or by its diagonal matrix, (n, D)."""
    if matrices.ndim == 3:
        return np.einsum("nij,nj->ni", matrices, rows)
    return matrices * rows


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
        self.mean = np.asarray(mean, np.float64)
        self.covariance = np.asarray(covariance, np.float64)
        self.precision = np.linalg.inv(self.covariance)
        self.dimension = len(self.mean)
        self.curvature = np.diag(self.precision).copy()
        self.prior_mean = np.zeros(self.dimension)
        self.prior_precision = np.zeros(self.dimension)

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

    dimension = 1
    n_data = 1
    curvature = np.array([8.0])  # at the modes
    prior_mean = np.zeros(1)
    prior_precision = np.zeros(1)
    square = 0.832745  # E x^2
    fourth = 1.082745  # E x^4

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Energy, (n,) for theta (n, 1)."""
        return (theta**4 - 2 * theta**2).sum(axis=1)

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of the energy, (n, 1)."""
        return 4 * theta**3 - 4 * theta
