r"""Scores of predictions of held-out ratings, their calibration, and differences of scores.

A score is a function of ratings and their predictions. Predictions are expected ratings, or
predictive distributions (`dsgmcmc.model.predictive.base`), which include the noise and are averaged
over the draws of all chains.

The probability integral transform (PIT) of a discrete rating x is a random number, uniform between
F(x-) and F(x). Its histogram and the coverage of intervals are expectations [Czado 2009].

*Paired differences* are summed by user first, because the ratings of a user are correlated. Let
:math:`d_i` be the difference for rating i, with n ratings by U users, and
:math:`D_u = \sum_{i \in u} (d_i - \bar d)`. Then [Cameron & Miller 2015, section 2]

.. math:: \mathrm{se}^2(\bar d) = \frac{U}{U - 1} \frac{1}{n^2} \sum_u D_u^2

[Czado 2009] Predictive model assessment for count data, Biometrics 65. [Hanley & McNeil 1982] The
area under a ROC curve, Radiology 143. [Cameron & Miller 2015] A practitioner's guide to
cluster-robust inference, Journal of Human Resources 50(2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.predictive.base import LogScores, Predictive, nearest_level
from dsgmcmc.posterior.cells.evaluate import LEVELS
from dsgmcmc.posterior.heldout import TestPredictions, predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64, Int32, Int64, Mask

#: Number of bins in the histogram of the PIT.
BINS = 20
#: Number of groups of test ratings, by the number of training ratings of the user or item.
GROUPS = 5
#: Width of a central 90 % interval of a normal distribution, in standard deviations.
WIDTH_90 = 2 * 1.645

Pit = tuple[Float64, Float64]


def rmse(values: ArrayLike, predictions: ArrayLike) -> float:
    """Return the root of the mean squared error, in units of the ratings.

    Parameters
    ----------
    values, predictions : (n,) float
        Held-out ratings and their predictions.
    """
    return float(np.sqrt(np.mean(np.square(np.subtract(values, predictions, dtype=np.float64)))))


def mae(values: ArrayLike, predictions: ArrayLike) -> float:
    """Return the mean absolute error, in units of the ratings; parameters as in `rmse`."""
    return float(np.mean(np.abs(np.subtract(values, predictions, dtype=np.float64))))


def inside(transforms: Pit, low: float, high: float) -> Float64:
    """Return the share of each rating's PIT interval in [low, high], (n,) float64.

    The share is 0 or 1 if the interval is a single point.
    """
    below, up_to = transforms
    contained = (low <= up_to) & ((up_to < high) | (high == 1))
    if np.array_equal(below, up_to):
        return contained.astype(np.float64)
    width = up_to - below
    common = np.maximum(np.minimum(up_to, high) - np.maximum(below, low), 0.0)
    return np.where(width > 0, common / np.where(width > 0, width, 1.0), contained)


def coverage(transforms: Pit, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Return the fraction of ratings inside central predictive intervals, by nominal level.

    If the intervals are calibrated, fractions equal levels. `transforms` come from `pit`.
    """
    return {
        level: float(inside(transforms, (1 - level) / 2, (1 + level) / 2).mean())
        for level in levels
    }


def pit_counts(transforms: Pit) -> list[float]:
    """Return the histogram of the PIT in `BINS` equal bins: flat if predictions are calibrated."""
    edges = np.linspace(0, 1, BINS + 1)
    return [float(inside(transforms, low, high).sum()) for low, high in pairwise(edges.tolist())]


# ---------------------------------------------------------------------- scores of a run


