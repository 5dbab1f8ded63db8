"""The candidate models of a comparison: likelihoods with additions that suit the ratings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.ordinal.ordinal import LEAST_LEVELS, MAX_THRESHOLDS
from dsgmcmc.types import Float64, Int64

#: Sweeps of a chain's burn-in, and the largest number of sweeps of a chain.
BURN_IN_SWEEPS = 50
MAX_SWEEPS = 300
#: Sweeps of all chains together, for fewer than `MANY_RATINGS` training ratings and from this
#: number on.
ALL_SWEEPS = 1400
ALL_SWEEPS_MANY = 840
MANY_RATINGS = 200_000

#: Name of the model without factors, which has no additions.
BIASES_ONLY = "biases only"

#: Name of the model for items that differ in their levels.
ITEM_LEVELS = "item levels"

#: Settings of each likelihood for ratings, the simplest first.
CANDIDATE_LIKELIHOODS: dict[str, dict[str, Any]] = {
    BIASES_ONLY: {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared", "rank": 0},
    "plain": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"},
    "log": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared", "scale": "log"},
    "log1p": {
        "likelihood": "gaussian",
        "noise": "shared",
        "thresholds": "shared",
        "scale": "log1p",
    },
    "noise": {"likelihood": "gaussian", "noise": "both", "thresholds": "shared"},
    "log noise": {
        "likelihood": "gaussian",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log",
    },
    "log1p noise": {
        "likelihood": "gaussian",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log1p",
    },
    "tails": {"likelihood": "student-t", "noise": "both", "thresholds": "shared"},
    "log tails": {
        "likelihood": "student-t",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log",
    },
    "log1p tails": {
        "likelihood": "student-t",
        "noise": "both",
        "thresholds": "shared",
        "scale": "log1p",
    },
    "counts": {"likelihood": "negative-binomial", "noise": "shared", "thresholds": "shared"},
    "ordinal": {"likelihood": "ordinal-logit", "noise": "by-item", "thresholds": "user"},
    ITEM_LEVELS: {"likelihood": "ordinal-logit", "noise": "by-item", "thresholds": "item"},
}

#: Logarithms are tried if the largest rating is at least this number of medians.
MANY_MEDIANS = 20

#: Integer ratings are tried as counts if their maximum exceeds this number.
SMALL_COUNTS = 10

#: Settings of the likelihood for clicks, that is, for training ratings that are all 1.
CLICKS: dict[str, dict[str, Any]] = {
    "clicks": {"likelihood": "all-cells", "noise": "shared", "thresholds": "shared"}
}

#: Additions to a likelihood: the setting of each addition, and its value.
ADDED: dict[str, tuple[str, str]] = {
    "features": ("features", "yes"),
    "implicit": ("implicit_features", "both"),
    "time": ("time_levels", "user"),
}


class Candidate(NamedTuple):
    """A candidate model.

    Attributes
    ----------
    likelihood : str
        A key of `CANDIDATE_LIKELIHOODS` or `CLICKS`.
    added : tuple of str
        Keys of `ADDED`.
    binary : bool
        Whether the ratings have two values, and neither weights nor bounds: logistic regression
        then takes the place of Gaussian likelihoods, whose predictive intervals would be wrong.
    arrangement : str
        Name of the arrangement of a table of three directions; empty for a matrix.
    """

    likelihood: str
    added: tuple[str, ...]
    binary: bool = False
    arrangement: str = ""

    @property
    def name(self) -> str:
        """The likelihood and its additions, joined by plus signs, after the arrangement."""
        model = " + ".join((self.likelihood, *self.added))
        if self.arrangement:
            return f"{self.arrangement}: {model}"
        return model

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the model, by their names in ``dsgmcmc sample``."""
        likelihoods = CANDIDATE_LIKELIHOODS | CLICKS
        settings = dict(likelihoods[self.likelihood])
        for addition, (setting, value) in ADDED.items():
            settings[setting] = value if addition in self.added else "no"
        if self.binary:
            settings["likelihood"] = "ordinal-logit"
        return settings


