r"""Scores of predictions of ratings, and the coverage of their intervals.

The probability integral transform (PIT) of a discrete rating x is a random number, uniform between
F(x-) and F(x). Its histogram and the coverage of intervals are expectations [Czado 2009]. The
intervals that `predict` returns are clipped: a rating at a limit is inside an interval that is
wholly beyond it, and a rating beyond a limit is outside.

Ratings of a *group*, such as an environment, may err together. Let group g have :math:`n_g` of the
n ratings, and let :math:`D_g` be the sum of :math:`d_i - \bar d` over its ratings, for a score
:math:`d_i`. The mean of G groups has the standard error [Cameron & Miller 2015, section 2]

.. math:: \mathrm{se}^2(\bar d) = \frac{G}{G - 1} \frac{1}{n^2} \sum_g D_g^2

[Czado 2009] Predictive model assessment for count data, Biometrics 65. [Cameron & Miller 2015] A
practitioner's guide to cluster-robust inference, Journal of Human Resources 50(2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.model.limits import Limits
from dsgmcmc.model.predictive.base import LogScores, Predictive
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.types import Float64, Int32, Int64, Mask

#: Nominal levels of the predictive intervals whose coverage is measured.
LEVELS = (0.5, 0.8, 0.9, 0.95)

#: Fewest ratings of a group whose correlation with their predictions counts.
LEAST_CORRELATED = 3
#: Smallest share of a sum of squares that is more than rounding.
ROUNDED = 1e-10

Pit = tuple[Float64, Float64]


class Difference(NamedTuple):
    """An average, such as one of differences, and its standard error."""

    mean: float
    error: float


def difference_of_sums(sums: Float64, counts: Int64) -> Difference:
    """Return an average from sums by user or group, (U,), and their numbers of ratings, (U,).

    Numbers may be 0. The error is infinite for a single group.
    """
    n = int(counts.sum())
    users = int(np.count_nonzero(counts))
    mean = float(sums.sum()) / n
    if users < 2:
        return Difference(mean, float("inf"))
    squares = np.square(sums - mean * counts).sum()
    return Difference(mean, float(np.sqrt(users / (users - 1) * squares)) / n)


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

    If the intervals are calibrated, fractions equal levels. `transforms` are as of
    `Scored.transforms`.
    """
    return {
        level: float(inside(transforms, (1 - level) / 2, (1 + level) / 2).mean())
        for level in levels
    }


@dataclass(frozen=True)
class Scored:
    """Ratings, and what was predicted of them, (q,) each.

    Attributes
    ----------
    rating : float
        The ratings; of those that are known only by bounds, values between the bounds.
    bounds : tuple of float arrays, or None
        Their bounds, equal if they are exact; None if all are.
    point : float
        Their predictions.
    predictive : Predictive
        Their predictive distributions.
    limits : Limits
        Range to which intervals are clipped.
    """

    rating: Float64
    bounds: tuple[Float64, Float64] | None
    point: Float64
    predictive: Predictive
    limits: Limits

    @cached_property
    def logs(self) -> LogScores:
        """Log scores of the ratings."""
        return self.predictive.log_scores(self.rating, self.bounds)

    @cached_property
    def exact(self) -> Mask:
        """Which ratings are not known only by bounds."""
        if self.bounds is None:
            return np.ones(len(self.rating), bool)
        return ~known_by_bounds(self.bounds)

    @property
    def errors(self) -> Float64:
        """Errors of the predictions of exact ratings, (e,)."""
        return np.asarray((self.rating - self.point)[self.exact])

    @cached_property
    def pit(self) -> Pit:
        """Bounds of the PIT of every exact rating, (e,), not clipped."""
        below, up_to = self.predictive.pit(self.rating)
        return below[self.exact], up_to[self.exact]

    def transforms(self) -> Pit:
        """Return the bounds of the PIT of every exact rating, (e,), for clipped intervals."""
        below, up_to = self.pit
        rating = self.rating[self.exact]
        low, high = self.limits
        is_low = np.isclose(rating, low)  # ratings are rounded to float32
        is_high = np.isclose(rating, high)
        is_point = below == up_to  # distributions of discrete ratings do not exceed limits
        is_inside = is_point & ((is_low & (below > 0.5)) | (is_high & (below < 0.5)))
        cases = [is_inside, (rating < low) & ~is_low, (rating > high) & ~is_high]
        moved = np.select(cases, [0.5, 0.0, 1.0], up_to)
        if is_point.all():
            return moved, moved
        return np.select(cases, [0.5, 0.0, 1.0], below), moved


