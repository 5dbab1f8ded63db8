r"""The scale of ratings: a change of variables beside the law of measurements (setting ``scale``).

With ``scale=log`` a likelihood models y = log x of positive ratings x. Ratings enter through a view of their file
(`OnLogarithms.view`), and predictive distributions leave through `Exponential`: with F and f the distribution
function and the density of y,

    P(X <= x) = F(log x),    quantile_p(X) = exp(quantile_p(Y)),    density(x) = f(log x) / x,

so that probabilities, intervals, log densities and log probabilities are those of the recorded ratings, and compare
with those of models on the identity. Samplers, priors and noise see y alone.

*Means.* Given a draw of a Gaussian model, E[x] = exp(mu + v / 2) with the mean mu and the variance v of y. The average
of this over the posterior is infinite, because the posterior density of v has a tail that decreases more slowly than
exp(-v / 2): in a sample of draws, a few draws dominate it. The prediction is therefore the mean of the log-normal
distribution that has the mean m and the variance s^2 of the predictive distribution of y, noise and posterior variance
included, and the sd is that of the same distribution:

    mean = exp(m + s^2 / 2),    sd = mean sqrt(exp(s^2) - 1).

If all draws have nearly the same v, and mu is nearly normal, mean is the average of exp(mu + v / 2). Under Student-t
noise E[x] is infinite for every draw: the prediction is the median, and there is no sd. Without noise (``of_mean``),
both laws predict the median rating given the parameters, exp(mu): the formulas above with s^2 the variance of mu.

Numbers above exp(88), near the largest of float32, are reduced to it.
"""

from __future__ import annotations

from copy import copy
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from dsgmcmc.data.ratings import SPLITS, Ratings, Split, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import SLAB
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.predictive.base import Moments, Prediction, Predictive, PredictorDraws
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

Scale = Literal["identity", "log"]

LARGEST = 88.0  # largest logarithm whose exponential float32 represents, rounded down


@cache
def on_scale(law: type[Law], scale: Scale) -> type[Law]:
    """Return the law of ratings whose values on a scale have the law `law`."""
    if scale == "identity":
        return law
    names = {"law": law, "scale": scale, "point_name": "mean" if law.exponential_has_mean else "median"}
    return type(law.__name__, (OnLogarithms, law), {**names, "__module__": law.__module__})