def likelihoods_for(ratings: Levels, *, items_differ: bool = False) -> list[str]:
    """List the likelihoods that suit training ratings, the simplest first.

    Biases only, ``plain`` and ``noise`` suit all ratings. Student-t suits ratings with more than 25
    distinct values, and logarithms (``log``, ``log noise``, ``log tails``) suit those of them that
    are positive and `skewed`. The negative binomial suits nonnegative integers with a maximum above
    10 and a variance above their mean. Logarithms of counts plus 1 suit those of them that have
    zeros and more than 25 distinct values, and are `skewed` with 1 added. The ordinal likelihood
    suits 3 to 25 distinct values, with levels of every item if these differ.

    Parameters
    ----------
    ratings : Levels
        Distinct values, ascending, and their counts.
    items_differ : bool
        Whether items clearly differ in their levels.
    """
    values = ratings.values
    counts = ratings.counts
    has_many_values = len(values) > MAX_THRESHOLDS
    has_counts = _are_overdispersed_counts(values, counts)
    logarithms_suit = {
        "log": has_many_values and values[0] > 0 and skewed(values, counts),
        "log1p": has_counts and has_many_values and values[0] == 0 and skewed(values + 1, counts),
    }
    suits = {
        "tails": has_many_values,
        "counts": has_counts,
        "ordinal": LEAST_LEVELS <= len(values) <= MAX_THRESHOLDS,
        ITEM_LEVELS: items_differ and LEAST_LEVELS <= len(values) <= MAX_THRESHOLDS,
    }
    for name, settings in CANDIDATE_LIKELIHOODS.items():
        if "scale" in settings:
            suits[name] = logarithms_suit[settings["scale"]]
    return [name for name in CANDIDATE_LIKELIHOODS if suits.get(name, True)]


def _are_overdispersed_counts(values: Float64, counts: Int64) -> bool:
    """Whether ratings are counts, not only small ones, with a variance above their mean."""
    if values[0] < 0 or np.any(values % 1):
        return False
    mean = np.average(values, weights=counts)
    variance = np.average(np.square(values - mean), weights=counts)
    return bool(values[-1] > SMALL_COUNTS and variance > mean)


def skewed(values: Float64, counts: Int64) -> bool:
    """Whether positive ratings are so skewed that their logarithms are tried.

    They are if they reach `MANY_MEDIANS` medians, or have logarithms less than half as skewed.
    """
    median = values[np.searchsorted(np.cumsum(counts), counts.sum() / 2)]
    if values[-1] >= MANY_MEDIANS * median:
        return True
    return _skewness(np.log(values), counts) < _skewness(values, counts) / 2


def _skewness(values: Float64, counts: Int64) -> float:
    """Return the absolute skewness times a factor that depends on the number of ratings alone."""
    deviations = values - np.average(values, weights=counts)
    return float(abs(counts @ deviations**3) / (counts @ deviations**2) ** 1.5)


def candidates(
    *,
    clicks: bool,
    features: bool,
    times: bool,
    likelihoods: Collection[str] = CANDIDATE_LIKELIHOODS,
) -> list[Candidate]:
    """List the candidate models, the simplest first; settings or ratings may exclude some of them.

    Parameters
    ----------
    clicks : bool
        Whether all ratings are 1.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the ratings have times.
    likelihoods : collection of str
        Keys of `CANDIDATE_LIKELIHOODS` that suit the ratings; unused for clicks.
    """
    available = {"features": features, "implicit": True, "time": times and not clicks}
    additions = [name for name in ADDED if available[name]]
    subsets = [
        subset for size in range(len(additions) + 1) for subset in combinations(additions, size)
    ]
    names = CLICKS if clicks else likelihoods
    models = [Candidate(name, subset) for name in names for subset in subsets]
    return [model for model in models if model.likelihood != BIASES_ONLY or not model.added]


def length_of(ratings: int, models: Sequence[Candidate]) -> int:
    """Return the number of sweeps of every candidate's chain, burn-in included.

    Parameters
    ----------
    ratings : int
        Number of training ratings.
    models : sequence of Candidate
        All candidates.
    """
    # biases only take little time
    bare = [model for model in models if not model.added and model.likelihood != BIASES_ONLY]
    additions = {model.added for model in models if len(model.added) == 1}
    all_sweeps = ALL_SWEEPS_MANY if ratings >= MANY_RATINGS else ALL_SWEEPS
    return min(MAX_SWEEPS, all_sweeps // (len(bare) + len(additions) + 1))
