"""Regression: data depend on theta through linear predictors, U_i(theta) = u(x_i . theta, y_i).

A `Link` is the distribution of a response y given its linear predictor eta, defined by its energy
u(eta) = -log p(y | eta) and the derivatives of u. Its functions take (eta, y, shape), with arrays
that broadcast. They use only functions of NumPy, because compiled kernels contain their source and
call it with single numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import dense
from dsgmcmc.types import Float64

Term = Callable[[Any, Any, float], Any]


class Link(NamedTuple):
    """The distribution of a response.

    Attributes
    ----------
    name : str
    value, slope, curvature, third : callable
        u and its derivatives with respect to eta, ``f(eta, y, shape)``; functions defined by
        ``def``, whose only global name is ``np``.
    suprema : tuple of 2 floats
        Suprema of abs(u'') and abs(u''') over all eta and y.
    typical : float
        Approximate average of u''.
    shape : float
        Parameter of the distribution.
    """

    name: str
    value: Term
    slope: Term
    curvature: Term
    third: Term
    suprema: tuple[float, float]
    typical: float
    shape: float = 0.0


def logistic_value(eta: Float64, y: Float64, shape: float) -> Float64:
    """Bernoulli: log(1 + e^eta) - y eta."""
    return np.logaddexp(0.0, eta) - y * eta


def logistic_slope(eta: Float64, y: Float64, shape: float) -> Float64:
    """With p = 1 / (1 + e^-eta): p - y."""
    return 0.5 + 0.5 * np.tanh(0.5 * eta) - y


def logistic_curvature(eta: Float64, y: Float64, shape: float) -> Float64:
    """With p = 1 / (1 + e^-eta): p (1 - p)."""
    half = np.tanh(0.5 * eta)
    return 0.25 * (1.0 - half * half)


def logistic_third(eta: Float64, y: Float64, shape: float) -> Float64:
    """With p = 1 / (1 + e^-eta): p (1 - p) (1 - 2 p)."""
    half = np.tanh(0.5 * eta)
    return -0.25 * (1.0 - half * half) * half


def student_value(eta: Float64, y: Float64, shape: float) -> Float64:
    """Student's t with nu = shape degrees of freedom: (nu + 1) / 2 log(1 + (y - eta)^2 / nu)."""
    off = y - eta
    return 0.5 * (shape + 1.0) * np.log1p(off * off / shape)


def student_slope(eta: Float64, y: Float64, shape: float) -> Float64:
    """-(nu + 1) r / (nu + r^2), with r = y - eta."""
    off = y - eta
    return -(shape + 1.0) * off / (shape + off * off)


def student_curvature(eta: Float64, y: Float64, shape: float) -> Float64:
    """(nu + 1) (nu - r^2) / (nu + r^2)^2."""
    square = (y - eta) * (y - eta)
    return (shape + 1.0) * (shape - square) / ((shape + square) * (shape + square))


def student_third(eta: Float64, y: Float64, shape: float) -> Float64:
    """2 (nu + 1) r (3 nu - r^2) / (nu + r^2)^3."""
    off = y - eta
    total = shape + off * off
    return 2.0 * (shape + 1.0) * off * (3.0 * shape - off * off) / (total * total * total)


#: Logistic regression, for responses 0 or 1.
LOGISTIC = Link(
    name="logistic",
    value=logistic_value,
    slope=logistic_slope,
    curvature=logistic_curvature,
    third=logistic_third,
    suprema=(0.25, 1 / (6 * sqrt(3))),
    typical=0.15,
)


def student(nu: float) -> Link:
    """Return the link for Student's t errors: robust regression [Cornish 2019, G.2].

    The errors have nu degrees of freedom and scale 1.

    Raises
    ------
    InputError
        If nu is not positive.
    """
    if not nu > 0:
        raise InputError(f"student: degrees of freedom must be positive (found {nu!r})")
    largest_third = (nu + 1) * (3 + 2 * sqrt(2)) / (4 * nu**1.5)  # at r = (sqrt(2) - 1) sqrt(nu)
    return Link(
        name="student",
        value=student_value,
        slope=student_slope,
        curvature=student_curvature,
        third=student_third,
        suprema=((nu + 1) / nu, largest_third),
        typical=(nu + 1) / (nu + 3),
        shape=float(nu),
    )


class Regression(SumDensity):
    """Regression of N responses on D features with coefficients theta.

    It is logistic, robust, or has another link.

    The gradient of a datum is the slope u' times its features, so its stored form is one number.

    Parameters
    ----------
    features : (N, D) array
        Rows x_i.
    responses : (N,) array
        y_i; for `LOGISTIC` 0 or 1.
    link : Link
        Distribution of a response.
    prior_mean, prior_precision : float or array, optional
        Normal prior, (D,) and (D,) or (D, D), or one number for all elements.

    Attributes
    ----------
    features, responses : (N, D) and (N,) float64
        The data.
    squares : (N,) float64
        Squared lengths of the features.
    link : Link
        Distribution of a response.

    Raises
    ------
    InputError
        If the shapes do not fit each other, or a number is not finite.
    """

    def __init__(
        self,
        features: npt.ArrayLike,
        responses: npt.ArrayLike,
        link: Link = LOGISTIC,
        *,
        prior_mean: npt.ArrayLike = 0.0,
        prior_precision: npt.ArrayLike = 1.0,
    ) -> None:
        self.features = np.ascontiguousarray(features, np.float64)
        self.responses = np.ascontiguousarray(responses, np.float64)
        _check_data(self.features, self.responses)
        self.link = link
        self.n_data, self.dimension = self.features.shape
        self.squares = (self.features**2).sum(axis=1)
        self.curvature = link.typical * (self.features**2).sum(axis=0)
        shape = (self.dimension,)
        self.prior_mean = np.broadcast_to(np.asarray(prior_mean, np.float64), shape).copy()
        self.prior_precision = np.asarray(prior_precision, np.float64)
        if self.prior_precision.ndim != 2:
            self.prior_precision = np.broadcast_to(self.prior_precision, shape).copy()

    @override
    def energies(self, theta: Float64, index: Data = ALL) -> Float64:
        return self._evaluate(self.link.value, theta, index)

    @override
    def slopes(self, theta: Float64, index: Data = ALL) -> Float64:
        """`gradients` in stored form: the slope u' of every datum, (n, S, 1)."""
        return self._evaluate(self.link.slope, theta, index)[:, :, None]

    @override
    def spread(self, slopes: Float64, index: Data = ALL) -> Float64:
        return slopes * self.features[index]

    @override
    def total(self, slopes: Float64) -> Float64:
        """Sum of stored gradients (n, N, 1), (n, D), without computing single gradients."""
        return slopes[:, :, 0] @ self.features

    @override
    def lengths(self, slopes: Float64, index: Data = ALL) -> Float64:
        return np.abs(slopes[:, :, 0]) * np.sqrt(self.squares[index])

    @override
    def stiffness(self, theta: Float64, index: Data = ALL) -> Float64:
        """Lipschitz constants of the gradients of U_i near theta, (n, S): abs(u'') |x_i|^2."""
        return np.abs(self.curvatures(theta, index)) * self.squares[index]

    def curvatures(self, theta: Float64, index: Data = ALL) -> Float64:
        """Curvature u'' of each of S data, (n, S).

        The matrix of second derivatives of U_i is u'' x_i x_i^T.
        """
        return self._evaluate(self.link.curvature, theta, index)

    def _evaluate(self, function: Term, theta: Float64, index: Data) -> Float64:
        """Evaluate a function of the link for each of S data, (n, S)."""
        return function(theta @ self.features[index].T, self.responses[index], self.link.shape)

    @override
    def gradients(self, theta: Float64, index: Data = ALL) -> Float64:
        return self.spread(self.slopes(theta, index), index)

    @override
    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D), without computing single gradients."""
        return self.slopes(theta, data)[:, :, 0] @ self.features[data]

    def hessian(self, theta: Float64) -> Float64:
        """Second derivatives of the energy of all data and the prior, (D, D), at one theta (D,)."""
        weighted = self.curvatures(theta[None])[0][:, None] * self.features
        return self.features.T @ weighted + dense(self.prior_precision)

    @property
    @override
    def smoothness(self) -> Float64:
        """Lipschitz constants, (N,): sup abs(u'') |x_i|^2."""
        return self.link.suprema[0] * self.squares

    @override
    def bounds(self, order: int) -> Float64:
        """Bounds of derivatives, (N,) [Cornish 2019, G.1, G.2].

        They are sup abs(u^(order)) max_j abs(x_ij)^order.
        """
        return self.link.suprema[order - 2] * np.abs(self.features).max(axis=1) ** order


def _check_data(features: Float64, responses: Float64) -> None:
    """Raise `InputError` unless the data of a regression are finite, (N, D) and (N,)."""
    if features.ndim != 2 or responses.shape != features.shape[:1] or not features.size:
        raise InputError(
            "features must be (N, D) and responses (N,):"
            f" found {features.shape} and {responses.shape}"
        )
    if not (np.isfinite(features).all() and np.isfinite(responses).all()):
        raise InputError("features and responses must be finite")
