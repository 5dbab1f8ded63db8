"""Which ratings have a range by their meaning (`dsgmcmc.model.limits`), and which a resolution.

Only levels have one, such as stars: it begins at the lowest and ends at the highest level.
Measurements, counts and amounts may be larger or smaller than all that were seen; counts, and
amounts that are often 0 and never negative, such as rain, are at least 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.likelihoods.ordinal.ordinal import MAX_THRESHOLDS, recognised_levels
from dsgmcmc.model.limits import UNLIMITED, Limits
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Float64

#: The top of a scale begins at this fraction of the way from the lowest to the highest level.
TOP = 0.75
#: Least share of the training ratings in the top of a scale; counts have fewer there.
LEAST_TOP_SHARE = 0.05
#: Least share of the highest level of a scale; the largest of some counts is rarer.
LEAST_SHARE_OF_LARGEST = 0.02
#: Least share of zeros among ratings of which none is negative, if they end at 0.
LEAST_SHARE_OF_ZEROS = 0.01
#: Names of the limits and of the resolution among the facts about a run.
FACT = "range"
RESOLUTION_FACT = "resolution"


def limits_from(facts: Mapping[str, Any]) -> Limits:
    """Return the limits of a run by its facts; runs of earlier versions record only levels."""
    if FACT in facts:
        return Limits(*facts[FACT])
    levels = facts.get("levels", [])
    if 0 < len(levels) <= MAX_THRESHOLDS:
        return Limits(levels[0], levels[-1])
    return UNLIMITED


def resolution_from(facts: Mapping[str, Any]) -> float | None:
    """Return the resolution of a run by its facts, which earlier versions do not record."""
    return facts.get(RESOLUTION_FACT)


def resolution_of(ratings: Ratings) -> float | None:
    """Return the step to which ratings were recorded; None without one, and for levels."""
    if recognised_levels(ratings) is not None:
        return None
    return ratings.resolution


def limits_of(ratings: Ratings, law: type[Law]) -> Limits:
    """Return the limits of the ratings of a file under a likelihood."""
    if not law.can_be_evaluated:  # predictions are scores
        return UNLIMITED
    if law.transform.name == "log":
        return Limits(low=0.0)
    possible = law.levels_of(ratings)
    if possible is None and law.transform.name == "identity" and not law.of_counts:
        possible = _scale_of(ratings)
    if possible is not None:
        return Limits(float(possible[0]), float(possible[-1]))
    if ratings.has_bounds or ratings.minimum < 0:
        return UNLIMITED
    if _are_whole(ratings) or _share_of_zeros(ratings) >= LEAST_SHARE_OF_ZEROS:
        return Limits(low=0.0)
    return UNLIMITED


def _scale_of(ratings: Ratings) -> Float64 | None:
    """Return the levels of a scale; None for measurements, and for values that look like counts."""
    values = recognised_levels(ratings)
    if values is None:
        return None
    if len(values) == 2:
        return values
    if not reaches_top(ratings, values) or _look_like_counts(ratings, values):
        return None
    return values


def _look_like_counts(ratings: Ratings, values: Float64) -> bool:
    """Whether values are whole numbers from 0 on, of which the largest is rare."""
    if values[0] < 0 or np.any(values % 1):
        return False
    levels = Levels.from_ratings(ratings)
    largest = int(levels.counts[levels.values == values[-1]].sum())
    return largest < LEAST_SHARE_OF_LARGEST * ratings.nnz


def reaches_top(ratings: Ratings, values: Float64) -> bool:
    """Whether the distinct training ratings may be a scale: few values, whose top is in use."""
    if len(values) > MAX_THRESHOLDS:
        return False
    levels = Levels.from_ratings(ratings)
    in_top = int(levels.counts[levels.values >= top_of(values)].sum())
    return in_top >= LEAST_TOP_SHARE * ratings.nnz


def top_of(values: Float64) -> float:
    """Return where the top of a scale begins, given its levels."""
    low = float(values[0])
    high = float(values[-1])
    return low + TOP * (high - low)


def _share_of_zeros(ratings: Ratings) -> float:
    """Return the share of training ratings that are 0."""
    if ratings.minimum != 0:
        return 0.0
    zeros = sum(int(np.count_nonzero(values == 0)) for values in ratings.values("train"))
    return zeros / ratings.nnz


def _are_whole(ratings: Ratings) -> bool:
    """Whether all training ratings are whole numbers."""
    return not any(np.any(values % 1) for values in ratings.values("train"))
