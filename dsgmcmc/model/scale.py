r"""The scale of ratings: a change of variables beside the law of measurements (setting ``scale``).

With ``scale=log`` a likelihood models y = log x of positive ratings x. Ratings enter through a view
of their file (`OnLogarithms.view`), and predictive distributions leave through `Exponential`: with
F and f the distribution function and the density of y,

    P(X <= x) = F(log x),    quantile_p(X) = exp(quantile_p(Y)),    density(x) = f(log x) / x,

so that probabilities, intervals, log densities and log probabilities are those of the recorded
ratings, and compare with those of models on the identity. Samplers, priors and noise see y alone.

*Counts with zeros.* With ``scale=log1p``, y = log(x + 1). A count k is an x that was rounded, and
all x below 1/2 count as 0:

    P(X <= k) = F(log(k + 3/2)),    quantile_p(X) = max(0, ceil(exp(quantile_p(Y)) - 3/2)),

and the probability of k is the difference of two neighbours. The tails of log-normal and
log-Student-t counts are heavier than those of negative binomial ones. In the equations below x + 1
takes the place of x, and predictions are 0 or more; they are not rounded.

*Means.* Given a draw of a Gaussian model, E[x] = exp(mu + v / 2) with the mean mu and the variance
v of y. The average of this over the posterior is infinite, because the posterior density of v has a
tail that decreases more slowly than exp(-v / 2): in a sample of draws, a few draws dominate it. The
prediction is therefore the mean of the log-normal distribution that has the mean m and the variance
s^2 of the predictive distribution of y, noise and posterior variance included, and the sd is that
of the same distribution:

    mean = exp(m + s^2 / 2),    sd = mean sqrt(exp(s^2) - 1).

If all draws have nearly the same v, and mu is nearly normal, mean is the average of exp(mu + v /
2). Under Student-t noise E[x] is infinite for every draw: the prediction is the median, and there
is no sd. Without noise (``of_mean``), both laws predict the median rating given the parameters,
exp(mu): the formulas above with s^2 the variance of mu.

Numbers above exp(88), near the largest of float32, are reduced to it.
"""

from __future__ import annotations

from copy import copy
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings_format import SPLITS, Split
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.predictive.base import SMALLEST, Moments, Prediction, Predictive, PredictorDraws
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

Scale = Literal["identity", "log", "log1p"]

LARGEST = 88.0  # largest logarithm whose exponential float32 represents, rounded down


@cache
def on_scale(law: type[Law], scale: Scale) -> type[Law]:
    """Return the law of ratings whose values on a scale have the law `law`."""
    if scale == "identity":
        return law
    names = {
        "law": law,
        "scale": scale,
        "point_name": "mean" if law.exponential_has_mean else "median",
    }
    shift = {"shift": 1.0, "possible": "whole numbers from 0 on"} if scale == "log1p" else {}
    return type(law.__name__, (OnLogarithms, law), {**names, **shift, "__module__": law.__module__})


class OnLogarithms(Law):
    """Ratings whose logarithms have the law `law`; the part of the class that `on_scale` makes
    which is not `law`.

    The number `shift` is added to ratings before their logarithms are taken; if it is not 0,
    ratings are counts.
    """

    law: ClassVar[type[Law]]
    shift: ClassVar[float] = 0.0
    possible: ClassVar[str] = "above 0"

    @classmethod
    def excluded(cls, values: Array) -> Array:
        """Which ratings are not `possible`."""
        return np.asarray((values < 0) | (values % 1 != 0) if cls.shift else values <= 0)

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file with ratings that are not `possible`."""
        cls.law.check_ratings(config, ratings)
        if bad := sum(
            int(cls.excluded(values).sum()) for part in SPLITS for values in ratings.values(part)
        ):
            counts = "" if cls.shift else f"; counts with zeros suit {named('scale')} log1p"
            found = f"{bad:,} of {ratings.nnz + ratings.nnz_test:,} ratings are not {cls.possible}"
            advice = f"leave out {named('scale')}, or prepare the ratings without them{counts}"
            raise InputError(f"{ratings.path}: {found}: {advice}")

    @classmethod
    def check_new(cls, values: Array, minimum: float) -> None:
        """Raise `InputError` for new ratings that are impossible under this likelihood."""
        for value in values[cls.excluded(values)].tolist():
            raise InputError(
                f"a rating of {value:g}: the run models logarithms, so ratings must be"
                f" {cls.possible}"
            )
        cls.law.check_new(values, minimum)

    # ------------------------------------------------------------------ the change of variables

    @classmethod
    def scaled(cls, values: Array) -> Array:
        """Ratings on the scale on which this likelihood models them: logarithms, in the ratings'
        type.
        """
        return np.log(np.asarray(values, np.float64) + cls.shift).astype(values.dtype)

    @classmethod
    def view(cls, ratings: Ratings) -> Ratings:
        """An open file whose ratings are on the likelihood's scale: a copy of `ratings` with other
        values.
        """

        def slab(part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
            indptr, columns, values = ratings.slab(part, start, stop)
            return indptr, columns, cls.scaled(values)

        def levels(limit: int) -> Float64 | None:
            values = ratings.levels(limit)
            return None if values is None else cls.scaled(values)

        low, high = cls.scaled(np.array([ratings.minimum, ratings.maximum])).tolist()
        view = copy(ratings)
        vars(view).update(slab=slab, levels=levels, minimum=low, maximum=high, recorded=ratings)
        view.mean = (
            sum(float(values.sum(dtype=np.float64)) for values in view.values("train"))
            / ratings.nnz
        )
        return view

    @classmethod
    def point(cls, mean: Array, variance: Array | float) -> Array:
        """Predictions of ratings, given mean and variance of their predictive distributions on the
        scale.
        """
        return _rating(mean + variance / 2 if cls.exponential_has_mean else mean, cls.shift)

    # ------------------------------------------------------------------ new ratings

    @classmethod
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors."""
        return Exponential(cls.law.predictive(draws, centre), cls, levels)

    @classmethod
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior distributions of the expected ratings, without noise; here: of the median
        ratings.
        """
        return Exponential(cls.law.expectation(draws, centre), cls, noise=False)

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Posterior predictive distributions, approximated from moments over draws."""
        return Exponential(
            cls.law.predictive_of_moments(moments._replace(levels=None)), cls, moments.levels
        )


