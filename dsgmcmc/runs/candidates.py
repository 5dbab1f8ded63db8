"""The models that are compared, in the order of their complexity: a law of ratings, and what is added to it.

The order is that of `LAWS`, and with each law of what is added: nothing, one of `ADDED`, two of them, all. The first is
the plain model without factors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.ordinal import MAX_THRESHOLDS
from dsgmcmc.model.likelihoods.thresholds import LEAST_LEVELS

#: Name of the model without factors, to which nothing is added.
BIASES_ONLY = "biases only"

#: Laws of ratings by their names, the simplest first.
LAWS: dict[str, dict[str, Any]] = {
    BIASES_ONLY: {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared", "rank": 0},
    "plain": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"},
    "noise": {"likelihood": "gaussian", "noise": "both", "thresholds": "shared"},
    "tails": {"likelihood": "student-t", "noise": "both", "thresholds": "shared"},
    "counts": {"likelihood": "negative-binomial", "noise": "shared", "thresholds": "shared"},
    "logistic": {"likelihood": "ordinal-logit", "noise": "both", "thresholds": "shared"},
    "ordinal": {"likelihood": "ordinal-logit", "noise": "by-item", "thresholds": "user"},
}

#: Whole ratings are tried as counts if some are larger.
SMALL_COUNTS = 10

#: The law where every training rating is a click.
CLICKS: dict[str, dict[str, Any]] = {"clicks": {"likelihood": "all-cells", "noise": "shared", "thresholds": "shared"}}

#: What can be added to each law: the setting, and its value.
ADDED: dict[str, tuple[str, str]] = {
    "features": ("features", "yes"),
    "implicit": ("implicit_features", "both"),
    "time": ("time_levels", "user"),
}


class Candidate(NamedTuple):
    """A model.

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
        """The law, and what is added."""
        return " + ".join((self.law, *self.added))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings by the names of `sample`."""
        parts = {setting: value if part in self.added else "no" for part, (setting, value) in ADDED.items()}
        return {**(LAWS | CLICKS)[self.law], **parts}


def laws_for(ratings: Levels) -> list[str]:
    """Laws that these training ratings may have, the simplest first.

    Student-t is for measurements, and the negative binomial for whole numbers with a maximum above 10 and a variance
    above their mean. Two different ratings call for logistic regression, 3 to 25 are levels.
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
    """The models that ratings may suit, the simplest first; settings or ratings may not admit all of them.

    Parameters
    ----------
    clicks : bool
        Whether all ratings are 1.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the order in time is known.
    laws : collection of str
        Keys of `LAWS`: those that ratings may have, unless all are 1.
    """
    there = {"features": features, "implicit": True, "time": times and not clicks}
    added = [name for name in ADDED if there[name]]
    chosen = [some for size in range(len(added) + 1) for some in combinations(added, size)]
    models = [Candidate(law, some) for law in (CLICKS if clicks else laws) for some in chosen]
    return [each for each in models if each.law != BIASES_ONLY or not each.added]
