"""The range that ratings have by their meaning, to which predictions are clipped."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from dsgmcmc.types import Array


class Limits(NamedTuple):
    """Lowest and highest possible rating; infinite if there is none."""

    low: float = -inf
    high: float = inf

    def clip(self, predictions: Array) -> Array:
        """Return predictions within the limits."""
        return np.clip(predictions, self.low, self.high)


#: Limits of measurements.
UNLIMITED = Limits()
