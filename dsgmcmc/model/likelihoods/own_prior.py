"""Prior of what a row has besides theta: a noise scale, and parameters of the likelihood.

The coordinates of a row are in units of their prior sds, so that their prior is N(0, I), and 0 at
the values that rows share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Float64


class OwnParameters(NamedTuple):
    """What rows have besides theta.

    Attributes
    ----------
    scale : (rows,) float64
        1 for rows that have no noise scale.
    parameters : (rows, m) float64 or None
        In place of the likelihood's shared parameters (`Observation.parameters_of`); None if rows
        have none of their own.
    """

    scale: Float64
    parameters: Float64 | None


@dataclass(frozen=True)
class OwnPrior:
    """Prior of the noise scales of rows, if they have any.

    Attributes
    ----------
    scale : (1,) or (0,) float64
        Prior sd of u, where log s = f(u).
    bound : float
        Limit of |log s|.
    most : float
        Largest s, which is that of all u beyond it.
    """

    scale: Float64 = field(default_factory=lambda: np.zeros(0))
    bound: float = inf
    most: float = inf

    @property
    def width(self) -> int:
        """Number of a row's coordinates."""
        return len(self.scale)

    def at(self, z: Float64) -> OwnParameters:
        """Return what rows have at the coordinates z, (rows, width)."""
        scale = np.exp(log_scale(self.scale * z, self.bound)).prod(axis=1)
        if len(self.scale):
            scale = np.minimum(scale, self.most)
        return OwnParameters(scale, None)


def log_scale(u: Float64, bound: float) -> Float64:
    """f(u), elementwise."""
    return np.asarray(bound * np.tanh(u / bound), np.float64)
