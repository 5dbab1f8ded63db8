"""Targets whose moments are known: where to try a sampler first.

They have neither data (as good as one datum) nor prior: `energy` is minus the log density up to a constant, and `data`
is not looked at.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.densities.targets.density import ALL, Data
from dsgmcmc.types import Float64


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
        """(n,) for theta (n, D)."""
        offset = theta - self.mean
        found: Float64 = 0.5 * (offset * (offset @ self.precision)).sum(axis=1)
        return found

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Of the energy, (n, D)."""
        found: Float64 = (theta - self.mean) @ self.precision
        return found


class DoubleWell:
    """U = x^4 - 2 x^2 [Ma 2015, fig. 2 left]: modes at -1 and 1, a barrier of 1 between them.

    By quadrature E x^2 is 0.832745; E x^4 = E x^2 + 1 / 4, because E x U' = 1.
    """

    dimension, n_data, curvature = 1, 1, np.array([8.0])  # that at the modes
    prior_mean, prior_precision = np.zeros(1), np.zeros(1)
    square, fourth = 0.832745, 1.082745

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """(n,) for theta (n, 1)."""
        found: Float64 = (theta**4 - 2 * theta**2).sum(axis=1)
        return found

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Of the energy, (n, 1)."""
        return 4 * theta**3 - 4 * theta


class Banana:
    """U = x1^4 / 10 + (4 (x2 + 1.2) - x1^2)^2 / 2 [Ma 2015, fig. 2 right]: a ridge along a parabola.

    x1 has the law exp(-x1^4 / 10), and given it x2 is N(x1^2 / 4 - 1.2, 1 / 16). So E x1^4 = 5 / 2,
    E x1^2 = sqrt(10) Gamma(3/4) / Gamma(1/4), E x2 = E x1^2 / 4 - 1.2 and Var x2 = Var x1^2 / 16 + 1 / 16.
    """

    dimension, n_data, curvature = 2, 1, np.array([5.0, 16.0])
    prior_mean, prior_precision = np.zeros(2), np.zeros(2)
    square, fourth = 1.068815, 2.5
    mean, variance = -0.932796, 0.147352  # of x2

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """(n,) for theta (n, 2)."""
        x1, x2 = theta.T
        found: Float64 = x1**4 / 10 + (4 * (x2 + 1.2) - x1**2) ** 2 / 2
        return found

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Of the energy, (n, 2)."""
        x1, x2 = theta.T
        off = 4 * (x2 + 1.2) - x1**2
        return np.column_stack([0.4 * x1**3 - 2 * x1 * off, 4 * off])
