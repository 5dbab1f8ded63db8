"""What a user says of a target on a plain vector: its energy and its gradient, of any of the data."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from dsgmcmc.densities.targets.autodiff import JaxDensity, TorchDensity

#: Some of the data: a slice, or their numbers.
Data = slice | npt.NDArray[np.integer[Any]]
ALL = slice(None)


class AnyDensity(Protocol):
    """A posterior of a vector theta of length D, with a Gaussian prior.

    Attributes
    ----------
    dimension : int
        D.
    n_data : int
        Number N of data.
    curvature : (D,) float64
        Typical second derivative of the likelihood's energy, the unit of steps. A run of a density without one finds it
        (`dsgmcmc.densities.targets.probe`).
    prior_mean, prior_precision : (D,) and (D,) or (D, D) float64
        Gaussian prior; precision 0 where there is none or the likelihood has it.
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


class Density(ABC):
    """Base of a density, for who wants one: what has the members of `AnyDensity` will do. Makes one of a log law."""

    dimension: int
    n_data: int
    curvature: Float64
    prior_mean: Float64
    prior_precision: Float64

    @abstractmethod
    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `AnyDensity.energy`."""

    @abstractmethod
    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `AnyDensity.gradient`."""

    @staticmethod
    def from_jax(
        log_likelihood: Callable[[Any, Any], Any],
        data: Any,
        params: Any,
        *,
        log_prior: Callable[[Any], Any] | None = None,
        dtype: Literal["float32", "float64"] = "float64",
    ) -> JaxDensity:
        """Make a density of a log likelihood that JAX can differentiate.

        Parameters
        ----------
        log_likelihood : callable
            ``f(params, data)`` of some of the data: their sum, or an array of which the sum is taken. It is compiled
            once for all data, and once for each size of a part, of which there are two at most.
        data : tree of arrays
            One row a datum in each; None if there are none.
        params : tree of arrays
            Parameters, about which chains start. Draws come back in this form: ``density.tree(theta)``.
        log_prior : callable, optional
            ``f(params)``; flat if not given. For a normal prior it may be left to `prior_mean` and `prior_precision`.
        dtype : {"float64", "float32"}
            In which it is evaluated, whatever JAX's own default is.

        Raises
        ------
        InputError
            If JAX is not installed, or data have different numbers of rows.
        """
        from dsgmcmc.densities.targets.autodiff import JaxDensity

        return JaxDensity(log_likelihood, data, params, log_prior, dtype)

    @staticmethod
    def from_torch(
        log_likelihood: Callable[[Any, Any], Any],
        data: Any,
        params: Any,
        *,
        log_prior: Callable[[Any], Any] | None = None,
        dtype: Literal["float32", "float64"] = "float64",
    ) -> TorchDensity:
        """Make a density of a log likelihood that PyTorch can differentiate, by `torch.func`.

        Parameters
        ----------
        log_likelihood : callable
            ``f(params, data)`` of some of the data, with `params` a dict of tensors; of a module
            ``torch.func.functional_call(module, params, x)``.
        data : tensor, tuple of tensors, or None
            One row a datum in each.
        params : dict of tensors, or torch.nn.Module
            Parameters by their names, about which chains start. Draws come back so: ``density.named(theta)``.
        log_prior, dtype
            As of `from_jax`.

        Raises
        ------
        InputError
            If PyTorch is not installed, or data have different numbers of rows.
        """
        from dsgmcmc.densities.targets.autodiff import TorchDensity

        return TorchDensity(log_likelihood, data, params, log_prior, dtype)


D = TypeVar("D", bound=AnyDensity)


@runtime_checkable
class Riemannian(AnyDensity, Protocol):
    """A density that brings a metric G(theta), for samplers that move in it."""

    def metric(self, theta: Float64) -> tuple[Float64, Float64]:
        """Root of the inverse metric, and its divergence.

        Parameters
        ----------
        theta : (n, D) float64
            Where.

        Returns
        -------
        root : (n, D) or (n, D, D) float64
            S with S S^T = G^-1: its diagonal, if it has nothing else, or all of it.
        divergence : (n, D) float64
            sum_j d S_ji / d theta_j.
        """


