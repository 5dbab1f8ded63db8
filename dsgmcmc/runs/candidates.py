"""The candidate models of a comparison: likelihoods with additions that suit the ratings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods.ordinal.ordinal import LEAST_LEVELS, MAX_THRESHOLDS
from dsgmcmc.runs.defaults import ITEM_LEVELS, OWN_NOISE, TWO_VALUES
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

#: Logarithms are tried if the largest rating is at least this number of medians.
MANY_MEDIANS = 20

#: Integer ratings are tried as counts if their maximum exceeds this number.
SMALL_COUNTS = 10


class RatedValues(NamedTuple):
    """The values of training ratings, by which likelihoods are tried.

    Attributes
    ----------
    values : (R,) float64
        Distinct values, ascending.
    counts : (R,) int64
        Number of training ratings with each value.
    items_differ : bool
        Whether items clearly differ in their levels.
    """

    values: Float64
    counts: Int64
    items_differ: bool = False

    @property
    def are_many(self) -> bool:
        """Whether there are more values than levels may be."""
        return len(self.values) > MAX_THRESHOLDS

    @property
    def are_levels(self) -> bool:
        """Whether there are 3 to 25 values."""
        return LEAST_LEVELS <= len(self.values) <= MAX_THRESHOLDS

    @property
    def are_counts(self) -> bool:
        """Whether they are counts, not only small ones, with a variance above their mean."""
        if self.values[0] < 0 or np.any(self.values % 1):
            return False
        mean = np.average(self.values, weights=self.counts)
        variance = np.average(np.square(self.values - mean), weights=self.counts)
        return bool(self.values[-1] > SMALL_COUNTS and variance > mean)

    @property
    def have_logarithms(self) -> bool:
        """Whether they are many, positive and `skewed`."""
        return self.are_many and self.values[0] > 0 and skewed(self.values, self.counts)

    @property
    def have_logarithms_of_counts(self) -> bool:
        """Whether they are many counts, with zeros, and are `skewed` with 1 added."""
        if not self.are_many or self.values[0] != 0 or not self.are_counts:
            return False
        return skewed(self.values + 1, self.counts)


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


class Rule(NamedTuple):
    """A likelihood that comparisons try, and for which ratings.

    Attributes
    ----------
    name : str
    settings : dict
        Its settings, by their names in ``dsgmcmc sample``.
    suits : callable, optional
        Whether it suits ratings; it suits all without this.
    """

    name: str
    settings: Mapping[str, Any]
    suits: Callable[[RatedValues], bool] | None = None


_PLAIN: dict[str, Any] = {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"}
_NOISE = _PLAIN | OWN_NOISE.settings
_TAILS = _NOISE | {"likelihood": "student-t"}
_LEVELS = _PLAIN | TWO_VALUES.settings | {"noise": "by-item"}
_LOG = {"scale": "log"}
_LOG1P = {"scale": "log1p"}


#: The likelihoods, the simplest first.
RULES = (
    Rule(BIASES_ONLY, _PLAIN | {"rank": 0}),
    Rule("plain", _PLAIN),
    Rule("log", _PLAIN | _LOG, lambda found: found.have_logarithms),
    Rule("log1p", _PLAIN | _LOG1P, lambda found: found.have_logarithms_of_counts),
    Rule("noise", _NOISE),
    Rule("log noise", _NOISE | _LOG, lambda found: found.have_logarithms),
    Rule("log1p noise", _NOISE | _LOG1P, lambda found: found.have_logarithms_of_counts),
    Rule("tails", _TAILS, lambda found: found.are_many),
    Rule("log tails", _TAILS | _LOG, lambda found: found.have_logarithms),
    Rule("log1p tails", _TAILS | _LOG1P, lambda found: found.have_logarithms_of_counts),
    Rule("counts", _PLAIN | {"likelihood": "negative-binomial"}, lambda found: found.are_counts),
    Rule("ordinal", _LEVELS | {"thresholds": "user"}, lambda found: found.are_levels),
    Rule(
        "item levels",
        _LEVELS | ITEM_LEVELS.settings,
        lambda found: found.are_levels and found.items_differ,
    ),
)
#: The likelihood for clicks, that is, for training ratings that are all 1.
CLICKS = Rule("clicks", _PLAIN | {"likelihood": "all-cells"})
#: Settings of each likelihood, by its name.
SETTINGS = {rule.name: rule.settings for rule in (*RULES, CLICKS)}

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
        Name of a rule of `RULES`, or of `CLICKS`.
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
        settings = dict(SETTINGS[self.likelihood])
        for addition, (setting, value) in ADDED.items():
            settings[setting] = value if addition in self.added else "no"
        if self.binary:
            settings |= TWO_VALUES.settings
        return settings


def rules_for(found: RatedValues) -> list[Rule]:
    """List the likelihoods that suit training ratings, the simplest first."""
    return [rule for rule in RULES if rule.suits is None or rule.suits(found)]


def candidates(rules: Sequence[Rule], *, features: bool, times: bool) -> list[Candidate]:
    """List the candidate models, the simplest first; settings or ratings may exclude some of them.

    Parameters
    ----------
    rules : sequence of Rule
        The likelihoods that suit the ratings.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the ratings have times; clicks have no effects of time.
    """
    available = {"features": features, "implicit": True, "time": times and CLICKS not in rules}
    additions = [name for name in ADDED if available[name]]
    subsets = [
        subset for size in range(len(additions) + 1) for subset in combinations(additions, size)
    ]
    models = [Candidate(rule.name, subset) for rule in rules for subset in subsets]
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