class Exponential(Predictive):
    """Distributions of x = exp(y) - shift, given the distributions of y; the head of this file has
    the equations.

    If x has no mean, `mean` is the median, and `sd` is NaN. If ratings are counts, x is rounded to
    them.

    Parameters
    ----------
    logs : Predictive
        Distributions of y.
    law : type of OnLogarithms
        Likelihood of the ratings.
    levels : (R,) float64, optional
        Possible ratings, if known.
    noise : bool
        Whether the distributions include the noise; without noise, x has a mean and is not rounded.
    """

    def __init__(
        self,
        logs: Predictive,
        law: type[OnLogarithms],
        levels: Float64 | None = None,
        noise: bool = True,
    ) -> None:
        self._logs, self.levels, self._shift = logs, levels, law.shift
        self._has_mean, self.whole = law.exponential_has_mean or not noise, law.shift > 0 and noise

    @cached_property
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64; the medians, before they are rounded, if there is no
        expectation.
        """
        y = (
            self._logs.mean + np.square(self._logs.sd) / 2
            if self._has_mean
            else self._logs.quantile(0.5)
        )
        return _rating(y, self._shift)

    @property
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64; NaN if they have none."""
        if not self._has_mean:
            return np.full_like(self._logs.mean, np.nan)
        variance = np.minimum(np.square(self._logs.sd), LARGEST)
        sd = _rating(self._logs.mean + variance / 2) * np.sqrt(np.expm1(variance))
        return np.asarray(np.minimum(sd, np.exp(LARGEST)))

    def _up_to(self, x: Array | float) -> Float64:
        """Return the largest logarithm of what is recorded as at most `x`."""
        x = np.asarray(x, np.float64)
        if self.whole:
            x = np.where(x < 0, -1.0, np.floor(x) + 0.5)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(x + self._shift, 0.0)))

    def _from(self, x: Array | float) -> Float64:
        """Return the smallest logarithm of what is recorded as at least `x`."""
        return self._up_to(np.ceil(x) - 1 if self.whole else x)

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability that a rating is at most `x`."""
        return self._logs.cdf(self._up_to(x))

    def between(self, low: Array | float, high: Array | float) -> Float64:
        """Probability of a rating of at least `low` and below `high`."""
        return self._logs.between(self._from(low), self._from(high))

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`; with levels, of values that are rounded to
        such a level.
        """
        return self._logs.at_least(float(self._from(self._rounded_to(bound))))

    def log_at_least(self, bound: float) -> Float64:
        """Logarithm of `at_least`, in nats."""
        return self._logs.log_at_least(float(self._from(self._rounded_to(bound))))

    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability."""
        if self.whole:
            return np.log(np.maximum(self.between(x, np.add(x, 1)), SMALLEST))
        positive = np.asarray(x) > 0
        y = self._up_to(np.where(positive, x, 1.0))
        return np.where(positive, self._logs.log_density(y) - y, -np.inf)

    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: for discrete ratings, the smallest x with F(x) >= p."""
        return self._recorded(self._logs.quantile(p))

    def summary(self, low: float, high: float) -> Prediction:
        """Mean, sd, and the quantiles at probabilities `low` and `high`."""
        ends = self._logs.summary(low, high)[2:]
        fields = (self.mean, self.sd, *map(self._recorded, ends))
        return Prediction(*(np.asarray(values, np.float32) for values in fields))

    def _recorded(self, y: Array) -> Array:
        """Return the ratings as which the exponentials of logarithms are recorded, without
        exceeding a quantile.
        """
        return np.ceil(_rating(y, self._shift + 0.5)) if self.whole else _rating(y, self._shift)


def _rating(y: Array, shift: float = 0.0) -> Array:
    return np.asarray(np.maximum(np.exp(np.minimum(y, y.dtype.type(LARGEST))) - shift, 0.0))