def calibration(run: Run) -> dict[str, Any] | None:
    """Measure how well a run predicts its test ratings.

    Returns
    -------
    dict or None
        The entries of `held_out_scores`; ``pit`` (20 counts of the PIT, flat if calibrated);
        ``by_activity`` and ``by_popularity`` (groups of test ratings by the number of training
        ratings of the user, or of the item: ``from, to, ratings, rmse, coverage_90``). They are of
        exact ratings, and empty without any. None without test ratings, for clicks, and before the
        run has ended.
    """
    users, items = run.test_pairs()
    if not len(users) or not run.config.law.can_be_evaluated or run.unfinished:
        return None
    law = run.config.law
    predicted = predict_test(run)
    scores = held_out_scores([predicted], law, run.levels) or {}
    exact = ~predicted.bounded
    if not exact.any():
        return {**scores, "pit": [], "by_activity": [], "by_popularity": []}
    test = predicted.exact()
    predictive = test.predictive(law, run.levels)
    transforms = test.transforms(predictive)
    points = test.point(law)
    activity = run.counts("user")[users[exact]]
    popularity = run.counts("item")[items[exact]]
    return {
        **scores,
        "pit": pit_counts(predictive.pit(test.rating)),
        "by_activity": _groups(transforms, test.rating, points, activity),
        "by_popularity": _groups(transforms, test.rating, points, popularity),
    }


@dataclass(frozen=True)
class TwoLevels:
    """Predictions of the higher of two levels: its probability, and whether the rating is there."""

    probability: Float64
    hit: Mask


@dataclass(frozen=True)
class BatchScores:
    """Scores of a batch of test ratings.

    Attributes
    ----------
    ratings, exact : int
        Numbers of ratings, and of those that are not known only by bounds. Means of the first are
        weighted with `ratings`, those of the others with `exact`.
    predictive_sd : float
        Mean standard deviation of the predictor.
    log_density, log_probability : float
        Mean log scores; NaN if they are not defined.
    squared_error, absolute_error : float
        Mean errors of the predictions of exact ratings, in units of the ratings.
    squared_error_on_scale : float
        Mean squared error of their predictor, on the scale of the likelihood.
    coverage : dict of float to float
        Share of exact ratings inside central intervals, by level.
    narrow : int
        Number of ratings whose 90 % interval is narrower than the distance between two levels.
    impossible : int
        Number of ratings with probability 0.
    two_levels : TwoLevels or None
        Predictions of the higher level, if ratings have two levels.
    """

    ratings: int
    exact: int
    predictive_sd: float
    log_density: float
    log_probability: float
    squared_error: float
    absolute_error: float
    squared_error_on_scale: float
    coverage: dict[float, float]
    narrow: int
    impossible: int
    two_levels: TwoLevels | None


def held_out_scores(
    parts: Iterable[TestPredictions], law: type[Law], levels: Float64 | None
) -> dict[str, Any] | None:
    """Score predictions of test ratings, which are given in parts.

    Returns
    -------
    dict or None
        ``ratings`` (their number), ``rmse``, ``mae``, ``predictive_sd`` (mean sd of the expected
        rating), ``coverage`` (of central intervals, by level); ``log_predictive_density``, or None
        if ratings are ordinal; ``log_probability`` of the ratings' levels, or None if ratings have
        no levels; ``bounded``, if any are, the number of ratings that are known only by bounds:
        log scores have their log probability between the bounds, errors and coverage leave them
        out, and are None or empty if no rating is exact; ``impossible``, the number of ratings with
        probability 0, which make log scores minus infinity; ``narrower_than_levels``, whether most
        90 % intervals are narrower than the distance between two levels; with two levels, the
        entries of `two_level_scores`; with scale log, ``point`` ("mean" or "median": the prediction
        whose errors these are), ``rmse_log`` (of logarithms), and None for ``predictive_sd``. None
        without test ratings.
    """
    batches = [score_batch(ScoredRatings.create(test, law, levels)) for test in parts]
    if not batches:
        return None
    return combine(batches, law)


@dataclass(frozen=True)
class ScoredRatings:
    """Test ratings with their predictions, predictive distributions and log scores.

    Attributes
    ----------
    test : TestPredictions
    law : type of Law
        Likelihood of the model that predicts them.
    levels : (R,) float64 or None
        Levels of the ratings, if they have levels.
    predictive : Predictive
    logs : LogScores
    """

    test: TestPredictions
    law: type[Law]
    levels: Float64 | None
    predictive: Predictive
    logs: LogScores

    @classmethod
    def create(cls, test: TestPredictions, law: type[Law], levels: Float64 | None) -> ScoredRatings:
        """Compute the predictive distributions and log scores of test ratings."""
        predictive = test.predictive(law, levels)
        logs = predictive.log_scores(test.rating, test.bounds)
        return cls(test, law, levels, predictive=predictive, logs=logs)


