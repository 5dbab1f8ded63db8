"""Mixtures of distributions of counts: whole numbers from 0 on."""

from __future__ import annotations

import numpy as np

from dsgmcmc.model.predictive.mixture import Mixture
from dsgmcmc.types import Array, Float64


class CountMixture(Mixture):
    """Mixtures of distributions of counts; see `Mixture`."""

    whole = True

    def at_least(self, bound: float) -> Float64:
        """See `Predictive.at_least`: no count is rounded to another."""
        return 1.0 - self.below(bound)

    def crps(self, x: Array) -> Float64:
        """See `Predictive.crps`: the sum over counts k of (F(k) - 1{x <= k})^2."""
        last = np.maximum(self.quantile(0.9999), x)
        total = np.zeros(len(x))
        for k in range(int(last.max()) + 1):
            total += np.where(last >= k, np.square(self.cdf(float(k)) - (x <= k)), 0.0)
        return total