def prior_energy(density: AnyDensity, theta: Float64) -> Float64:
    """Minus the log density of the prior up to a constant, (n,) for theta (n, D)."""
    offset, precision = theta - density.prior_mean, density.prior_precision
    pull = offset @ precision if precision.ndim == 2 else offset * precision
    found: Float64 = 0.5 * (offset * pull).sum(axis=1)
    return found


def prior_gradient(density: AnyDensity, theta: Float64) -> Float64:
    """Gradient of `prior_energy`, (n, D)."""
    offset, precision = theta - density.prior_mean, density.prior_precision
    found: Float64 = offset @ precision if precision.ndim == 2 else offset * precision
    return found


def posterior_gradient(density: AnyDensity, theta: Float64) -> Float64:
    """Gradient of the energy of all data and of the prior's, (n, D)."""
    return density.gradient(theta) + prior_gradient(density, theta)


def check_attributes(density: AnyDensity) -> None:
    """Raise `InputError` unless what a density says of itself has the shapes that are asked for."""
    kind = type(density).__name__
    for name in ("dimension", "n_data"):
        found = getattr(density, name, None)
        if not isinstance(found, int | np.integer) or found < 1:
            raise InputError(f"{kind}.{name} must be a positive integer: found {found!r}")
    size = density.dimension
    vector, matrix = (size,), (size, size)
    for name, shapes in (("curvature", [vector]), ("prior_mean", [vector]), ("prior_precision", [vector, matrix])):
        found = getattr(density, name, None)
        wanted = " or ".join(map(str, shapes))
        if not isinstance(found, np.ndarray) or found.shape not in shapes or found.dtype.kind not in "fiu":
            said = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else repr(found)[:80]
            raise InputError(f"{kind}.{name} must be an array of numbers, {wanted}: found {said}")
        if not np.isfinite(found).all():
            raise InputError(f"{kind}.{name} must be finite: found {found}")


def check_energy(density: AnyDensity, points: Float64) -> None:
    """Raise `InputError` if an energy at one of these points (m, D) is no number, or NaN at all of them."""
    kind = type(density).__name__
    for point in points:
        found = np.asarray(density.energy(point[None]))
        if found.shape not in ((1,), ()):
            raise InputError(
                f"{kind}.energy must be (n,) for theta (n, D): found {found.shape} for {point[None].shape}"
            )
        if not np.isnan(found).all():
            return
    raise InputError(f"{kind}.energy is NaN at {len(points)} points such as chains start from, one of them {points[0]}")


def check_gradient(density: AnyDensity, theta: Float64, found: Any) -> None:
    """Raise `InputError` if what was found as the gradient of `energy` at theta (n, D) has another shape.

    For one row (D,) will do, too.
    """
    if getattr(found, "shape", None) == theta.shape:
        return
    if np.shape(found) != theta.shape and not (len(theta) == 1 and np.shape(found) == theta.shape[1:]):
        kind = type(density).__name__
        raise InputError(f"{kind}.gradient must have the shape of theta, {theta.shape}: found {np.shape(found)}")


def fingerprint(density: AnyDensity) -> str:
    """SHA-256 of a density's class and of the numbers, texts and arrays that it keeps: which target a run is of.

    What else it keeps, such as lists, and data of its module, are not seen.
    """
    kind = type(density)
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\n".encode())
    content = {name: value for each in reversed(kind.__mro__) for name, value in vars(each).items()} | vars(density)
    for name, value in sorted(content.items()):
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            digest.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
            digest.update(value.tobytes())
        elif isinstance(value, bool | int | float | str) and not name.startswith("__"):
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()
