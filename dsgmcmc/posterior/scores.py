r"""Scores of predictions of ratings, and the coverage of their intervals.

The probability integral transform (PIT) of a discrete rating x is a random number, uniform between
F(x-) and F(x). Its histogram and the coverage of intervals are expectations [Czado 2009]. The
intervals that `predict` returns are clipped: a rating at a limit is inside an interval that is
wholly beyond it, and a rating beyond a limit is outside.

[Czado 2009] Predictive model assessment for count data, Biometrics 65.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dsgmcmc.model.limits import Limits
from dsgmcmc.model.predictive.base import LogScores, Predictive
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.types import Float64, Mask

#: Nominal levels of the predictive intervals whose coverage is measured.
LEVELS = (0.5, 0.8, 0.9, 0.95)

Pit = tuple[Float64, Float64]


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


class Scores:
    """Scores of ratings, which are added in batches.

    Attributes
    ----------
    ratings, exact : int
        Numbers of ratings, and of those that are not known only by bounds.
    """

    def __init__(self) -> None:
        self.ratings = 0
        self.exact = 0
        self._squares = 0.0
        self._absolute = 0.0
        self._covered = dict.fromkeys(LEVELS, 0.0)
        self._logs: dict[str, float] = {}

    def add(self, scored: Scored) -> None:
        """Add ratings."""
        errors = scored.errors
        self.ratings += len(scored.rating)
        self.exact += len(errors)
        self._squares += float(np.square(errors).sum())
        self._absolute += float(np.abs(errors).sum())
        if len(errors):
            for level, share in coverage(scored.transforms()).items():
                self._covered[level] += share * len(errors)
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
