r"""The scale of ratings: a change of variables beside the law of measurements (setting ``scale``).

With ``scale=log`` a likelihood models y = log x of positive ratings x. Ratings enter through a view
of their file (`dsgmcmc.model.transform`), and predictive distributions leave through `Exponential`.
With F and f the distribution function and the density of y,

    P(X <= x) = F(log x),    quantile_p(X) = exp(quantile_p(Y)),    density(x) = f(log x) / x

With ``scale=log1p``, y = log(x + 1). A count k is an x that was rounded; x below 1/2 count as 0:

    P(X <= k) = F(log(k + 3/2)),    quantile_p(X) = max(0, ceil(exp(quantile_p(Y)) - 3/2))

With the mean m and the variance s^2 of y (`docs/model.md#means-of-amounts` says why),

    mean = exp(m + s^2 / 2),    sd = mean sqrt(exp(s^2) - 1)

less 1 for counts, but at least 0. Numbers above exp(88), near the largest of float32, become it.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.parts.base import ModelFacts
from dsgmcmc.model.predictive.base import SMALLEST, Moments, Prediction, Predictive, PredictorDraws
from dsgmcmc.model.transform import LARGEST, Logarithm, Scale, exponential
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SPLITS
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float64


@cache
def on_scale(law: type[Law], scale: Scale) -> type[Law]:
    """Return the law of ratings whose values on a scale have the law `law`."""
    if scale == "identity":
        return law
    shift = 0.0
    if scale == "log1p":
        shift = 1.0
    attributes: dict[str, Any] = {
        "law": law,
        "transform": Logarithm(shift, law.exponential_has_mean),
        "__module__": law.__module__,
    }
    return type(law.__name__, (OnLogarithms, law), attributes)


class OnLogarithms(Law):
    """Ratings whose logarithms have the law `law`; `on_scale` makes a class of both."""

    law: ClassVar[type[Law]]
    transform: ClassVar[Logarithm]

    @classmethod
    @override
    def check_ratings(cls, settings: Any, model: ModelFacts, ratings: Ratings) -> None:
        cls.law.check_ratings(settings, model, ratings)
        if cls.transform.shift and ratings.has_bounds:
            raise InputError(
                f"{ratings.path}: {named('scale')} log1p is for counts, which are exact, and some"
                f" ratings are bounds: use {named('scale')} log, or leave it out"
            )
        excluded = 0
        for split in SPLITS:
            for values in ratings.values(split):
                excluded += int(cls.transform.excluded(values).sum())
        if not excluded:
            return
        advice = f"leave out {named('scale')}, or prepare the ratings without them"
        if not cls.transform.shift:
            advice += f"; counts with zeros suit {named('scale')} log1p, and without it predictions"
            advice += " of amounts with zeros end at 0"
        raise InputError(
            f"{ratings.path}: {excluded:,} of {ratings.nnz + ratings.nnz_test:,} ratings are not"
            f" {cls.transform.possible}: {advice}"
        )

    @classmethod
    @override
    def check_new(cls, values: Array, minimum: float) -> None:
        excluded = values[cls.transform.excluded(values)]
        if len(excluded):
            raise InputError(
                f"a rating of {excluded[0]:g}: the run models logarithms, so ratings must be"
                f" {cls.transform.possible}"
            )
        cls.law.check_new(values, minimum)

    # ------------------------------------------------------------------ new ratings

    @classmethod
    @override
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        return Exponential(cls.law.predictive(draws, centre), cls.transform, levels)

    @classmethod
    @override
    def quantiles_within(
        cls,
        p: Float64,
        draws: PredictorDraws,
        bounds: tuple[Float64, Float64],
        centre: float = 0.0,
    ) -> Float64:
        lower, upper = map(cls.transform.scaled_bounds, bounds)
        logs = cls.law.quantiles_within(p, draws, (lower, upper), centre)
        return np.asarray(exponential(logs, cls.transform.shift))

    @classmethod
    @override
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior distributions of the median ratings."""
        return Exponential(cls.law.expectation(draws, centre), cls.transform, noise=False)

    @classmethod
    @override
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        logs = cls.law.predictive_of_moments(moments._replace(levels=None))
        return Exponential(logs, cls.transform, moments.levels)