class GroupScores:
    """Scores within groups of exact ratings, which are added in batches.

    Parameters
    ----------
    columns : sequence of str
        Columns whose values are the groups.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._centre = 0.0  # near the ratings, so that sums of squares are precise
        self._counts = np.zeros(0, np.int64)
        self._moments = np.zeros((5, 0))  # sums of x, y, x^2, y^2, x y by group
        self._covered = np.zeros((len(LEVELS), 0))

    @property
    def n_groups(self) -> int:
        """Number of groups that have ratings."""
        return int(np.count_nonzero(self._counts))

    def add(self, scored: Scored, groups: Int32) -> None:
        """Add ratings of groups, (q,), which are numbered from 0."""
        groups = groups[scored.exact]
        if not len(groups):
            return
        rating = scored.rating[scored.exact]
        if not len(self._counts):
            self._centre = float(rating.mean())
        more = max(0, int(groups.max()) + 1 - len(self._counts))
        self._counts = np.pad(self._counts, (0, more))
        self._moments = np.pad(self._moments, ((0, 0), (0, more)))
        self._covered = np.pad(self._covered, ((0, 0), (0, more)))
        n = len(self._counts)
        x = rating - self._centre
        y = scored.point[scored.exact] - self._centre
        transforms = scored.transforms()
        self._counts += np.bincount(groups, minlength=n)
        for sums, values in zip(self._moments, (x, y, x * x, y * y, x * y), strict=True):
            sums += np.bincount(groups, values, n)
        for sums, level in zip(self._covered, LEVELS, strict=True):
            sums += np.bincount(groups, inside(transforms, (1 - level) / 2, (1 + level) / 2), n)

    def result(self) -> dict[str, Any]:
        """Return the scores of at least one group, which `Scores.result` describes."""
        errors = {}
        for level, covered in zip(LEVELS, self._covered, strict=True):
            error = difference_of_sums(covered, self._counts).error
            errors[str(level)] = _if_known(error)
        correlations = self._correlations()
        correlation = Difference(np.nan, np.inf)
        if len(correlations):
            correlation = difference_of_sums(correlations, np.ones_like(correlations, np.int64))
        return {
            "columns": self._columns,
            "groups": self.n_groups,
            "effective_groups": float(self._counts.sum() ** 2 / np.square(self._counts).sum()),
            "correlation": _if_known(correlation.mean),
            "correlation_error": _if_known(correlation.error),
            "correlated_groups": len(correlations),
            "coverage_error": errors,
        }

    def _correlations(self) -> Float64:
        """Return the correlations of ratings and predictions of groups that have some."""
        enough = self._counts >= LEAST_CORRELATED
        n = self._counts[enough]
        x, y, xx, yy, xy = self._moments[:, enough]
        of_ratings = xx - x * x / n
        of_predictions = yy - y * y / n
        vary = (of_ratings > ROUNDED * xx) & (of_predictions > ROUNDED * yy)
        products = of_ratings[vary] * of_predictions[vary]
        return np.asarray((xy - x * y / n)[vary] / np.sqrt(products))


def _if_known(number: float) -> float | None:
    """Return a number; None if it is not finite."""
    if np.isfinite(number):
        return number
    return None


class Scores:
    """Scores of ratings, which are added in batches.

    Parameters
    ----------
    grouped_by : sequence of str, optional
        Columns whose values are groups that were held out; the groups of ratings are then added.

    Attributes
    ----------
    ratings, exact : int
        Numbers of ratings, and of those that are not known only by bounds.
    """

    def __init__(self, grouped_by: Sequence[str] = ()) -> None:
        self._by_group = GroupScores(grouped_by)
        self.ratings = 0
        self.exact = 0
        self._squares = 0.0
        self._absolute = 0.0
        self._covered = dict.fromkeys(LEVELS, 0.0)
        self._logs: dict[str, float] = {}

    def add(self, scored: Scored, groups: Int32 | None = None) -> None:
        """Add ratings; of groups, (q,), with their numbers."""
        errors = scored.errors
        self.ratings += len(scored.rating)
        self.exact += len(errors)
        self._squares += float(np.square(errors).sum())
        self._absolute += float(np.abs(errors).sum())
        if len(errors):
            for level, share in coverage(scored.transforms()).items():
                self._covered[level] += share * len(errors)
        if groups is not None:
            self._by_group.add(scored, groups)
        for name, logs in scored.logs._asdict().items():
            if logs is not None:
                self._logs[name] = self._logs.get(name, 0.0) + float(logs.sum())

    def result(self) -> dict[str, Any]:
        """Return the scores of all ratings, which are at least one.

        Returns
        -------
        dict
            ``ratings`` (their number), ``rmse`` and ``mae``; ``coverage``, the share of ratings
            inside central intervals, by level; the mean ``log_predictive_density``, or None if
            ratings are levels; and the mean ``log_probability`` of the recorded values, or None
            unless these are levels or multiples of a step. If some ratings are known only by
            bounds, ``bounded`` is their number; log scores have their log probability between the
            bounds, and the others are of exact ratings, and None or empty if there are none.

            If groups were added, ``by_group`` has their ``columns``, their number ``groups``, and
            ``effective_groups``, to how many of equal size they amount; the mean over groups of the
            ``correlation`` of ratings and predictions within a group, of at least 3 ratings that
            differ, with its standard error ``correlation_error`` and the number of
            ``correlated_groups``; and ``coverage_error``, the standard errors of the coverage by
            level, of groups that err independently. Errors are None with one group.
        """
        scores: dict[str, Any] = {
            "ratings": self.ratings,
            "rmse": self.root(self._squares),
            "mae": None,
            "coverage": {},
        }
        if self.exact:
            scores["mae"] = self._absolute / self.exact
            scores["coverage"] = {level: hits / self.exact for level, hits in self._covered.items()}
        if self._by_group.n_groups:
            scores["by_group"] = self._by_group.result()
        if self.exact < self.ratings:
            scores["bounded"] = self.ratings - self.exact
        for name in LogScores._fields:
            scores[name] = None
            if name in self._logs:
                scores[name] = self._logs[name] / self.ratings
        return scores

    def root(self, squares: float) -> float | None:
        """Return the root of the mean of squares of exact ratings; None if there are none."""
        if not self.exact:
            return None
        return float(np.sqrt(squares / self.exact))
