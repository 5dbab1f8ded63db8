"""Scores of candidate models on held-out ratings, and the choice of a candidate by its score.

The recommended model is the simplest candidate whose score is within one standard error of the best
score. The standard error is that of the paired difference, and includes the Monte Carlo errors of
both chains. The gap must not be clear without the outliers among the differences.

A model can have a better log score, and a clearly larger mean squared error than a simpler one: it
predicts values that recur, and little else. It is not recommended if it is `outdone`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dsgmcmc.diagnostics import ranking
from dsgmcmc.diagnostics.scores import difference
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import resolution_of
from dsgmcmc.model.likelihoods.ordinal.ordinal import recognised_levels
from dsgmcmc.model.predictive.base import SMALLEST
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.lists.exposure import Exposure
from dsgmcmc.posterior.lists.exposure_of_run import keep_exposure
from dsgmcmc.posterior.lists.liked import liked_from
from dsgmcmc.posterior.lists.measures import evenly_spaced, measures
from dsgmcmc.posterior.lists.ranking import Ranking
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.scores import Difference
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import Directions
from dsgmcmc.runs.settings import Metric
from dsgmcmc.settings import named
from dsgmcmc.types import Float64, Int32

#: Number of ranked items per user for the NDCG.
LIST_LENGTH = 10
#: A gap of so many standard errors is clear without outliers,
CLEAR = 3.0
#: and a gap of so many is clear after half of the draws.
CLEAR_EARLY = 2.0


class CandidateScores(NamedTuple):
    """Scores of a candidate.

    Attributes
    ----------
    values : (n,) float64
        Score of every held-out rating, or for the metric ``ndcg`` of every ranked user: larger
        scores are better. For the metric ``rmse``, negative squared errors.
    users : (n,) int32
        User of every score.
    error : float
        Monte Carlo error of the mean score; 0 before it is computed.
    error_without_outliers : float or None
        The same for scores `without_outliers`; None if it is the same.
    squares : (n,) float64 or None
        Squared error of every held-out rating, if the metric is a log score; NaN for those that are
        known only by bounds.
    """

    values: Float64
    users: Int32
    error: float = 0.0
    error_without_outliers: float | None = None
    squares: Float64 | None = None

    @property
    def mean_square(self) -> float:
        """Mean squared error; NaN if squared errors are not known."""
        if self.squares is None or np.isnan(self.squares).all():
            return float("nan")
        return float(np.nanmean(self.squares))

    def compared_with(self, first: Float64) -> CandidateScores:
        """Return these scores with their Monte Carlo error.

        If scores are nearly linear in the predictions, the scores from all draws lie halfway
        between the scores from the two halves. They differ from either half by the Monte Carlo
        error and, until the chain has converged, by a trend. A trend that is equal for all users
        does not enter the error.

        Parameters
        ----------
        first : (n,) float64
            Scores from the first half of the draws.
        """
        limited = without_outliers(first - self.values)
        return self._replace(
            error=difference(first, self.values, self.users).error,
            error_without_outliers=difference(limited, np.zeros_like(limited), self.users).error,
        )

    def behind(self, best: CandidateScores, *, limited: bool = False) -> Difference:
        """Return the mean score of `best` minus the mean of these scores, with its standard error.

        The standard error includes the Monte Carlo errors of both. `limited` differences and errors
        are those `without_outliers`.
        """
        differences = best.values - self.values
        if limited:
            differences = without_outliers(differences)
        gap = difference(differences, np.zeros_like(differences), self.users)
        monte_carlo = sum(scores._error(limited) ** 2 for scores in (self, best))
        return Difference(gap.mean, float(np.sqrt(gap.error**2 + monte_carlo)))

    def _error(self, limited: bool) -> float:
        if limited and self.error_without_outliers is not None:
            return self.error_without_outliers
        return self.error


def without_outliers(differences: Float64) -> Float64:
    """Reduce the largest and the smallest hundredth of the differences to the others."""
    with np.errstate(invalid="ignore"):  # of infinite differences
        return np.clip(differences, *np.quantile(differences, (0.01, 0.99)))


# ---------------------------------------------------------------------- scoring


def are_discrete(ratings: Ratings) -> bool:
    """Whether the training ratings are levels, or were recorded to a step.

    Then all likelihoods can be compared by the probability of the recorded value: the integral of
    the density, or the sum over counts or levels, between the midpoints to the neighbouring values.
    The lowest and the highest level include the tails.
    """
    return recognised_levels(ratings) is not None or resolution_of(ratings) is not None


def scores_of(run: Run, metric: Metric) -> CandidateScores:
    """Score every test rating of a run by a metric other than ``ndcg``.

    Errors are those of exact ratings. Raises InputError if the metric is ``rmse``, and none is.
    """
    law = run.config.law
    users, _ = run.test_pairs()
    test = predict_test(run)
    bounded = test.bounded
    squares = np.square(test.rating - test.point(law))
    if metric == "rmse":
        if bounded.all():
            raise InputError(
                "all held-out ratings are known only by bounds, and have no errors: choose another"
                f" {named('metric')}"
            )
        return CandidateScores(-squares[~bounded], users[~bounded])
    squares[bounded] = np.nan
    predictive = test.predictive(law, run.levels)
    if metric == "log-probability":
        scores = predictive.log_probability(test.rating)
    else:
        scores = predictive.log_density(test.rating)
    scores = predictive.with_bounds(scores, test.bounds)
    finite = np.nan_to_num(scores, nan=np.nan, neginf=np.log(SMALLEST))
    return CandidateScores(finite, users, squares=squares)


def ranking_scores(run: Run, rated: Rated, max_users: int = ranking.MAX_USERS) -> CandidateScores:
    """Return the NDCG@10 of at most `max_users` users who like a held-out item, evenly spaced.

    Items are ranked by the default rule, ``likely``, with the exposure to rated items.
    """
    keep_exposure(run, Exposure.of_ratings(rated, run.counts("item") / len(run.users)))
    is_liked = predict_test(run).least >= liked_from(run)
    test_users, test_items = run.test_pairs()
    users_who_like = test_users[is_liked]
    liked_items = test_items[is_liked]
    if not len(users_who_like):
        raise InputError(
            "no user likes a held-out item, so rankings cannot be compared: choose another metric"
        )
    users = evenly_spaced(np.unique(users_who_like), max_users)
    lists = ranking.recommended(run, users, Ranking(top=LIST_LENGTH), rated)
    of_lists = measures(users, lists, users_who_like, liked_items)
    return CandidateScores(of_lists["ndcg"], users)


# ---------------------------------------------------------------------- choosing


def has_larger_error(candidate: CandidateScores, simpler: CandidateScores) -> bool:
    """Whether a candidate's mean squared error is clearly larger than that of a simpler one."""
    if candidate.squares is None or simpler.squares is None:
        return False
    known = ~np.isnan(candidate.squares)
    if not known.any():
        return False
    gap = difference(candidate.squares[known], simpler.squares[known], candidate.users[known])
    return gap.mean > CLEAR * gap.error


