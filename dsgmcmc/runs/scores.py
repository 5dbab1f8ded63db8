"""Scores of a short run on held-out ratings, for the comparison of models."""

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

#: Length of the ranked lists in the NDCG.
LIST_LENGTH = 10


class Scores(NamedTuple):
    """Scores of a candidate.

    Attributes
    ----------
    each : (n,) float64
        Score of every held-out rating, or of every user with a liked held-out item: larger scores are better. For the
        metric ``rmse``, negative squared errors.
    owners : (n,) int32
        User of every score.
    error : float
        Monte Carlo error of the mean score; 0 if unknown.
    """

    each: Float64
    owners: Int32
    error: float = 0.0

    def behind(self, best: Scores) -> Estimate:
        """Mean score of the candidate `best` minus the mean of these scores, with its standard error."""
        gap = difference(best.each, self.each, self.owners)
        return Estimate(gap.mean, float(np.sqrt(gap.error**2 + self.error**2 + best.error**2)))


class Halves(NamedTuple):
    """Predictions from the first part of a chain's draws.

    Attributes
    ----------
    first : TestPredictions
    share : float
        Number of draws in the first part divided by the number of all draws.
    """

    first: TestPredictions
    share: float

    def others(self, everything: TestPredictions) -> TestPredictions:
        """Predictions from the remaining draws, given the predictions from all draws."""

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
    """Values of the training ratings, ascending, if they are levels of a scale or integers; else None.

    On these values all laws can be compared. The probability of a value is the integral of the density, or the sum over
    counts or levels, between the midpoints to the neighbouring values; the first and last values include the tails.
    """
    scale = scale_of(ratings)
    if scale is not None:
        return scale
    values = Levels.of(ratings).values
    return None if np.any(values % 1) else values


def scores_of(run: Run, metric: Metric, halves: Halves | None, values: Float64 | None) -> Scores:
    """Score every test rating of a run; `halves` are needed for the Monte Carlo error.

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
    """NDCG@10 for at most `most` users, evenly spaced among the users who like a held-out item.

    Items are ranked by the default rule, ``likely``. If `halves` is true, the Monte Carlo error is estimated from the
    two halves of the saved draws.
    """
    rule = Ranking(LIST_LENGTH)
    run.exposure = Exposure.of_ratings(rated, run.counts("item") / len(run.users))
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
