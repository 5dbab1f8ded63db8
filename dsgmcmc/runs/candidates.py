"""The candidate models of a comparison, in order of complexity: a law of the ratings, with optional additions.

Candidates are ordered by their law, as in `LAWS`, and for each law by the number of additions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.ordinal import LEAST_LEVELS, MAX_THRESHOLDS

#: Name of the model without factors, which has no additions.
BIASES_ONLY = "biases only"

#: Settings of each law of the ratings, the simplest first.
LAWS: dict[str, dict[str, Any]] = {
    BIASES_ONLY: {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared", "rank": 0},
    "plain": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"},
    "noise": {"likelihood": "gaussian", "noise": "both", "thresholds": "shared"},
    "tails": {"likelihood": "student-t", "noise": "both", "thresholds": "shared"},
    "counts": {"likelihood": "negative-binomial", "noise": "shared", "thresholds": "shared"},
    "logistic": {"likelihood": "ordinal-logit", "noise": "both", "thresholds": "shared"},
    "ordinal": {"likelihood": "ordinal-logit", "noise": "by-item", "thresholds": "user"},
}

#: Integer ratings are tried as counts if their maximum is larger.
SMALL_COUNTS = 10

#: Settings of the law of clicks, for training ratings that are all 1.
CLICKS: dict[str, dict[str, Any]] = {"clicks": {"likelihood": "all-cells", "noise": "shared", "thresholds": "shared"}}

#: Additions to a law: each a setting and its value.
ADDED: dict[str, tuple[str, str]] = {
    "features": ("features", "yes"),
    "implicit": ("implicit_features", "both"),
    "time": ("time_levels", "user"),
}


class Candidate(NamedTuple):
    """A candidate model.

    Attributes
    ----------
    law : str
        A key of `LAWS` or `CLICKS`.
    added : tuple of str
        Keys of `ADDED`.
    """

    law: str
    added: tuple[str, ...]

    @property
    def name(self) -> str:
        """The law and its additions, joined by plus signs."""
        return " + ".join((self.law, *self.added))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the model, by their names in ``dsgmcmc sample``."""
        parts = {setting: value if part in self.added else "no" for part, (setting, value) in ADDED.items()}
        return {**(LAWS | CLICKS)[self.law], **parts}


def laws_for(ratings: Levels) -> list[str]:
    """List the laws that suit the training ratings, the simplest first.

    Student-t suits ratings with more than 25 distinct values. The negative binomial suits nonnegative integers with a
    maximum above 10 and a variance above their mean. Two distinct values suit logistic regression, and 3 to 25 the
    ordinal law.
    """
    values, counts = ratings
    mean = np.average(values, weights=counts)
    spread = np.average(np.square(values - mean), weights=counts) > mean
    whole = values[0] >= 0 and not np.any(values % 1)
    tried = {"tails": len(values) > MAX_THRESHOLDS, "logistic": len(values) < LEAST_LEVELS}
    tried["ordinal"] = LEAST_LEVELS <= len(values) <= MAX_THRESHOLDS
    tried["counts"] = bool(whole and values[-1] > SMALL_COUNTS and spread)
    return [law for law in LAWS if tried.get(law, True)]


def candidates(
    *,
    clicks: bool,
    features: bool,
    times: bool,
    laws: Collection[str] = tuple(LAWS),
) -> list[Candidate]:
    """List the candidate models, the simplest first; settings or ratings may not admit all of them.

    Parameters
    ----------
    clicks : bool
        Whether all ratings are 1.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the ratings have times.
    laws : collection of str
        Keys of `LAWS` that suit the ratings; unused for clicks.
    """
    there = {"features": features, "implicit": True, "time": times and not clicks}
    added = [name for name in ADDED if there[name]]
    chosen = [some for size in range(len(added) + 1) for some in combinations(added, size)]
    models = [Candidate(law, some) for law in (CLICKS if clicks else laws) for some in chosen]
    return [each for each in models if each.law != BIASES_ONLY or not each.added]
