r"""Scores of predictions of held-out ratings, their calibration, and differences of scores.

A score is a function of ratings and their predictions. Predictions are expected ratings, or
predictive distributions (`dsgmcmc.model.predictive.base`), which include the noise and are averaged
over the draws of all chains.

*Paired differences* are summed by user first, because the ratings of a user are correlated: users
are the groups of `dsgmcmc.posterior.scores`.

[Hanley & McNeil 1982] The area under a ROC curve, Radiology 143.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.posterior.heldout import TestPredictions, predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.scores import Difference, Pit, Scored, Scores, difference_of_sums, inside
from dsgmcmc.types import Float64, Int32, Int64, Mask

#: Number of bins in the histogram of the PIT.
BINS = 20
#: Number of groups of test ratings, by the number of training ratings of the user or item.
GROUPS = 5
#: Width of a central 90 % interval of a normal distribution, in standard deviations.
WIDTH_90 = 2 * 1.645


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
    scores = TestScores(run.config.law, run.levels, run.facts.get("grouped_by", ()))
    scored = scores.add_test(predict_test(run))
    figures = {**scores.result(), "pit": [], "by_activity": [], "by_popularity": []}
    exact = scored.exact
    if exact.any():
        figures["pit"] = pit_counts(scored.pit)
        figures["by_activity"] = _groups(scored, run.counts("user")[users[exact]])
        figures["by_popularity"] = _groups(scored, run.counts("item")[items[exact]])
    return figures


@dataclass(frozen=True)
class TwoLevels:
    """Predictions of the higher of two levels: its probability, and whether the rating is there."""

    probability: Float64
    hit: Mask


class TestScores(Scores):
    """Scores of test ratings, which are added in parts.

    Parameters
    ----------
    law : type of Law
        Likelihood of the model that predicts them.
    levels : (R,) float64 or None
        Levels of the ratings, if they have levels.
    grouped_by : sequence of str, optional
        As of `Scores`.
    """

    def __init__(
        self, law: type[Law], levels: Float64 | None, grouped_by: Sequence[str] = ()
    ) -> None:
        super().__init__(grouped_by)
        self._law = law
        self._levels = levels
        self._sd = 0.0  # sum of the standard deviations of predictors
        self._squares_on_scale = 0.0
        self._narrow = 0
        self._impossible = 0
        self._two_levels: list[TwoLevels] = []

    def add_test(self, test: TestPredictions) -> Scored:
        """Add test ratings, and return them as they were scored."""
        scored = test.scored(self._law, self._levels)
        self.add(scored, test.group)
        exact = scored.exact
        scaled = self._law.transform.scaled(test.rating[exact])
        self._sd += float(np.sqrt(test.variance).sum())
        self._squares_on_scale += float(np.square(scaled - test.mean[exact]).sum())
        self._impossible += int(np.isneginf(scored.logs.recorded()[exact]).sum())
        if self._levels is None:
            return scored
        gap = float(np.diff(self._levels).min(initial=np.inf))
        self._narrow += int(np.count_nonzero(scored.predictive.sd * WIDTH_90 < gap))
        if len(self._levels) == 2:
            of_higher = scored.predictive.probabilities()[:, 1]
            is_higher = nearest_level(test.rating, self._levels) > 0
            self._two_levels.append(TwoLevels(of_higher, is_higher))
        return scored

    @override
    def result(self) -> dict[str, Any]:
        """Return the scores, which `held_out_scores` describes."""
        scores = super().result()
        scores["predictive_sd"] = self._sd / self.ratings
        if self._law.transform.name != "identity":
            scores["rmse_log"] = self.root(self._squares_on_scale)
            scores["point"] = self._law.transform.point_name
            scores["predictive_sd"] = None
        if self._two_levels:
            probability = np.concatenate([part.probability for part in self._two_levels])
            hits = np.concatenate([part.hit for part in self._two_levels])
            scores |= two_level_scores(probability, hits, scores["log_probability"])
        scores["impossible"] = self._impossible
        scores["narrower_than_levels"] = self._narrow > self.ratings / 2
        return scores


def held_out_scores(
    parts: Iterable[TestPredictions], law: type[Law], levels: Float64 | None
) -> dict[str, Any] | None:
    """Score predictions of test ratings, which are given in parts.

    Returns
    -------
    dict or None
        The scores of `dsgmcmc.posterior.scores.Scores.result`, and ``predictive_sd`` (mean sd of
        the expected rating); ``impossible``, the number of ratings with probability 0, which make
        log scores minus infinity; ``narrower_than_levels``, whether most 90 % intervals are
        narrower than the distance between two levels; with two levels, the entries of
        `two_level_scores`; with scale log, ``point`` ("mean" or "median": the prediction whose
        errors these are), ``rmse_log`` (of logarithms), and None for ``predictive_sd``. None
        without test ratings.
    """
    scores = TestScores(law, levels)
    for test in parts:
        scores.add_test(test)
    if not scores.ratings:
        return None
    return scores.result()


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


def _groups(scored: Scored, counts: Int64) -> list[dict[str, Any]]:
    """Divide the exact test ratings into groups of similar size by `counts`.

    The counts (e,) are the numbers of training ratings of the users, or of the items.
    """
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, GROUPS + 1)).astype(np.int64))
    group_of = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, max(len(edges) - 2, 0))
    covered = inside(scored.transforms(), 0.05, 0.95)
    squares = np.square(scored.errors)
    groups = []
    for number in np.unique(group_of):
        chosen = group_of == number
        groups.append(
            {
                "from": int(counts[chosen].min()),
                "to": int(counts[chosen].max()),
                "ratings": int(chosen.sum()),
                "rmse": float(np.sqrt(squares[chosen].mean())),
                "coverage_90": float(covered[chosen].mean()),
            }
        )
    return groups


# ---------------------------------------------------------------------- paired differences


def difference(first: Float64, second: Float64, owners: Int32) -> Difference:
    """Return the mean of `first` - `second`, (n,) scores, and its standard error.

    `owners`, (n,), has the user of each score. The error is infinite for a single user.
    """
    sums = np.asarray(np.bincount(owners, first - second), np.float64)
    return difference_of_sums(sums, np.bincount(owners))
