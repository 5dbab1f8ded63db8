"""Running mean and variance of arrays over the draws of a chain: West's weighted form of Welford's recursion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.formula import Batch, Formula
from dsgmcmc.targets.base import DrawInfo
from dsgmcmc.types import Array

_COUNT = Formula(
    """
delta = x - mean
mean = mean + share * delta
m2 = m2 + weight * delta * (x - mean)
"""
)


@dataclass
class RunningMoments:
    """Weighted mean and weighted sum of squared deviations, elementwise, (n, D) each."""

    mean: Array
    m2: Array

    def __post_init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._batch = Batch([self._arrays])

    @classmethod
    def zeros(cls, rows: int, width: int, dtype: npt.DTypeLike) -> RunningMoments:
        """Return the moments of no draws."""
        return cls(*(np.zeros((rows, width), dtype) for _ in range(2)))

    def count(self, x: Array, draw: DrawInfo) -> None:
        """Add a draw."""
        self._arrays |= {"x": x, "mean": self.mean, "m2": self.m2}
        _COUNT.apply(self._batch, {"share": draw.share, "weight": draw.weight})
