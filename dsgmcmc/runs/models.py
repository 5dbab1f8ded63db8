"""The models that comparisons try, and those that runs get by default: one table of rules.

A rule has settings that suit some ratings. A comparison tries the models of `RULES`, with additions
to them; a run gets the settings of `DEFAULTS` that suit its ratings, where the user has chosen
none. Rules depend on ratings and settings alone, never on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.chain import AUTO, DEFAULT_SAMPLER
from dsgmcmc.config.run import ResolvedConfig, build, merged
from dsgmcmc.diagnostics.baselines import BiasesOnly
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.ordinal.ordinal import (
    LEAST_LEVELS,
    MAX_THRESHOLDS,
    recognised_levels,
)
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.kurtosis import kurtosis
from dsgmcmc.settings import named
from dsgmcmc.terminal import log
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


#: Ratings are dense from so many training ratings, and so large a share of all pairs, on. Rows with
#: ratings of most others have narrow, correlated laws: BAOAB then needs many more sweeps than Gibbs
#: sampling, or diverges. With fewer ratings, neither takes long: docs/evidence/robust.md.
DENSE_RATINGS = 10_000
DENSE_SHARE = 0.2

#: Fits biases only to the ratings, on the scale of a configuration.
FitBiases = Callable[[ResolvedConfig], BiasesOnly]


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

    def are_many(self) -> bool:
        """Whether there are more values than levels may be."""
        return len(self.values) > MAX_THRESHOLDS

    def are_levels(self) -> bool:
        """Whether there are 3 to 25 values."""
        return LEAST_LEVELS <= len(self.values) <= MAX_THRESHOLDS

    def are_counts(self) -> bool:
        """Whether they are counts, not only small ones, with a variance above their mean."""
        if self.values[0] < 0 or np.any(self.values % 1):
            return False
        mean = np.average(self.values, weights=self.counts)
        variance = np.average(np.square(self.values - mean), weights=self.counts)
        return bool(self.values[-1] > SMALL_COUNTS and variance > mean)

    def have_logarithms(self) -> bool:
        """Whether they are many, positive and `skewed`."""
        return self.are_many() and self.values[0] > 0 and skewed(self.values, self.counts)

    def have_logarithms_of_counts(self) -> bool:
        """Whether they are many counts, with zeros, and are `skewed` with 1 added."""
        if not self.are_many() or self.values[0] != 0 or not self.are_counts():
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


class RunRatings(NamedTuple):
    """What rules ask: the open ratings, and a fit of biases only to them."""

    ratings: Ratings
    fit_biases: FitBiases

    @property
    def share(self) -> float:
        """Share of all pairs that is rated for training."""
        return self.ratings.nnz / (self.ratings.n_rows * self.ratings.n_cols)

    @property
    def are_dense(self) -> bool:
        """Whether so many, and so large a share, of all pairs are rated."""
        return self.ratings.nnz >= DENSE_RATINGS and self.share >= DENSE_SHARE

    @property
    def are_two_values(self) -> bool:
        """Whether the ratings have two distinct values."""
        values = self.ratings.levels(2)
        return values is not None and len(values) == 2

    @property
    def are_clicks(self) -> bool:
        """Whether every rating is 1."""
        return self.ratings.minimum == 1.0 == self.ratings.maximum


class Rule(NamedTuple):
    """Settings that suit some ratings.

    Attributes
    ----------
    name : str
        Name of the models that comparisons try with them; empty if there are none.
    settings : dict
        The settings, by their names in ``dsgmcmc sample``.
    compared : dict
        Settings that the compared models have, too.
    tried : callable, optional
        Whether comparisons try them for ratings of these values; for all without this.
    is_default : callable, optional
        Whether a run may get them by default: it is quick, and asks the ratings first, then whether
        requested settings leave these open. Runs never get those without this.
    suits : callable, optional
        Whether they suit the ratings of a run, given the configuration that has them.
    reason : callable
        What the user of such a run is told.
    is_checked : bool
        Whether the configuration is checked against the ratings, too: weights and bounds do not
        admit all likelihoods and samplers.
    """

    name: str
    settings: Mapping[str, Any]
    compared: Mapping[str, Any] = MappingProxyType({})
    tried: Callable[[RatedValues], bool] | None = None
    is_default: Callable[[RunRatings, Mapping[str, Any]], bool] | None = None
    suits: Callable[[RunRatings, ResolvedConfig], bool] | None = None
    reason: Callable[[RunRatings], str] = lambda found: ""
    is_checked: bool = True

    def with_logarithms(self) -> Iterator[Rule]:
        """Yield this rule, and the same for logarithms of the ratings."""
        yield self
        for scale, tried in LOGARITHMS.items():
            name = f"{scale} {self.name}".removesuffix(" plain")
            settings = {**self.settings, "scale": scale}
            yield Rule(name, settings, tried=tried)


#: Scales of logarithms, and the ratings for which they are tried.
LOGARITHMS = {
    "log": RatedValues.have_logarithms,
    "log1p": RatedValues.have_logarithms_of_counts,
}


def _levels_differ(found: RunRatings, requested: Mapping[str, Any]) -> bool:
    """Whether items differ in their levels, and neither thresholds nor another law is chosen."""
    if not found.ratings.item_levels or "thresholds" in requested:
        return False
    return requested.get("likelihood") in (None, "ordinal-logit")


#: Items with levels of their own.
ITEM_LEVELS = Rule(
    "item levels",
    {"likelihood": "ordinal-logit", "thresholds": "item"},
    compared={"noise": "by-item"},
    tried=lambda found: found.are_levels() and found.items_differ,
    is_default=_levels_differ,
    reason=lambda found: (
        "items differ in their levels, so that each gets its own: likelihood ordinal-logit with"
        f" thresholds of every item; choose others by {named('likelihood')} and"
        f" {named('thresholds')}"
    ),
)


def _are_two_values(found: RunRatings, requested: Mapping[str, Any]) -> bool:
    """Whether the ratings have two values for all items, and no likelihood is chosen."""
    if found.ratings.item_levels or not found.are_two_values:
        return False
    return "likelihood" not in requested


def _name_two_values(found: RunRatings) -> str:
    values = found.ratings.levels(2)
    assert values is not None
    return (
        f"ratings of two values, {values[0]:g} and {values[1]:g}, get the likelihood ordinal-logit"
        f" (logistic): choose another by {named('likelihood')}"
    )


#: Two values, such as 0 and 1.
TWO_VALUES = Rule(
    "", {"likelihood": "ordinal-logit"}, is_default=_are_two_values, reason=_name_two_values
)

#: One value, 1: which pairs there are is all that can be learnt.
CLICKS = Rule(
    "clicks",
    {"likelihood": "all-cells"},
    is_default=lambda found, requested: found.are_clicks and "likelihood" not in requested,
    is_checked=False,  # clicks that it does not admit are refused: no other likelihood suits them
    reason=lambda found: (
        "ratings are all 1, so they get the likelihood all-cells, of clicks: choose another by"
        f" {named('likelihood')}"
    ),
)


def _leave_noise_open(found: RunRatings, requested: Mapping[str, Any]) -> bool:
    """Whether the ratings are dense, and no setting of their noise is chosen."""
    return found.are_dense and {"noise", "noise_precision", "prior"}.isdisjoint(requested)


def _rows_differ(found: RunRatings, config: ResolvedConfig) -> bool:
    """Whether the errors of biases only have tails that scales of rows explain."""
    if config.likelihood != "gaussian" or config.scale != "identity":
        return False
    if recognised_levels(found.ratings) is not None:
        return False
    return kurtosis(found.ratings, found.fit_biases(config)).needs_own_noise


#: Noise levels of rows; by default for dense measurements of rows of unequal scale.
OWN_NOISE = Rule(
    "noise",
    {"noise": "both"},
    is_default=_leave_noise_open,
    suits=_rows_differ,
    is_checked=False,
    reason=lambda found: (
        f"{named('noise')} both: users and items differ in the scale of their ratings, so each has"
        " a noise level of its own"
    ),
)


def _leave_sampler_open(found: RunRatings, requested: Mapping[str, Any]) -> bool:
    """Whether the ratings are dense, and the requested settings have the default sampler."""
    if not found.are_dense or requested["sampler"]:
        return False
    return build(requested).sampler.name == DEFAULT_SAMPLER


def _is_measured(found: RunRatings, config: ResolvedConfig) -> bool:
    """Whether docs/evidence/robust.md has such models by Gibbs sampling."""
    return config.law.is_sum_over_ratings and config.implicit_features == "no"


#: Dense ratings of any kind.
EXACT_SAMPLER = Rule(
    "",
    {"sampler": {"name": "gibbs"}},
    is_default=_leave_sampler_open,
    suits=_is_measured,
    reason=lambda found: (
        f"{named('sampler')} {AUTO}: gibbs, as {100 * found.share:.0f} % of all pairs are rated"
    ),
)

#: The likelihoods that comparisons try, the simplest first.
RULES = (
    Rule(BIASES_ONLY, {"rank": 0}),
    *Rule("plain", {}).with_logarithms(),
    *OWN_NOISE.with_logarithms(),
    *Rule(
        "tails", {"noise": "both", "likelihood": "student-t"}, tried=RatedValues.are_many
    ).with_logarithms(),
    Rule("counts", {"likelihood": "negative-binomial"}, tried=RatedValues.are_counts),
    Rule(
        "ordinal",
        {"likelihood": "ordinal-logit", "thresholds": "user"},
        compared={"noise": "by-item"},
        tried=RatedValues.are_levels,
    ),
    ITEM_LEVELS,
)
#: The rules by which runs get settings, in their order: a later one sees what earlier ones chose.
DEFAULTS = (ITEM_LEVELS, TWO_VALUES, CLICKS, OWN_NOISE, EXACT_SAMPLER)

#: Settings that compared models have unless their rule has others.
PLAIN = {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"}
#: Settings of each likelihood of comparisons, by its name.
SETTINGS = {rule.name: {**PLAIN, **rule.settings, **rule.compared} for rule in (*RULES, CLICKS)}


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
    return [rule for rule in RULES if rule.tried is None or rule.tried(found)]


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


def chosen_by_ratings(found: RunRatings, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the rules add to requested ones, and tell the user.

    A rule adds nothing if the other settings, or the ratings, do not admit its settings.
    """
    chosen: dict[str, Any] = {}
    for rule in DEFAULTS:
        given = merged(requested, chosen)
        if rule.is_default is None or not rule.is_default(found, given):
            continue
        config = _resolved(merged(given, rule.settings), found.ratings if rule.is_checked else None)
        if config is None:
            continue
        if rule.suits is None or rule.suits(found, config):
            log.info("%s", rule.reason(found))
            chosen = merged(chosen, rule.settings)
    return chosen


def _resolved(settings: Mapping[str, Any], ratings: Ratings | None) -> ResolvedConfig | None:
    """Return the resolved settings; None if they, or the ratings, do not admit each other."""
    try:
        config = build(settings).resolved()
        if ratings is not None:
            config.check_ratings(ratings)
    except InputError:
        return None
    return config
