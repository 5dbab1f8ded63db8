"""Targets on a plain vector that several tests sample."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dsgmcmc.densities.density import ALL, Data, prior_energy
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.models.sums import SumDensity

#: Data and coefficients of `Logistic`.
N = 53
D = 3


class Logistic:
    """Coefficients of a logistic regression."""

    n_data = N
    dimension = D

    def __init__(self, dense: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.features = rng.normal(size=(N, D))
        self.labels = (rng.random(N) < 0.4).astype(float)
        self.curvature = 0.15 * (self.features**2).sum(axis=0)
        self.prior_mean = np.full(D, 0.5)
        self.prior_precision = np.array([1.0, 2.0, 3.0])
        if dense:
            root = rng.normal(size=(D, D))
            self.prior_precision = root @ root.T + np.eye(D)

    def energy(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Minus the log likelihood of some of the data."""
        eta = theta @ self.features[data].T
        return (np.logaddexp(0, eta) - self.labels[data] * eta).sum(axis=1)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Gradient of `energy`."""
        features = self.features[data]
        return (1 / (1 + np.exp(-theta @ features.T)) - self.labels[data]) @ features


class Slip(Logistic):
    """A density with one thing wrong."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__()
        vars(self).update(wrong)


class Plain(SumDensity):
    """A regression of which no more is known than its energies and gradients: neither slopes nor
    bounds.
    """

    def __init__(self, regression: Regression) -> None:
        self.regression = regression
        self.n_data = regression.n_data
        self.dimension = regression.dimension
        self.curvature = regression.curvature
        self.prior_mean = regression.prior_mean
        self.prior_precision = regression.prior_precision

    def energies(self, theta: np.ndarray, index: Data = ALL) -> np.ndarray:
        """Energy of every datum."""
        return self.regression.energies(theta, index)

    def gradients(self, theta: np.ndarray, index: Data = ALL) -> np.ndarray:
        """Gradients of `energies`."""
        return self.regression.gradients(theta, index)

    @property
    def smoothness(self) -> np.ndarray:
        """Lipschitz constants of `gradients`."""
        return self.regression.smoothness


class NoisyGaussian:
    """N(0, 1 / precision) in 20 dimensions, whose gradient has independent noise of variance V
    times the precision.

    V is that of all rows, or (n, 1). The data have the part 1 - `prior` of the precision, N(0, 1 /
    (prior * precision)) before them.
    """

    # so many that l, which bounds the coupling of two factors, is 1
    dimension = 20
    n_data = 4 * 10**8

    def __init__(self, precision: float, noise: float | np.ndarray, prior: float = 0.0) -> None:
        self.precision = precision
        self.sd = np.sqrt(noise * precision)
        self.curvature = np.full(self.dimension, (1 - prior) * precision)
        self.prior_mean = np.zeros(self.dimension)
        self.prior_precision = np.full(self.dimension, prior * precision)
        self.rng = np.random.default_rng(0)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Of the energy of a part of four."""
        noise = self.sd * self.rng.standard_normal(theta.shape) if np.any(self.sd) else 0.0
        return (self.curvature * theta + noise) / 4


class Normal:
    """N(mean, precision^-1) with exact gradients; the sampler is told `curvature` alone."""

    def __init__(
        self, mean: np.ndarray, precision: np.ndarray, curvature: np.ndarray, n_data: int = 1
    ) -> None:
        self.mean = np.asarray(mean)
        self.precision = np.asarray(precision)
        self.curvature = np.asarray(curvature)
        self.dimension = len(self.mean)
        self.n_data = n_data
        self.prior_mean = self.prior_precision = np.zeros(self.dimension)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Of the energy, whatever the data."""
        return (theta - self.mean) @ self.precision


def correlated(n: int, seed: int = 0, **prior: Any) -> Regression:
    """A logistic regression of n data with two correlated features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    return Regression(x, rng.random(n) < 1 / (1 + np.exp(-x @ [1.0, -0.5])), **prior)


def differences(
    function: Callable[[np.ndarray], Any], theta: np.ndarray, step: Any = 1e-5
) -> np.ndarray:
    """Central differences of a function of theta (..., D) by every element, along the last axis;
    steps may be (D,).
    """
    moves = np.diag(np.broadcast_to(step, theta.shape[-1:]))
    return np.stack(
        [(function(theta + h) - function(theta - h)) / (2 * h.sum()) for h in moves], axis=-1
    )


def quadrature(density: Any, *axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a posterior, on the grid of these axes."""
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    energy = [
        density.energy(part) + prior_energy(density, part) for part in np.array_split(points, 30)
    ]
    weight = np.exp(np.min(np.concatenate(energy)) - np.concatenate(energy))
    return weight @ points / weight.sum(), np.cov(points.T, aweights=weight, ddof=0)
