"""Targets on a plain vector that several tests sample."""

from __future__ import annotations

import numpy as np

from dsgmcmc.targets.density import ALL, Data

#: Data and coefficients of `Logistic`.
N, D = 53, 3


class Logistic:
    """Coefficients of a logistic regression."""

    n_data, dimension = N, D

    def __init__(self, dense: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.features = rng.normal(size=(N, D))
        self.labels = (rng.random(N) < 0.4).astype(float)
        self.curvature = 0.15 * (self.features**2).sum(axis=0)
        self.prior_mean, self.prior_precision = np.full(D, 0.5), np.array([1.0, 2.0, 3.0])
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