class Exponential(Predictive):
    """Distributions of x = exp(y) - shift, given the distributions of y.

    The head of this file has the equations. If x has no mean, `mean` is the median, and `sd` is
    NaN. If ratings are counts, x is rounded to them.

    Parameters
    ----------
    logs : Predictive
        Distributions of y.
    transform : Logarithm
        The change of variables.
    levels : (R,) float64, optional
        Possible ratings, if known.
    noise : bool
        Whether the distributions include the noise; without noise, x has a mean and is not rounded.
    """

    def __init__(
        self,
        logs: Predictive,
        transform: Logarithm,
        levels: Float64 | None = None,
        noise: bool = True,
    ) -> None:
        self._logs = logs
        self.levels = levels
        self._shift = transform.shift
        self._has_mean = transform.has_mean or not noise
        self.has_counts = self._shift > 0 and noise

    @cached_property
    @override
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64; if there are none, the medians before rounding."""
        if self._has_mean:
            y = self._logs.mean + np.square(self._logs.sd) / 2
        else:
            y = self._logs.quantile(0.5)
        return exponential(y, self._shift)

    @property
    @override
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64; NaN if they have none."""
        if not self._has_mean:
            return np.full_like(self._logs.mean, np.nan)
        variance = np.minimum(np.square(self._logs.sd), LARGEST)
        sd = exponential(self._logs.mean + variance / 2) * np.sqrt(np.expm1(variance))
        return np.asarray(np.minimum(sd, np.exp(LARGEST)))

    def _up_to(self, x: Array | float) -> Float64:
        """Return the largest logarithm of what is recorded as at most `x`."""
        x = np.asarray(x, np.float64)
        if self.has_counts:
            x = np.where(x < 0, -1.0, np.floor(x) + 0.5)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(x + self._shift, 0.0)))

    def _from(self, x: Array | float) -> Float64:
        """Return the smallest logarithm of what is recorded as at least `x`."""
        if self.has_counts:
            x = np.ceil(x) - 1
        return self._up_to(x)

    @override
    def cdf(self, x: Array | float) -> Float64:
        return self._logs.cdf(self._up_to(x))

    @override
    def between(self, low: Array | float, high: Array | float) -> Float64:
        return self._logs.between(self._from(low), self._from(high))

    @override
    def lowest(self, bound: float) -> float:
        return float(self._from(self._rounded_to(bound)))

    @override
    def at_least(self, bound: float) -> Float64:
        return self._logs.at_least(self.lowest(bound))

    @override
    def log_at_least(self, bound: float) -> Float64:
        return self._logs.log_at_least(self.lowest(bound))

    @override
    def log_density(self, x: Array | float) -> Float64:
        if self.has_counts:
            return np.log(np.maximum(self.between(x, np.add(x, 1)), SMALLEST))
        positive = np.asarray(x) > 0
        y = self._up_to(np.where(positive, x, 1.0))
        return np.where(positive, self._logs.log_density(y) - y, -np.inf)

    @override
    def quantile(self, p: Array | float) -> Float64:
        return self._recorded(self._logs.quantile(p))

    @override
    def summary(self, low: float, high: float) -> Prediction:
        logs = self._logs.summary(low, high)
        return Prediction(
            mean=self.mean.astype(np.float32),
            sd=self.sd.astype(np.float32),
            low=self._recorded(logs.low).astype(np.float32),
            high=self._recorded(logs.high).astype(np.float32),
        )

    def _recorded(self, y: Array) -> Array:
        """Return the ratings whose logarithms are y; of counts, the smallest that reach y."""
        if self.has_counts:
            return np.ceil(exponential(y, self._shift + 0.5))
        return exponential(y, self._shift)
