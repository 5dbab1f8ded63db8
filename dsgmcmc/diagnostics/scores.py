r"""Scores of predictions of held-out ratings, their calibration, and paired differences with
standard errors.

A score is a function of ratings and their predictions. Predictions are expected ratings, or
predictive distributions (`dsgmcmc.model.predictive.base`) that include the noise and are averaged
over the draws of all chains.

Ordinal ratings and counts are discrete. The probability integral transform (PIT) of a discrete
rating x is a random number, uniform between F(x-) and F(x), the values of the distribution function
just below x and at x. The histogram of the PIT and the coverage of central intervals are
expectations over these random numbers [Czado 2009], so they need no seed.

*Paired differences.* The ratings of a user tend to be equally hard to predict, so their differences
are correlated. Therefore differences are first summed by user. Let :math:`d_i` be the difference
for rating i, with n ratings by U users, and :math:`D_u = \sum_{i \in u} (d_i - \bar d)`. Then

.. math:: \mathrm{se}^2(\bar d) = \frac{U}{U - 1} \frac{1}{n^2} \sum_u D_u^2

is the squared standard error of a mean with clusters [Cameron & Miller 2015, section 2].

[Czado 2009] Predictive model assessment for count data, Biometrics 65. [Hanley & McNeil 1982] The
meaning and use of the area under a receiver operating characteristic curve, Radiology 143. [Cameron
& Miller 2015] A practitioner's guide to cluster-robust inference, Journal of Human Resources 50(2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.posterior.heldout import TestPredictions, predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64, Int32, Int64, Mask

#: Nominal levels of the predictive intervals that a run reports.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Number of bins in the histogram of the PIT.
BINS = 20
#: Number of groups of test ratings, by the number of training ratings of the user or item.
GROUPS = 5

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
    """Return the share of each rating's PIT interval in [low, high], (n,) float64; 0 or 1 if it is
    a single point.
    """
    below, up_to = transforms
    width = up_to - below
    common = np.maximum(np.minimum(up_to, high) - np.maximum(below, low), 0.0)
    contained = (low <= up_to) & ((up_to < high) | (high == 1))
    return np.where(width > 0, common / np.where(width > 0, width, 1.0), contained)


def coverage(transforms: Pit, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Return the fraction of ratings inside their central predictive intervals, by nominal level
    between 0 and 1.

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
        ratings of the user, or of the item: ``from, to, ratings, rmse, coverage_90``). None without
        test ratings, for clicks, and before the run has ended.
    """
    users, items = run.test_pairs()
    if not len(users) or not run.config.law.can_be_evaluated or run.unfinished:
        return None
    law, levels = run.config.law, run.levels
    test = predict_test(run)
    predictive = test.predictive(law, levels)
    transforms = predictive.pit(test.rating)
    return {
        **(held_out_scores([test], law, levels) or {}),
        "pit": pit_counts(transforms),
        "by_activity": _groups(transforms, test.rating, test.point(law), run.counts("user")[users]),
        "by_popularity": _groups(
            transforms, test.rating, test.point(law), run.counts("item")[items]
        ),
    }


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
        no levels; ``impossible``, the number of ratings with probability 0, which make log scores
        minus infinity; ``narrower_than_levels``, whether most 90 % intervals are narrower than the
        distance between two levels; with two levels, the entries of `two_level_scores`; with scale
        log, ``point`` ("mean" or "median": the prediction whose errors these are), ``rmse_log`` (of
        logarithms), and None for ``predictive_sd``. None without test ratings.
    """
    rows, sizes, impossible, narrow, chances, hits = [], [], 0, 0, list[Float64](), list[Mask]()
    gap = 0.0 if levels is None else float(np.diff(levels).min(initial=np.inf))
    for test in parts:
        predictive, point = test.predictive(law, levels), test.point(law)
        logs = [
            np.nan if log is None else log for log in predictive.log_scores(test.rating).values()
        ]
        errors = [
            rmse(test.rating, point) ** 2,
            mae(test.rating, point),
            rmse(law.scaled(test.rating), test.mean) ** 2,
        ]
        rows.append(
            [
                *errors,
                np.sqrt(test.variance).mean(),
                *logs,
                *coverage(predictive.pit(test.rating)).values(),
            ]
        )
        sizes.append(len(test.rating))
        narrow += int(np.count_nonzero(2 * 1.645 * predictive.sd < gap))
        if -np.inf in logs:
            impossible += int(np.isneginf(predictive.log_density(test.rating)).sum())
        if levels is not None and len(levels) == 2:
            chances.append(predictive.probabilities()[:, 1])
            hits.append(nearest_level(test.rating, levels) > 0)
    if not rows:
        return None
    mse, mean_error, scaled, sd, *others = np.average(rows, axis=0, weights=sizes).tolist()
    density, probability, *inside_intervals = others
    on_scale = (
        {}
        if law.scale == "identity"
        else {"rmse_log": float(np.sqrt(scaled)), "point": law.point_name}
    )
    return {
        "ratings": sum(sizes),
        "rmse": float(np.sqrt(mse)),
        "mae": mean_error,
        **on_scale,
        **(
            two_level_scores(np.concatenate(chances), np.concatenate(hits), probability)
            if chances
            else {}
        ),
        "predictive_sd": None if on_scale else sd,
        "coverage": dict(zip(LEVELS, inside_intervals, strict=True)),
        "log_predictive_density": None if np.isnan(density) else density,
        "log_probability": None if np.isnan(probability) else probability,
        "impossible": impossible,
        "narrower_than_levels": bool(narrow > sum(sizes) / 2),
    }


def two_level_scores(p: Float64, hits: Mask, log_probability: float) -> dict[str, float | None]:
    """Score probabilities `p` (n,) of the higher of two levels, given the ratings at that level,
    `hits` (n,).

    Returns ``auc``, the probability that a rating at the higher level has the larger p, where equal
    p count half (None if all ratings are at one level) [Hanley & McNeil 1982]; ``brier``, the mean
    of (p - hit)^2; and ``log_loss``, minus the mean `log_probability` of the ratings.
    """
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    high = int(hits.sum())
    pairs = high * (len(hits) - high)
    auc = float((ranks[hits].sum() - high * (high + 1) / 2) / pairs) if pairs else None
    return {"auc": auc, "brier": float(np.square(p - hits).mean()), "log_loss": -log_probability}


def _groups(
    transforms: Pit, ratings: Float64, points: Float64, counts: Int64
) -> list[dict[str, Any]]:
    """Divide test ratings, predicted as `points`, into groups of similar size, by the `counts` of
    users or of items.
    """
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, GROUPS + 1)).astype(np.int64))
    group = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, max(len(edges) - 2, 0))
    covered = inside(transforms, 0.05, 0.95)
    return [
        {
            "from": int(counts[chosen].min()),
            "to": int(counts[chosen].max()),
            "ratings": int(chosen.sum()),
            "rmse": rmse(ratings[chosen], points[chosen]),
            "coverage_90": float(covered[chosen].mean()),
        }
        for chosen in (group == number for number in np.unique(group))
    ]


# ---------------------------------------------------------------------- paired differences


class Difference(NamedTuple):
    """An average and its standard error."""

    mean: float
    error: float


def difference(first: Float64, second: Float64, owners: Int32) -> Difference:
    """Return the mean of `first` - `second`, (n,) scores, and its standard error, infinite for a
    single user.

    `owners`, (n,), has the user of each score.
    """
    return difference_of_sums(
        np.asarray(np.bincount(owners, first - second), np.float64), np.bincount(owners)
    )


def difference_of_sums(sums: Float64, counts: Int64) -> Difference:
    """Return the `difference` from the sums of differences by user, (U,), and their numbers, (U,),
    which may be 0.
    """
    n, users = int(counts.sum()), int(np.count_nonzero(counts))
    mean = float(sums.sum()) / n
    if users < 2:
        return Difference(mean, float("inf"))
    return Difference(
        mean, float(np.sqrt(users / (users - 1) * np.square(sums - mean * counts).sum())) / n
    )
