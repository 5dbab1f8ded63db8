"""Weighted means and standard deviations of arrays over draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Float64


class Estimates(NamedTuple):
    """Posterior means and standard deviations, float64 arrays of one shape."""

    mean: Float64
    sd: Float64


class Moments:
    """Weighted moments of arrays of one shape.

    Differences from the first array are small, so that variances keep their digits.

    Parameters
    ----------
    start : float64 array
        The first array, which is added like the others.
    """

    def __init__(self, start: Float64) -> None:
        self._start = start
        self._mean = np.zeros_like(start)
        self._square = np.zeros_like(start)

    def add(self, values: Float64, weight: float, variance: Float64 | float = 0.0) -> None:
        """Add an array with its weight; all weights sum to 1.

        If its elements are means of distributions, `variance` has their variances.
        """
        difference = values - self._start
        self._mean += weight * difference
        self._square += weight * (np.square(difference) + variance)

    def estimates(self) -> Estimates:
        """Return the moments of all arrays."""
        variance = np.maximum(self._square - np.square(self._mean), 0.0)
        return Estimates(self._start + self._mean, np.sqrt(variance))
