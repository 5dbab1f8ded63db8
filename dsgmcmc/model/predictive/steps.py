"""Functions of the predictor that rise in steps."""

from __future__ import annotations

from typing import NamedTuple

from dsgmcmc.types import Array, Float64


class LogisticSteps(NamedTuple):
    """Sum of logistic steps: start + sum_r height_r F(s_i s_j (eta - position_r)).

    F is the logistic function; s_i, s_j are the noise scales of user and item.

    Attributes
    ----------
    heights : (r,) float64
    start : float
        Value before the first step.
    chosen : slice
        Which of the likelihood's parameters are positions.
    """

    heights: Float64
    start: float = 0.0
    chosen: slice = slice(None)

    def positions(self, parameters: Array) -> Array:
        """Return the positions of the steps, (..., r), given the likelihood's parameters."""
        return parameters[..., self.chosen]