def score_batch(scored: ScoredRatings) -> BatchScores:
    """Score a batch of test ratings."""
    test = scored.test
    law = scored.law
    levels = scored.levels
    predictive = scored.predictive
    logs = scored.logs.means()
    exact = test.exact()
    of_exact = predictive
    if exact is not test:
        of_exact = exact.predictive(law, levels)
    errors = _mean_errors(exact, law)
    covered = dict.fromkeys(LEVELS, 0.0)
    if len(exact.rating):
        covered = coverage(exact.transforms(of_exact))
    return BatchScores(
        ratings=len(test.rating),
        exact=len(exact.rating),
        predictive_sd=float(np.sqrt(test.variance).mean()),
        log_density=_nan_if_none(logs["log_predictive_density"]),
        log_probability=_nan_if_none(logs["log_probability"]),
        squared_error=errors.squared,
        absolute_error=errors.absolute,
        squared_error_on_scale=errors.squared_on_scale,
        coverage=covered,
        narrow=_count_narrow(predictive, levels),
        impossible=_count_impossible(of_exact, exact.rating, logs),
        two_levels=_two_levels(predictive, test.rating, levels),
    )


class _MeanErrors(NamedTuple):
    """Mean errors of exact ratings, as `BatchScores` has them; 0 of none, which have no weight."""

    squared: float = 0.0
    absolute: float = 0.0
    squared_on_scale: float = 0.0


def _mean_errors(exact: TestPredictions, law: type[Law]) -> _MeanErrors:
    """Return the mean errors of the predictions of exact ratings."""
    if not len(exact.rating):
        return _MeanErrors()
    point = exact.point(law)
    return _MeanErrors(
        squared=rmse(exact.rating, point) ** 2,
        absolute=mae(exact.rating, point),
        squared_on_scale=rmse(law.transform.scaled(exact.rating), exact.mean) ** 2,
    )


def combine(batches: Sequence[BatchScores], law: type[Law]) -> dict[str, Any]:
    """Combine scores of batches to the entries of `held_out_scores`."""
    sizes = [batch.ratings for batch in batches]
    exact = [batch.exact for batch in batches]
    log_density = _average([batch.log_density for batch in batches], sizes)
    log_probability = _average([batch.log_probability for batch in batches], sizes)
    scores: dict[str, Any] = {
        "ratings": sum(sizes),
        "rmse": _root(_average([batch.squared_error for batch in batches], exact)),
        "mae": _none_if_nan(_average([batch.absolute_error for batch in batches], exact)),
    }
    if sum(exact) < sum(sizes):
        scores["bounded"] = sum(sizes) - sum(exact)
    has_logarithms = law.transform.name != "identity"
    if has_logarithms:
        squared_error = _average([batch.squared_error_on_scale for batch in batches], exact)
        scores["rmse_log"] = _root(squared_error)
        scores["point"] = law.transform.point_name
    two_levels = [batch.two_levels for batch in batches if batch.two_levels is not None]
    if two_levels:
        probability = np.concatenate([batch.probability for batch in two_levels])
        hits = np.concatenate([batch.hit for batch in two_levels])
        scores |= two_level_scores(probability, hits, log_probability)
    scores["predictive_sd"] = None
    if not has_logarithms:
        scores["predictive_sd"] = _average([batch.predictive_sd for batch in batches], sizes)
    scores["coverage"] = {}
    if sum(exact):
        scores["coverage"] = {
            level: _average([batch.coverage[level] for batch in batches], exact) for level in LEVELS
        }
    scores["log_predictive_density"] = _none_if_nan(log_density)
    scores["log_probability"] = _none_if_nan(log_probability)
    scores["impossible"] = sum(batch.impossible for batch in batches)
    scores["narrower_than_levels"] = sum(batch.narrow for batch in batches) > sum(sizes) / 2
    return scores


