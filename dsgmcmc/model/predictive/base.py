r"""Posterior predictive distributions of q ratings, given draws of their predictors: the interface.

The predictive distribution of a rating x is a mixture over the draws d of the posterior: sum_d w_d
p(x | eta_d, ...). A subclass defines its mean, sd, distribution function F and density; quantiles,
probabilities of levels and log scores follow. Levels are ordered values that ratings can take; a
predictive distribution of continuous values gives a level the probability of all values that are
rounded to it. Ratings without levels may have a resolution, a step of whose multiples they are
(`dsgmcmc.ratings.resolution`): then all multiples are their levels.

[Czado 2009] Predictive model assessment for count data, Biometrics 65.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np

from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, Mask

#: Smaller probabilities are raised to this value before their logarithm is taken; float32 can
#: represent it.
SMALLEST = 1e-30
TINY = float(np.finfo(np.float64).tiny)

#: Quadrature over N(0, 1), with close nodes: the noise may be much narrower than the distribution
#: of the predictor.
_NODES = np.linspace(-5, 5, 41)
_SHARES = np.exp(-np.square(_NODES) / 2) / np.exp(-np.square(_NODES) / 2).sum()
#: Coarser quadrature, for group effects: the error of a level's probability is 1e-3 at variance 1,
#: and 3e-6 at 0.1.
EFFECT_NODES = ((-sqrt(3.0), 1 / 6), (0.0, 2 / 3), (sqrt(3.0), 1 / 6))
_BATCH = 512  # ratings per batch of integrals over predictors


class PredictorDraws(NamedTuple):
    """Draws of the predictors of a batch of ratings.

    Attributes
    ----------
    eta : (q, draws) float32
        Predictors, less the training mean.
    noise : (q, draws) float32
        Variances of the ratings' noise, 1 / (tau g g'), with the noise scales g, g' of user and
        item; for ordered levels 1 / (s s'), with their scales s, s'.
    spread : (q, draws) float32
        Variances of the predictors given a draw: 0 if the rows of user and item are part of the
        draw; above 0 if one of them was not sampled, and has only a distribution given the draw.
    weights : (draws,) float64
        Weights of the draws; they sum to 1.
    parameters : (draws, n, m) float64 or None
        The likelihood's parameters besides predictors and noise: n sets, each for one user or item,
        or one set for all ratings. Only the likelihood knows what they mean
        (`Observation.parameters_of`).
    owner : (q,) int32 or None
        Which of the n sets applies to each rating; None if one set applies to all.
    effects : (q, draws) float32 or None
        Variances that unknown group effects add to the predictors; the effects are independent
        between ratings.
    """

    eta: Float32
    noise: Float32
    spread: Float32
    weights: Float64
    parameters: Float64 | None = None
    owner: Int32 | None = None
    effects: Float32 | None = None

    def at(self, rows: Array) -> PredictorDraws:
        """Draws for the ratings with these indices."""
        owner = self.owner
        if owner is not None:
            owner = owner[rows]
        effects = self.effects
        if effects is not None:
            effects = effects[rows]
        return self._replace(
            eta=self.eta[rows],
            noise=self.noise[rows],
            spread=self.spread[rows],
            owner=owner,
            effects=effects,
        )

    def by_certainty(self) -> Iterator[tuple[Array, PredictorDraws]]:
        """Yield indices and draws of ratings with zero `spread`, then of others in batches."""
        uncertain = np.any(self.spread > 0, axis=1)
        if not uncertain.any():
            yield np.arange(len(uncertain)), self
            return
        known = np.flatnonzero(~uncertain)
        if len(known):
            yield known, self.at(known)
        unknown = np.flatnonzero(uncertain)
        for start in range(0, len(unknown), _BATCH):
            batch = unknown[start : start + _BATCH]
            yield batch, self.at(batch)

    def known(self) -> PredictorDraws:
        """Return draws with zero `spread`: quadrature nodes of every draw, if any has a spread."""
        if not np.any(self.spread > 0):
            return self
        sd = np.sqrt(self.spread)
        nodes = _NODES.astype(np.float32)
        return self._replace(
            eta=np.concatenate([self.eta + node * sd for node in nodes], axis=1),
            noise=np.tile(self.noise, len(nodes)),
            spread=np.tile(np.zeros_like(self.spread), len(nodes)),
            weights=np.concatenate([self.weights * share for share in _SHARES]),
            parameters=_tiled(self.parameters, (len(nodes), 1, 1)),
            effects=_tiled(self.effects, (1, len(nodes))),
        )

    def over_effects(self) -> list[tuple[float, PredictorDraws]]:
        """Quadrature nodes of the `effects`: their weights, and draws with known predictors."""
        draws = self.known()
        if draws.effects is None:
            return [(1.0, draws)]
        sd: Float32 = np.sqrt(draws.effects)
        return [
            (share, draws._replace(eta=draws.eta + np.float32(z) * sd, effects=None))
            for z, share in EFFECT_NODES
        ]


def _tiled(array: Array | None, repetitions: tuple[int, ...]) -> Array | None:
    if array is None:
        return None
    return np.tile(array, repetitions)


class Prediction(NamedTuple):
    """Summary of predictive distributions of q ratings: mean, sd and two quantiles, (q,) each."""

    mean: Float32
    sd: Float32
    low: Float32
    high: Float32


class Moments(NamedTuple):
    """Moments over draws, from which a rating's predictive distribution is approximated.

    Attributes
    ----------
    mean, variance : (q,) float64
        Mean and variance of every rating.
    probability : (q, R) float64, optional
        Probabilities of the levels, if ratings have levels.
    levels : (R,) float64, optional
        Possible ratings, if known.
    noise : (q,) float64, optional
        Mean, over the draws, of the variance of a rating given a draw, for likelihoods that need
        it.
    shape : (q, m) float64, optional
        Means of `Law.shape` over the draws, for likelihoods that have such parameters.
    """

    mean: Float64
    variance: Float64
    probability: Float64 | None = None
    levels: Float64 | None = None
    noise: Float64 | None = None
    shape: Float64 | None = None


class Predictive(ABC):
    """Posterior predictive distributions of q ratings, in the ratings' own unit.

    Methods that take a rating or a probability take one number for all distributions or an array
    (q,) with one for each, and return (q,) float64.

    Attributes
    ----------
    levels : (R,) float64 or None
        Possible ratings, in ascending order, if known.
    resolution : float or None
        Step to which ratings without levels were recorded, if known.
    """

    levels: Float64 | None = None
    resolution: float | None = None
    #: Whether ratings are counts, whole numbers from 0 on.
    has_counts: bool = False
    #: Whether `log_scores` has a ``log_predictive_density``: for continuous ratings and counts, not
    #: for ordered levels.
    has_density: bool = True

    @property
    @abstractmethod
    def mean(self) -> Float64:
        """Expected ratings, (q,) float64."""

    @property
    @abstractmethod
    def sd(self) -> Float64:
        """Standard deviations of the ratings, (q,) float64."""

    @abstractmethod
    def cdf(self, x: Array | float) -> Float64:
        """F(x): probability that a rating is at most `x`."""

    @abstractmethod
    def log_density(self, x: Array | float) -> Float64:
        """Log density of the rating `x`, in nats; for discrete ratings, its log probability."""

    def below(self, x: Array | float) -> Float64:
        """F(x-): probability of a rating below `x`."""
        if self.has_counts:
            x = np.ceil(x) - 1
        return self.cdf(x)

    def between(self, low: Array | float, high: Array | float) -> Float64:
        """Probability of a rating of at least `low` and below `high`."""
        return self.below(high) - self.below(low)

    def log_between(self, low: Array | float, high: Array | float) -> Float64:
        """Logarithm of `between`, in nats.

        Probabilities below the smallest normal float64 count as that number.
        """
        return np.asarray(np.log(np.maximum(self.between(low, high), TINY)))

    def quantile(self, p: Array | float) -> Float64:
        """Quantile at probability `p`: for discrete ratings, the smallest x with F(x) >= p."""
        return solve(self, np.asarray(p, np.float64))

    def summary(self, low: float, high: float) -> Prediction:
        """Mean, sd, and the quantiles at probabilities `low` and `high`."""
        return Prediction(
            mean=self.mean.astype(np.float32),
            sd=self.sd.astype(np.float32),
            low=self.quantile(low).astype(np.float32),
            high=self.quantile(high).astype(np.float32),
        )

    # ------------------------------------------------------------------ levels

    def _ends(self) -> Float64:
        """Bounds of the intervals in which values are rounded to each level, (R + 1,)."""
        assert self.levels is not None
        return np.concatenate([[-np.inf], (self.levels[1:] + self.levels[:-1]) / 2, [np.inf]])

    def probabilities(self) -> Float64:
        """Probability of every level, (q, R) float64: of all values that are rounded to it."""
        inner_ends = self._ends()[1:-1]
        up_to = [np.broadcast_to(self.below(end), self.mean.shape) for end in inner_ends]
        return np.diff(np.stack(up_to, axis=1), axis=1, prepend=0.0, append=1.0)

    @property
    def is_discrete(self) -> bool:
        """Whether ratings are levels or multiples of a step, so that they have probabilities."""
        has_levels = self.levels is not None and len(self.levels) > 1
        return has_levels or self.resolution is not None

    def log_probability(self, x: Array) -> Float64:
        """Log probability of the level, or the multiple of the step, nearest to each rating."""
        if self.levels is None or len(self.levels) < 2:
            return self._log_probability_of_multiple(x)
        ends = self._ends()
        level = np.digitize(x, ends[1:-1])
        return np.log(np.maximum(self.between(ends[level], ends[level + 1]), SMALLEST))

    def _log_probability_of_multiple(self, x: Array) -> Float64:
        """Log probability of all values that are rounded to the same multiple of the step as x."""
        step = self.resolution
        assert step is not None
        nearest = np.rint(np.asarray(x, np.float64) / step) * step
        if self.has_counts:
            return self.log_density(nearest)
        probability = self.between(nearest - step / 2, nearest + step / 2)
        logs = np.log(np.maximum(probability, TINY))
        # a probability that float64 cannot represent is about the density times the step
        return np.where(probability > TINY, logs, self.log_density(nearest) + np.log(step))

    def _rounded_to(self, bound: float) -> float:
        """Lowest value that is rounded to a level of at least `bound`; `bound` without levels."""
        if self.levels is None or self.has_counts:  # counts are not rounded to levels
            return bound
        return float(self._ends()[(~reaches(self.levels, bound)).sum()])

    def lowest(self, bound: float) -> float:
        """Lowest value of ratings of at least `bound`, on the scale of the likelihood."""
        return self._rounded_to(bound)

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`.

        With levels: of all values that are rounded to a level of at least `bound`.
        """
        return 1.0 - self.below(self._rounded_to(bound))

    def log_at_least(self, bound: float) -> Float64:
        """Logarithm of `at_least`, in nats.

        Probabilities below the smallest normal float64 count as that number.
        """
        return np.asarray(np.log(np.maximum(self.at_least(bound), TINY)))

    # ------------------------------------------------------------------ scores against ratings

    def pit(self, x: Array) -> tuple[Float64, Float64]:
        """Bounds F(x-) and F(x) of the probability integral transform.

        Between them, the randomised transform is uniform [Czado 2009].
        """
        up_to = self.cdf(x)
        if self.has_counts:
            return self.below(x), up_to
        return up_to, up_to

    def log_scores(self, x: Array, bounds: tuple[Array, Array] | None = None) -> LogScores:
        """Log scores of ratings.

        Ratings that are known only by `bounds` have the log probability between them in both.
        """
        density = None
        if self.has_density:
            density = self.with_bounds(self.log_density(x), bounds)
        probability = None
        if self.is_discrete:
            probability = self.with_bounds(self.log_probability(x), bounds)
        return LogScores(density, probability)

    def with_bounds(self, logs: Float64, bounds: tuple[Array, Array] | None) -> Float64:
        """Log scores `logs`, (q,); those of ratings with bounds are log probabilities between them.

        An exact rating is both its bounds. Without `bounds` all ratings are exact.
        """
        if bounds is None:
            return logs
        return np.where(known_by_bounds(bounds), self.log_between(*bounds), logs)


class LogScores(NamedTuple):
    """Log scores of ratings, (q,) float64 each, in nats; None where they are not defined.

    Attributes
    ----------
    log_predictive_density
        Log densities of ratings.
    log_probability
        Log probabilities of recorded values that are levels or multiples of a step.
    """

    log_predictive_density: Float64 | None
    log_probability: Float64 | None

    def recorded(self) -> Float64:
        """Return the log probabilities of recorded values, or log densities if they have none."""
        if self.log_probability is not None:
            return self.log_probability
        assert self.log_predictive_density is not None
        return self.log_predictive_density


def reaches(values: Array, bound: float) -> Mask:
    """Return which ratings are at least `bound`, compared as they are stored, in float32.

    In float64 the level 2.3 would be a little below the bound 2.3.
    """
    return np.asarray(values, np.float32) >= np.float32(bound)


def nearest_level(x: Array, levels: Float64) -> Int64:
    """Index of the level nearest to each rating, (q,) int64; the upper one of two equally near."""
    return np.asarray(
        np.searchsorted((levels[1:] + levels[:-1]) / 2, np.asarray(x, np.float64), side="right")
    )


def solve(predictive: Predictive, p: Float64) -> Float64:
    """Quantiles of distributions, (q,) float64: the smallest x with F(x) >= p.

    Only the distribution function, the mean and the sd are used. The search begins at the quantile
    of the normal distribution with this mean and sd. An interval around it is widened until F(low)
    < p <= F(high), then narrowed: by secants with the Illinois rule, and by bisection every third
    time; for whole numbers by bisection alone.
    """
    from scipy.special import ndtri

    mean = predictive.mean
    sd = np.maximum(predictive.sd, 1e-12)
    margin = 1e-12 if predictive.has_counts else 0.0
    p = np.clip(np.broadcast_to(p, mean.shape) - margin, 1e-15, 1 - 1e-15)
    start = mean + ndtri(p) * sd
    step = sd / 2
    if predictive.has_counts:
        start = np.rint(start)
        step = np.ceil(step)
    low = _widen(predictive, p, start, -step)
    high = _widen(predictive, p, start, step)
    return _narrow(predictive, p, low, high)


class _End(NamedTuple):
    """One end of intervals that contain quantiles: x, and F(x) - p there, (q,) float64 each."""

    x: Float64
    error: Float64


def _narrow(predictive: Predictive, p: Float64, below: _End, above: _End) -> Float64:
    """Narrow intervals around quantiles; return their upper ends."""
    low, under = below
    high, over = above
    if predictive.has_counts:
        tolerance = np.ones_like(low)
    else:
        tolerance = 1e-10 * predictive.sd + 4 * np.spacing(np.abs(predictive.mean))
    for iteration in range(200):
        if np.all(high - low <= tolerance):
            break
        bisect = predictive.has_counts or iteration % 3 == 2
        share = 0.5 if bisect else under / (under - over)
        x = low + share * (high - low)
        if predictive.has_counts:
            x = np.floor(x)
        error = predictive.cdf(x) - p
        reached = error >= 0
        low = np.where(reached, low, x)
        high = np.where(reached, x, high)
        under = np.where(reached, under / 2, error)
        over = np.where(reached, error, over / 2)
    return high


def _widen(predictive: Predictive, p: Float64, x: Float64, step: Float64) -> _End:
    """Move x by steps that double, up until F(x) >= p, or down (`step` < 0) until F(x) < p."""
    up = step > 0
    for _ in range(200):
        x = x + step
        error = predictive.cdf(x) - p
        short = np.where(up, error < 0, error >= 0)
        if not short.any():
            break
        step = np.where(short, 2 * step, 0.0)
    return _End(x, error)
