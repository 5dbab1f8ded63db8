"""Laws of a response y given its linear predictor eta, by their energy u(eta) = -log p(y | eta) and its derivatives.

Every function takes (eta, y, shape), with arrays that broadcast, and is written in NumPy's functions alone: compiled
kernels take its source and call it with numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError

Term = Callable[[Any, Any, float], Any]


class Link(NamedTuple):
    """The law of a response.

    Attributes
    ----------
    name : str
        What it is called.
    value, slope, curvature, third : callable
        u and its derivatives by eta, ``f(eta, y, shape)``; functions defined by ``def``, without names of a module but
        ``np``.
    suprema : tuple of 3 floats
        Of abs(u'), abs(u'') and abs(u''') over all eta and y.
    typical : float
        u'' on average, about.
    shape : float
        Parameter of the law.
    """

    name: str
    value: Term
    slope: Term
    curvature: Term
    third: Term
    suprema: tuple[float, float, float]
    typical: float
    shape: float = 0.0


def logistic_value(eta: Any, y: Any, shape: float) -> Any:
    """Bernoulli: log(1 + e^eta) - y eta."""
    return np.logaddexp(0.0, eta) - y * eta


def logistic_slope(eta: Any, y: Any, shape: float) -> Any:
    """With p = 1 / (1 + e^-eta): p - y."""
    return 0.5 + 0.5 * np.tanh(0.5 * eta) - y


def logistic_curvature(eta: Any, y: Any, shape: float) -> Any:
    """With p = 1 / (1 + e^-eta): p (1 - p)."""
    half = np.tanh(0.5 * eta)
    return 0.25 * (1.0 - half * half)


def logistic_third(eta: Any, y: Any, shape: float) -> Any:
    """With p = 1 / (1 + e^-eta): p (1 - p) (1 - 2 p)."""
    half = np.tanh(0.5 * eta)
    return -0.25 * (1.0 - half * half) * half


def student_value(eta: Any, y: Any, shape: float) -> Any:
    """Student's t with nu = shape degrees of freedom: (nu + 1) / 2 log(1 + (y - eta)^2 / nu)."""
    off = y - eta
    return 0.5 * (shape + 1.0) * np.log1p(off * off / shape)


def student_slope(eta: Any, y: Any, shape: float) -> Any:
    """-(nu + 1) r / (nu + r^2), with r = y - eta."""
    off = y - eta
    return -(shape + 1.0) * off / (shape + off * off)


def student_curvature(eta: Any, y: Any, shape: float) -> Any:
    """(nu + 1) (nu - r^2) / (nu + r^2)^2."""
    square = (y - eta) * (y - eta)
    return (shape + 1.0) * (shape - square) / ((shape + square) * (shape + square))


def student_third(eta: Any, y: Any, shape: float) -> Any:
    """2 (nu + 1) r (3 nu - r^2) / (nu + r^2)^3."""
    off = y - eta
    total = shape + off * off
    return 2.0 * (shape + 1.0) * off * (3.0 * shape - off * off) / (total * total * total)


def normal_value(eta: Any, y: Any, shape: float) -> Any:
    """Normal with precision shape: shape (y - eta)^2 / 2."""
    off = y - eta
    return 0.5 * shape * off * off


def normal_slope(eta: Any, y: Any, shape: float) -> Any:
    """-shape (y - eta)."""
    return shape * (eta - y)


def normal_curvature(eta: Any, y: Any, shape: float) -> Any:
    """The precision, everywhere."""
    return shape + 0.0 * (eta - y)


def normal_third(eta: Any, y: Any, shape: float) -> Any:
    """Nothing: 0."""
    return 0.0 * (eta - y)


#: Responses are 0 or 1.
LOGISTIC = Link(
    "logistic",
    logistic_value,
    logistic_slope,
    logistic_curvature,
    logistic_third,
    suprema=(1.0, 0.25, 1 / (6 * sqrt(3))),
    typical=0.15,
)


def student(nu: float) -> Link:
    """Robust regression: errors of Student's t law with nu degrees of freedom and scale 1 [Cornish 2019, G.2].

    Raises
    ------
    InputError
        If nu is not positive.
    """
    if not nu > 0:
        raise InputError(f"student: degrees of freedom must be positive (found {nu!r})")
    third = (nu + 1) * (3 + 2 * sqrt(2)) / (4 * nu**1.5)  # at r = (sqrt(2) - 1) sqrt(nu)
    suprema = ((nu + 1) / (2 * sqrt(nu)), (nu + 1) / nu, third)
    functions = (student_value, student_slope, student_curvature, student_third)
    return Link("student", *functions, suprema, typical=(nu + 1) / (nu + 3), shape=float(nu))


def normal(precision: float = 1.0) -> Link:
    """Linear regression: normal errors.

    Raises
    ------
    InputError
        If the precision is not positive.
    """
    if not precision > 0:
        raise InputError(f"normal: the precision must be positive (found {precision!r})")
    functions = (normal_value, normal_slope, normal_curvature, normal_third)
    return Link("normal", *functions, (inf, precision, 0.0), typical=precision, shape=float(precision))