def _average(values: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the average of values of batches, weighted with their sizes; NaN if all are 0."""
    if not sum(sizes):
        return np.nan
    total = 0.0
    for value, size in zip(values, sizes, strict=True):
        total += value * size
    return total / sum(sizes)


def _root(mean_square: float) -> float | None:
    """Return the root of a mean square; None if there is none."""
    return _none_if_nan(float(np.sqrt(mean_square)))


def _nan_if_none(value: float | None) -> float:
    return np.nan if value is None else value


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value


def _count_narrow(predictive: Predictive, levels: Float64 | None) -> int:
    """Return how many 90 % intervals are narrower than the smallest distance between levels."""
    if levels is None:
        return 0
    gap = float(np.diff(levels).min(initial=np.inf))
    return int(np.count_nonzero(predictive.sd * WIDTH_90 < gap))


def _count_impossible(
    predictive: Predictive, ratings: Float64, logs: dict[str, float | None]
) -> int:
    """Return the number of ratings with probability 0; `logs` are their mean log scores."""
    if -np.inf not in logs.values():
        return 0
    return int(np.isneginf(predictive.log_density(ratings)).sum())


def _two_levels(
    predictive: Predictive, ratings: Float64, levels: Float64 | None
) -> TwoLevels | None:
    """Return the predictions of the higher of two levels; None unless there are two."""
    if levels is None or len(levels) != 2:
        return None
    return TwoLevels(
        probability=predictive.probabilities()[:, 1],
        hit=nearest_level(ratings, levels) > 0,
    )


def two_level_scores(p: Float64, hits: Mask, log_probability: float) -> dict[str, float | None]:
    """Score probabilities `p` (n,) of the higher of two levels.

    `hits` (n,) says which ratings are at that level.

    Returns ``auc``, the probability that a rating at the higher level has the larger p, where equal
    p count half (None if all ratings are at one level) [Hanley & McNeil 1982]; ``brier``, the mean
    of (p - hit)^2; and ``log_loss``, minus the mean `log_probability` of the ratings.
    """
    _, position, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[position]
    high = int(hits.sum())
    pairs = high * (len(hits) - high)
    auc = None
    if pairs:
        auc = float((ranks[hits].sum() - high * (high + 1) / 2) / pairs)
    return {"auc": auc, "brier": float(np.square(p - hits).mean()), "log_loss": -log_probability}


def _groups(
    transforms: Pit, ratings: Float64, points: Float64, counts: Int64
) -> list[dict[str, Any]]:
    """Divide test ratings, predicted as `points`, into groups of similar size by `counts`.

    The counts (n,) are the numbers of training ratings of the users, or of the items.
    """
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, GROUPS + 1)).astype(np.int64))
    group_of = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, max(len(edges) - 2, 0))
    covered = inside(transforms, 0.05, 0.95)
    groups = []
    for number in np.unique(group_of):
        chosen = group_of == number
        groups.append(
            {
                "from": int(counts[chosen].min()),
                "to": int(counts[chosen].max()),
                "ratings": int(chosen.sum()),
                "rmse": rmse(ratings[chosen], points[chosen]),
                "coverage_90": float(covered[chosen].mean()),
            }
        )
    return groups


# ---------------------------------------------------------------------- paired differences


class Difference(NamedTuple):
    """An average difference and its standard error."""

    mean: float
    error: float


def difference(first: Float64, second: Float64, owners: Int32) -> Difference:
    """Return the mean of `first` - `second`, (n,) scores, and its standard error.

    `owners`, (n,), has the user of each score. The error is infinite for a single user.
    """
    sums = np.asarray(np.bincount(owners, first - second), np.float64)
    return difference_of_sums(sums, np.bincount(owners))


def difference_of_sums(sums: Float64, counts: Int64) -> Difference:
    """Return the `difference` from sums of differences by user, (U,), and their numbers, (U,).

    Numbers may be 0.
    """
    n = int(counts.sum())
    users = int(np.count_nonzero(counts))
    mean = float(sums.sum()) / n
    if users < 2:
        return Difference(mean, float("inf"))
    squares = np.square(sums - mean * counts).sum()
    return Difference(mean, float(np.sqrt(users / (users - 1) * squares)) / n)
