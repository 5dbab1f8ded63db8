"""Scores of a short run on held-out ratings, for the comparison of models."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics import ranking
from dsgmcmc.diagnostics.scores import Estimate, difference
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.ordinal import scale_of
from dsgmcmc.posterior.exposure import Exposure, Rated
from dsgmcmc.posterior.heldout import predict_test
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

    def compared_with(self, first: Float64) -> Scores:
        """Return these scores with their Monte Carlo error, given the scores by the first half of the draws.

        If scores are nearly linear in the predictions, those by all draws are halfway between those by the two halves,
        and differ from each by the Monte Carlo error, and by a trend as long as the chain has not converged. A trend
        that is equal for all users does not enter the error.
        """
        return self._replace(error=difference(first, self.each, self.owners).error)

    def behind(self, best: Scores) -> Estimate:
        """Mean score of the candidate `best` minus the mean of these scores, with its standard error."""
        gap = difference(best.each, self.each, self.owners)
        return Estimate(gap.mean, float(np.sqrt(gap.error**2 + self.error**2 + best.error**2)))


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


def scores_of(run: Run, metric: Metric, values: Float64 | None) -> Scores:
    """Score every test rating of a run.

    `values` are the `recorded_values` of the training ratings, for the log probability.
    """
    owners, test = run.test_pairs()[0], predict_test(run)
    if metric == "rmse":
        return Scores(-np.square(test.rating - test.mean), owners)
    predictive = test.predictive(run.config.law, values if run.levels is None else run.levels)
    score = predictive.log_probability if metric == "log-probability" else predictive.log_density
    return Scores(score(test.rating), owners)


def ranking_scores(run: Run, rated: Rated, most: int = ranking.MAX_USERS) -> Scores:
    """NDCG@10 for at most `most` users, evenly spaced among the users who like a held-out item.

    Items are ranked by the default rule, ``likely``.
    """
    rule = Ranking(LIST_LENGTH)
    run.exposure = Exposure.of_ratings(rated, run.counts("item") / len(run.users))
    liked = predict_test(run).rating >= liked_from(run)
    of_users, of_items = (side[liked] for side in run.test_pairs())
    if not len(of_users):
        raise InputError("no held-out rating is liked, so rankings cannot be compared: choose another metric")
    users = ranking.evenly(np.unique(of_users), most)
    inside = np.isin(of_users, users)
    lists = ranking.recommended(run, users, rule, rated)
    return Scores(ranking.measures(users, lists, of_users[inside], of_items[inside])["ndcg"], users)