def in_order_of_cells(scores: CandidateScores, run: Run, directions: Directions) -> CandidateScores:
    """Return scores in the order of the cells of a table of three directions, in any arrangement.

    `run` is the run of the scores. Users are those of the table.
    """
    columns: dict[str, list[str]] = {}
    for entity, rows in zip(ENTITIES, run.test_pairs(), strict=True):
        vocabulary = run.vocabulary(entity)
        names = [vocabulary.parts_of(name) for name in vocabulary.ids[rows].tolist()]
        for number, label in enumerate(vocabulary.labels):
            columns[label] = [str(name[number]) for name in names]
    codes = [np.unique(columns[column], return_inverse=True)[1] for column in directions.columns]
    order = np.lexsort(codes[::-1])
    squares = scores.squares
    if squares is not None:
        squares = squares[order]
    users = codes[0][order].astype(np.int32)
    return scores._replace(values=scores.values[order], users=users, squares=squares)


def outdone(candidate: CandidateScores, simpler: CandidateScores) -> bool:
    """Whether a candidate `has_larger_error`, and its log score does not make up for it.

    If the noise is normal, a mean squared error that is larger by the factor r costs log(r) / 2
    nats. A model of outliers gains more.
    """
    if not has_larger_error(candidate, simpler):
        return False
    cost = np.log(candidate.mean_square / max(simpler.mean_square, SMALLEST)) / 2
    return bool(candidate.values.mean() - simpler.values.mean() < cost)


def simpler_with(
    relation: Callable[[CandidateScores, CandidateScores], bool],
    number: int,
    scores: Mapping[int, CandidateScores],
) -> list[int]:
    """List the simpler candidates to which a candidate has a relation, the simplest first."""
    return [
        simpler
        for simpler in sorted(scores)
        if simpler < number and relation(scores[number], scores[simpler])
    ]


def acceptable(scores: Mapping[int, CandidateScores]) -> dict[int, CandidateScores]:
    """Return the scores of the candidates that no simpler one has `outdone`."""
    return {
        number: candidate
        for number, candidate in scores.items()
        if not simpler_with(outdone, number, scores)
    }


def best_of(scores: Mapping[int, CandidateScores]) -> int:
    """Return the number of the candidate with the largest mean score; in a tie, of the simplest."""
    return max(scores, key=lambda number: (scores[number].values.mean(), -number))


def recommended(scores: Mapping[int, CandidateScores]) -> int:
    """Return the number of the simplest candidate within one standard error of the best score.

    One outlier can make the standard error as large as the gap: the gap of the other ratings must
    not be clear.
    """
    best = scores[best_of(scores)]
    return next(number for number in sorted(scores) if _is_near(scores[number], best))


def _is_near(candidate: CandidateScores, best: CandidateScores) -> bool:
    gap = candidate.behind(best)
    limited = candidate.behind(best, limited=True)
    return gap.mean <= gap.error and limited.mean <= CLEAR * limited.error


def leading(scores: Mapping[int, CandidateScores]) -> list[int]:
    """List the candidates that are not clearly behind the best, with outliers or without."""
    best = scores[best_of(scores)]
    return [number for number, candidate in scores.items() if not _is_behind(candidate, best)]


def _is_behind(candidate: CandidateScores, best: CandidateScores) -> bool:
    gaps = [candidate.behind(best, limited=limited) for limited in (False, True)]
    return all(gap.mean > CLEAR_EARLY * gap.error for gap in gaps)