class OnLogarithms(Law):
    """Ratings whose logarithms have the law `law`; the part of the class that `on_scale` makes which is not `law`."""

    law: ClassVar[type[Law]]

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file with ratings that have no logarithm."""
        cls.law.check_ratings(config, ratings)
        slabs = (ratings.slab(part, *rows)[2] for part in SPLITS for rows in row_slabs(ratings.row_indptr, SLAB))
        if bad := sum(int((values <= 0).sum()) for values in slabs):
            raise InputError(
                f"{ratings.path}: {bad:,} of {ratings.nnz + ratings.nnz_test:,} ratings are 0 or negative, and have no "
                f"logarithm: leave out {named('scale')}, or prepare the ratings without them; counts with zeros suit "
                f"{named('likelihood')} negative-binomial"
            )

    @classmethod
    def check_new(cls, values: Array, minimum: float) -> None:
        """Raise `InputError` for new ratings that are impossible under this likelihood."""
        if np.any(values <= 0):
            raise InputError(f"a rating of {values.min():g}: the run models logarithms, so ratings must be above 0")
        cls.law.check_new(values, minimum)

    # ------------------------------------------------------------------ the change of variables

    @classmethod
    def scaled(cls, values: Array) -> Array:
        """Ratings on the scale on which this likelihood models them: logarithms of positive ratings, of their type."""
        return np.log(np.asarray(values, np.float64)).astype(values.dtype)

    @classmethod
    def view(cls, ratings: Ratings) -> Ratings:
        """An open file whose ratings are on the likelihood's scale: a copy of `ratings` with other values."""

        def slab(part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
            indptr, columns, values = ratings.slab(part, start, stop)
            return indptr, columns, cls.scaled(values)

        def levels(limit: int) -> Float64 | None:
            values = ratings.levels(limit)
            return None if values is None else cls.scaled(values)

        slabs = row_slabs(ratings.row_indptr, SLAB)
        mean = sum(float(slab("train", *rows)[2].sum(dtype=np.float64)) for rows in slabs) / ratings.nnz
        low, high = np.log([ratings.minimum, ratings.maximum]).tolist()
        view = copy(ratings)
        vars(view).update(slab=slab, levels=levels, mean=mean, minimum=low, maximum=high, recorded=ratings)
        return view

    @classmethod
    def point(cls, mean: Array, variance: Array | float) -> Array:
        """Predictions of ratings, given mean and variance of their predictive distributions on the scale."""
        return _exponential(mean + variance / 2 if cls.exponential_has_mean else mean)

    # ------------------------------------------------------------------ new ratings

    @classmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors."""
        return Exponential(cls.law.predictive(draws, centre), levels, cls.exponential_has_mean)

    @classmethod
    def expectation(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior distributions of the expected ratings, without noise; here: of the median ratings."""
        return Exponential(cls.law.expectation(draws, centre))

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Posterior predictive distributions, approximated from moments over draws."""
        logs = cls.law.predictive_of_moments(moments._replace(levels=None))
        return Exponential(logs, moments.levels, cls.exponential_has_mean)


class Exponential(Predictive):
    """Distributions of x = exp(y), given the distributions of y; the head of this file has the equations.

    Parameters
    ----------
    logs : Predictive
        Distributions of y.
    levels : (R,) float64, optional
        Possible ratings, if known.
    has_mean : bool
        Whether x has a mean; if not, `mean` is the median, and `sd` is NaN.
    """

    def __init__(self, logs: Predictive, levels: Float64 | None = None, has_mean: bool = True) -> None:
        self._logs, self.levels, self._has_mean = logs, levels, has_mean

    @cached_property
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64; the medians if there is no expectation."""
        if not self._has_mean:
            return self.quantile(0.5)
        return _exponential(self._logs.mean + np.square(self._logs.sd) / 2)

    @property
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64; NaN if they have none."""
        if not self._has_mean:
            return np.full_like(self._logs.mean, np.nan)
        variance = np.minimum(np.square(self._logs.sd), LARGEST)
        return np.minimum(self.mean * np.sqrt(np.expm1(variance)), np.exp(LARGEST))

    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability that a rating is at most `x`."""
        return self._logs.cdf(_logarithm(x))

    def between(self, low: Array | float, high: Array | float) -> Float64:
        """Probability of a rating of at least `low` and below `high`."""
        return self._logs.between(_logarithm(low), _logarithm(high))

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`; with levels, of values that are rounded to such a level."""
        return self._logs.at_least(float(_logarithm(self._rounded_to(bound))))

    def log_at_least(self, bound: float) -> Float64:
        """Logarithm of `at_least`, in nats."""
        return self._logs.log_at_least(float(_logarithm(self._rounded_to(bound))))

    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability."""
        positive = np.asarray(x) > 0
        y = _logarithm(np.where(positive, x, 1.0))
        return np.where(positive, self._logs.log_density(y) - y, -np.inf)

    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: for discrete ratings, the smallest x with F(x) >= p."""
        return _exponential(self._logs.quantile(p))

    def summary(self, low: float, high: float) -> Prediction:
        """Mean, sd, and the quantiles at probabilities `low` and `high`."""
        ends = self._logs.summary(low, high)[2:]
        fields = (self.mean, self.sd, *map(_exponential, ends))
        return Prediction(*(np.asarray(values, np.float32) for values in fields))


def _exponential(y: Array) -> Array:
    return np.asarray(np.exp(np.minimum(y, y.dtype.type(LARGEST))))


def _logarithm(x: Array | float) -> Float64:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(np.asarray(x, np.float64), 0.0)))
