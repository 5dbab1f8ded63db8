"""Prior of what a row has besides theta: a noise scale, and parameters of the likelihood.

The coordinates of a row are in units of their prior sds, so that their prior is N(0, I), and 0 at
the values that rows share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np

from dsgmcmc.types import Float64, Int64


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


class Expansion(NamedTuple):
    """Log densities of n ratings of rows, and their derivatives.

    They are derivatives in the predictor of each rating, and in the m coordinates of each row.

    Attributes
    ----------
    log_density : (rows,) float64
        Sum over the ratings.
    slope, curvature : (rows, n) float64
        First and minus second derivatives in the predictors.
    crossed : (m, rows, n) float64
        Minus mixed second derivatives.
    own_slope : (rows, m) float64
        Sums over the ratings of first derivatives in the coordinates.
    own_curvature : (rows, m, m) float64
        Sums of minus second ones.
    """

    log_density: Float64
    slope: Float64
    curvature: Float64
    crossed: Float64
    own_slope: Float64
    own_curvature: Float64


@dataclass(frozen=True)
class OwnPrior:
    """Prior of the noise scales of rows, if they have any.

    Attributes
    ----------
    scale : (1,) or (0,) float64, or (rows, 1) or (rows, 0)
        Prior sd of u, where log s = f(u).
    bound : float
        Limit of |log s|.
    most : float or (rows,) float64
        Largest s, which is that of all u beyond it.
    """

    scale: Float64 = field(default_factory=lambda: np.zeros(0))
    bound: float = inf
    most: float | Float64 = inf

    @property
    def width(self) -> int:
        """Number of a row's coordinates."""
        return int(self.scale.shape[-1])

    def of_rows(self, chosen: Callable[[str], Float64]) -> Self:
        """Return a prior with arrays (rows, ...) by the names of the fields, but for `bound`."""
        arrays: dict[str, Any] = {
            of.name: chosen(of.name) for of in fields(self) if of.name != "bound"
        }
        return replace(self, **arrays)

    @classmethod
    def stacked(cls, priors: Sequence[Self]) -> Self:
        """Return the priors of rows that differ in theirs, one a row, as one."""
        return priors[0].of_rows(lambda name: np.array([getattr(of, name) for of in priors]))

    def select(self, positions: Int64) -> Self:
        """Return the prior of some rows of a stacked one."""
        return self.of_rows(lambda name: np.asarray(getattr(self, name))[positions])

    def at(self, z: Float64) -> OwnParameters:
        """Return what rows have at the coordinates z, (rows, width)."""
        scale = np.exp(log_scale(self.scale * z, self.bound)).prod(axis=1)
        if self.scale.shape[-1]:
            scale = np.minimum(scale, self.most)
        return OwnParameters(scale, None)


def log_scale(u: Float64, bound: float) -> Float64:
    """f(u), elementwise."""
    return np.asarray(bound * np.tanh(u / bound), np.float64)
