"""Predictive distributions of the test ratings, as they are scored: by mean and variance, or by levels.

Ratings of levels, and counts, have probabilities. Their PIT is not one number but uniform between F(x-) and F(x), the
distribution function below and at the rating; its histogram and the shares inside central intervals are taken in
expectation over that [Czado 2009], which is what a randomised PIT would give on the average, without its noise and its
seed.

[Czado 2009] Predictive model assessment for count data, Biometrics 65.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from dsgmcmc.diagnostics import scores
from dsgmcmc.model.likelihoods import Law, Likelihood
from dsgmcmc.model.likelihoods.levels import SMALLEST, log_probability, nearest_level
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.types import Float64

BINS = 20


class Forecast(ABC):
    """Predictive distributions of ratings."""

    @abstractmethod
    def at(self, inside: npt.NDArray[np.bool_]) -> Self:
        """Of some of the ratings."""

    @abstractmethod
    def coverage(self, levels: Sequence[float] = scores.LEVELS) -> dict[float, float]:
        """Share of ratings inside their central intervals, by their probability."""

    @abstractmethod
    def pit(self) -> list[float]:
        """Counts of the probability integral transform in `BINS` equal bins: flat if calibrated."""

    @abstractmethod
    def crps(self) -> float:
        """Mean continuous ranked probability score, in units of the ratings."""

    @abstractmethod
    def log_density(self) -> float | None:
        """Mean log density of the ratings; None where they have levels."""

    @abstractmethod
    def log_probability(self) -> float | None:
        """Mean log probability of the ratings' levels; None where they have none."""


@dataclass(frozen=True)
class MomentForecast(Forecast):
    """Distributions that their mean and variance tell.

    Attributes
    ----------
    rating, mean, variance : (q,) float64
    law : type of Likelihood
    levels : (R,) float64 or None
        What ratings can be, where that is known: the probability of a level is that of all that is rounded to it.
    """

    rating: Float64
    mean: Float64
    variance: Float64
    law: type[Likelihood]
    levels: Float64 | None

    def at(self, inside: npt.NDArray[np.bool_]) -> Self:
        """See `Forecast.at`."""
        return type(self)(self.rating[inside], self.mean[inside], self.variance[inside], self.law, self.levels)

    def coverage(self, levels: Sequence[float] = scores.LEVELS) -> dict[float, float]:
        """See `Forecast.coverage`."""
        return scores.coverage(self.rating, self.mean, self.variance, self.law, levels)

    def pit(self) -> list[float]:
        """See `Forecast.pit`."""
        return list(scores.pit(self.rating, self.mean, self.variance, self.law, BINS))

    def crps(self) -> float:
        """See `Forecast.crps`."""
        return scores.crps(self.rating, self.mean, self.variance)

    def log_density(self) -> float | None:
        """See `Forecast.log_density`."""
        return scores.log_predictive_density(self.rating, self.mean, self.variance, self.law)

    def log_probability(self) -> float | None:
        """See `Forecast.log_probability`."""
        if self.levels is None or len(self.levels) < 2:
            return None
        ends = np.concatenate([[-np.inf], (self.levels[1:] + self.levels[:-1]) / 2, [np.inf]])
        level = nearest_level(self.rating, self.levels)
        below, up_to = (self.law.cdf(ends[level + k], self.mean, self.variance) for k in (0, 1))
        return float(np.log(np.maximum(up_to - below, SMALLEST)).mean())


class DiscreteForecast(Forecast):
    """Distributions of ratings that are not all different: of levels, or of counts."""

    @abstractmethod
    def _ends(self) -> tuple[Float64, Float64]:
        """F(x-) and F(x) of every rating."""

    def _share(self, low: float, high: float) -> Float64:
        """Part of each rating's PIT between two numbers."""
        below, up_to = self._ends()
        common = np.minimum(up_to, high) - np.maximum(below, low)
        found: Float64 = np.maximum(common, 0.0) / np.maximum(up_to - below, SMALLEST)
        return found

    def coverage(self, levels: Sequence[float] = scores.LEVELS) -> dict[float, float]:
        """See `Forecast.coverage`."""
        return {level: float(self._share((1 - level) / 2, (1 + level) / 2).mean()) for level in levels}

    def pit(self) -> list[float]:
        """See `Forecast.pit`."""
        edges = np.linspace(0, 1, BINS + 1)
        return [float(self._share(*edges[k : k + 2]).sum()) for k in range(BINS)]


@dataclass(frozen=True)
class CountForecast(DiscreteForecast, MomentForecast):
    """Distributions of counts, which their mean and variance tell."""

    def _ends(self) -> tuple[Float64, Float64]:
        """See `DiscreteForecast`."""
        below, up_to = (self.law.cdf(self.rating - k, self.mean, self.variance) for k in (1.0, 0.0))
        return below, up_to

    def crps(self) -> float:
        """See `Forecast.crps`: the sum over counts k of (F(k) - 1{x <= k})^2."""
        last = np.maximum(self.law.quantile(0.9999, self.mean, self.variance), self.rating)
        total = np.zeros(len(self.rating))
        for k in range(int(last.max()) + 1):
            on = last >= k
            up_to = self.law.cdf(np.full(int(on.sum()), float(k)), self.mean[on], self.variance[on])
            total[on] += np.square(up_to - (self.rating[on] <= k))
        return float(total.mean())


@dataclass(frozen=True)
class LevelForecast(DiscreteForecast):
    """Distributions over ordered levels.

    Attributes
    ----------
    level : (q,) int64
        Number of the level of each rating.
    probability : (q, R) float64
    levels : (R,) float64
    """

    level: npt.NDArray[np.int64]
    probability: Float64
    levels: Float64

    def at(self, inside: npt.NDArray[np.bool_]) -> Self:
        """See `Forecast.at`."""
        return type(self)(self.level[inside], self.probability[inside], self.levels)

    def _ends(self) -> tuple[Float64, Float64]:
        """See `DiscreteForecast`."""
        up_to = np.minimum(np.cumsum(self.probability, axis=1), 1.0)
        up_to[:, -1] = 1.0
        rows = np.arange(len(self.level))
        return np.where(self.level > 0, up_to[rows, self.level - 1], 0.0), up_to[rows, self.level]

    def crps(self) -> float:
        """See `Forecast.crps`: the sum over the gaps between levels of their width times (F - 1{x <= v})^2."""
        up_to = np.cumsum(self.probability, axis=1)[:, :-1]
        at_most = self.level[:, None] <= np.arange(len(self.levels) - 1)
        return float((np.square(up_to - at_most) @ np.diff(self.levels)).mean())

    def log_density(self) -> float | None:
        """See `Forecast.log_density`."""
        return None

    def log_probability(self) -> float | None:
        """See `Forecast.log_probability`."""
        return float(log_probability(self.probability, self.level).mean())


def forecast_of(test: TestPredictions, law: type[Law], levels: Float64 | None) -> Forecast:
    """Predictive distributions of the test ratings.

    Parameters
    ----------
    test : TestPredictions
    law : type of Law
    levels : (R,) float64 or None
        What ratings can be, where that is known.
    """
    if test.probability is not None:
        assert levels is not None
        return LevelForecast(nearest_level(test.rating, levels), test.probability, levels)
    assert issubclass(law, Likelihood)
    kind = CountForecast if law.of_counts else MomentForecast
    return kind(test.rating, test.mean, test.variance + test.noise_variance, law, levels)
