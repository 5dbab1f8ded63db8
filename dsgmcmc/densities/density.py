"""Densities on a plain vector, given by energy and gradient for any subset of the data.

`Gaussian` and `DoubleWell` have known moments and serve as first tests of a sampler. They have no prior, and count as
having one datum: `energy` is minus the log density up to a constant, and the argument `data` is ignored.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64

#: A subset of the data: a slice, or the numbers of the data.
Data = slice | npt.NDArray[np.integer[Any]]
ALL = slice(None)


class Density(Protocol):
    """A posterior of a vector theta of length D, with a Gaussian prior.

    Attributes
    ----------
    dimension : int
        D.
    n_data : int
        Number N of data.
    curvature : (D,) float64
        Typical second derivative of the likelihood's energy, the unit of step sizes. `sample_density` computes it for a
        density without one (`dsgmcmc.densities.curvature`).
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
    offset, precision = theta - density.prior_mean, density.prior_precision
    pull = offset @ precision if precision.ndim == 2 else offset * precision
    prior_energy: Float64 = 0.5 * (offset * pull).sum(axis=1)
    return prior_energy


def prior_gradient(density: Density, theta: Float64) -> Float64:
    """Gradient of `prior_energy`, (n, D)."""
    offset, precision = theta - density.prior_mean, density.prior_precision
    prior_gradient: Float64 = offset @ precision if precision.ndim == 2 else offset * precision
    return prior_gradient


def posterior_gradient(density: Density, theta: Float64) -> Float64:
    """Gradient of the energy of all data and the prior, (n, D)."""
    return density.gradient(theta) + prior_gradient(density, theta)


def check_attributes(density: Density) -> None:
    """Raise `InputError` unless the attributes of a density have the right shapes."""
    kind = type(density).__name__
    for name in ("dimension", "n_data"):
        value = getattr(density, name, None)
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{kind}.{name} must be a positive integer: found {value!r}")
    size = density.dimension
    vector, matrix = (size,), (size, size)
    for name, shapes in (("curvature", [vector]), ("prior_mean", [vector]), ("prior_precision", [vector, matrix])):
        value = getattr(density, name, None)
        wanted = " or ".join(map(str, shapes))
        if not isinstance(value, np.ndarray) or value.shape not in shapes or value.dtype.kind not in "fiu":
            said = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else repr(value)[:80]
            raise InputError(f"{kind}.{name} must be an array of numbers, {wanted}: found {said}")
        if not np.isfinite(value).all():
            raise InputError(f"{kind}.{name} must be finite: found {value}")


def check_energy(density: Density, points: Float64) -> None:
    """Raise `InputError` if the energy at one of the points (m, D) has a wrong shape, or is NaN at all points."""
    kind = type(density).__name__
    for point in points:
        energy = np.asarray(density.energy(point[None]))
        if energy.shape not in ((1,), ()):
            raise InputError(
                f"{kind}.energy must be (n,) for theta (n, D): found {energy.shape} for {point[None].shape}"
            )
        if not np.isnan(energy).all():
            return
    raise InputError(f"{kind}.energy is NaN at {len(points)} points such as chains start from, one of them {points[0]}")


def check_gradient(density: Density, theta: Float64, gradient: Any) -> None:
    """Raise `InputError` unless the gradient of `energy` at theta (n, D) has the shape of theta.

    For one row, shape (D,) is accepted, too.
    """
    if getattr(gradient, "shape", None) == theta.shape:
        return
    if np.shape(gradient) != theta.shape and not (len(theta) == 1 and np.shape(gradient) == theta.shape[1:]):
        kind = type(density).__name__
        raise InputError(f"{kind}.gradient must have the shape of theta, {theta.shape}: found {np.shape(gradient)}")


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
        self.mean, self.covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
        self.precision = np.linalg.inv(self.covariance)
        self.dimension, self.curvature = len(self.mean), np.diag(self.precision).copy()
        self.prior_mean, self.prior_precision = np.zeros(self.dimension), np.zeros(self.dimension)

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Energy, (n,) for theta (n, D)."""
        offset = theta - self.mean
        energy: Float64 = 0.5 * (offset * (offset @ self.precision)).sum(axis=1)
        return energy

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of the energy, (n, D)."""
        gradient: Float64 = (theta - self.mean) @ self.precision
        return gradient


class DoubleWell:
    """U = x^4 - 2 x^2 [Ma 2015, fig. 2 left]: modes at -1 and 1, with a barrier of 1 between them.

    By quadrature E x^2 is 0.832745; E x^4 = E x^2 + 1 / 4, because E x U' = 1.
    """

    dimension, n_data, curvature = 1, 1, np.array([8.0])  # the curvature at the modes
    prior_mean, prior_precision = np.zeros(1), np.zeros(1)
    square, fourth = 0.832745, 1.082745

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Energy, (n,) for theta (n, 1)."""
        energy: Float64 = (theta**4 - 2 * theta**2).sum(axis=1)
        return energy

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of the energy, (n, 1)."""
        return 4 * theta**3 - 4 * theta
