"""How well a short run predicts the ratings that were held out of it, by a criterion."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics import ranking
from dsgmcmc.diagnostics.scores import Estimate, difference, monte_carlo_error
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.ordinal import scale_of
from dsgmcmc.posterior.exposure import Exposure, Rated
from dsgmcmc.posterior.heldout import TestPredictions, predict_test
from dsgmcmc.posterior.rank import Ranking, liked_from
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64, Int32

Metric = Literal["log-probability", "log-density", "rmse", "ndcg"]

#: Length of the lists whose NDCG is taken.
LIST_LENGTH = 10


class Scores(NamedTuple):
    """Scores of a candidate.

    Attributes
    ----------
    each : (n,) float64
        Of every rating that was held out, or of every user with such: the larger, the better. Of the metric ``rmse``
        these are squared errors with their sign changed.
    owners : (n,) int32
        Users whose scores they are.
    error : float
        Monte Carlo error of their mean; 0 while it is unknown.
    """

    each: Float64
    owners: Int32
    error: float = 0.0

    def behind(self, best: Scores) -> Estimate:
        """How much less the mean is than that of another candidate, and the standard error of that."""
        gap = difference(best.each, self.each, self.owners)
        return Estimate(gap.mean, float(np.sqrt(gap.error**2 + self.error**2 + best.error**2)))


class Halves(NamedTuple):
    """Predictions by the first part of a chain's draws, which are this share of all."""

    first: TestPredictions
    share: float

    def others(self, everything: TestPredictions) -> TestPredictions:
        """Predictions by the other draws, given those by all."""

        def rest(name: str) -> Float64:
            before, now = getattr(self.first, name), getattr(everything, name)
            return np.asarray((now - self.share * before) / (1 - self.share), np.float64)

        mean = rest("mean")
        square = (everything.variance + everything.mean**2) - self.share * (self.first.variance + self.first.mean**2)
        return dataclasses.replace(
            everything,
            mean=mean,
            variance=np.maximum(square / (1 - self.share) - mean**2, 0.0),
            noise_variance=np.maximum(rest("noise_variance"), everything.noise_variance / 100),
            probability=None if everything.probability is None else np.maximum(rest("probability"), 0.0),
        )


def recorded_values(ratings: Ratings) -> Float64 | None:
    """Values that training ratings are recorded as, in ascending order: of a scale, or whole numbers; else None.

    By these all laws can be compared: each gives a probability to what is rounded to a value, half-way to its
    neighbours, be it a density's integral or a sum over counts or levels; the first and the last one take the tails.
    """
    scale = scale_of(ratings)
    if scale is not None:
        return scale
    values = Levels.of(ratings).values
    return None if np.any(values % 1) else values


def scores_of(run: Run, metric: Metric, halves: Halves | None, values: Float64 | None) -> Scores:
    """Score a run by its test ratings, one by one; with `halves` the Monte Carlo error is known.

    `values` are the `recorded_values` of the training ratings, for the log probability.
    """
    owners = run.test_pairs()[0]

    def of(test: TestPredictions) -> Float64:
        if metric == "rmse":
            return -np.square(test.rating - test.mean)
        predictive = test.predictive(run.config.law, values if run.levels is None else run.levels)
        return (predictive.log_probability if metric == "log-probability" else predictive.log_density)(test.rating)

    test = predict_test(run)
    if halves is None:
        return Scores(of(test), owners)
    error = monte_carlo_error(of(halves.first), of(halves.others(test)), owners, halves.share)
    return Scores(of(test), owners, error)


def ranking_scores(run: Run, rated: Rated, most: int, halves: bool) -> Scores:
    """NDCG@10 of at most so many users who like something that was held out, evenly spaced.

    Items are ranked by the usual rule, ``likely``. With `halves` of the run's saved draws the Monte Carlo error is
    known.
    """
    rule, run.exposure = Ranking(LIST_LENGTH), Exposure.of_pattern(rated.pattern())
    liked = predict_test(run).rating >= liked_from(run)
    of_users, of_items = (side[liked] for side in run.test_pairs())
    users = np.unique(of_users)
    if not len(users):
        return Scores(np.zeros(0), users)
    users = ranking.evenly(users, most)
    inside = np.isin(of_users, users)

    def of(some: Run) -> Float64:
        lists = ranking.recommended(some, users, rule, rated)
        return ranking.measures(users, lists, of_users[inside], of_items[inside])["ndcg"]

    if not halves:
        return Scores(of(run), users)
    middle = len(run.draws) // 2
    first, second = (of(run.with_draws(part)) for part in (slice(middle), slice(middle, None)))
    return Scores(of(run), users, monte_carlo_error(first, second, users))
