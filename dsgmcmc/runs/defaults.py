"""Settings that a run gets by its ratings, where the user has chosen none: a table of rules.

Rules depend on ratings and settings alone, never on the machine. Comparisons try the same settings
(`dsgmcmc.runs.candidates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dsgmcmc.config.chain import AUTO, DEFAULT_SAMPLER
from dsgmcmc.config.run import ResolvedConfig, build, merged
from dsgmcmc.diagnostics.baselines import BiasesOnly
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.ordinal.ordinal import recognised_levels
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.kurtosis import kurtosis
from dsgmcmc.settings import named
from dsgmcmc.terminal import log

#: Ratings are dense from so many training ratings, and so large a share of all pairs, on. Rows with
#: ratings of most others have narrow, correlated laws: BAOAB then needs many more sweeps than Gibbs
#: sampling, or diverges. With fewer ratings, neither takes long: docs/evidence/robust.md.
DENSE_RATINGS = 10_000
DENSE_SHARE = 0.2

#: Fits biases only to the ratings, on the scale of a configuration.
FitBiases = Callable[[ResolvedConfig], BiasesOnly]


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


class Default(NamedTuple):
    """Settings that suit some ratings, and what the user is told.

    Attributes
    ----------
    settings : dict
        The settings.
    left_open : callable
        Whether the requested settings leave these open.
    may_suit : callable
        Whether they may suit the ratings. It is asked first, and is quick.
    reason : callable
        What the user is told.
    suits : callable, optional
        Whether they suit the ratings, given the configuration that has them.
    is_checked : bool
        Whether the configuration is checked against the ratings, too: weights and bounds do not
        admit all likelihoods and samplers.
    """

    settings: dict[str, Any]
    left_open: Callable[[Mapping[str, Any]], bool]
    may_suit: Callable[[RunRatings], bool]
    reason: Callable[[RunRatings], str]
    suits: Callable[[RunRatings, ResolvedConfig], bool] | None = None
    is_checked: bool = True


def _open_levels(requested: Mapping[str, Any]) -> bool:
    """Whether neither thresholds nor another likelihood is chosen."""
    return "thresholds" not in requested and requested.get("likelihood") in (None, "ordinal-logit")


#: Items with levels of their own.
ITEM_LEVELS = Default(
    settings={"likelihood": "ordinal-logit", "thresholds": "item"},
    left_open=_open_levels,
    may_suit=lambda found: bool(found.ratings.item_levels),
    reason=lambda found: (
        "items differ in their levels, so that each gets its own: likelihood ordinal-logit with"
        f" thresholds of every item; choose others by {named('likelihood')} and"
        f" {named('thresholds')}"
    ),
)


def _name_two_values(found: RunRatings) -> str:
    values = found.ratings.levels(2)
    assert values is not None
    return (
        f"ratings of two values, {values[0]:g} and {values[1]:g}, get the likelihood ordinal-logit"
        f" (logistic): choose another by {named('likelihood')}"
    )


#: Two values, such as 0 and 1.
TWO_VALUES = Default(
    settings={"likelihood": "ordinal-logit"},
    left_open=lambda requested: "likelihood" not in requested,
    may_suit=lambda found: not found.ratings.item_levels and found.are_two_values,
    reason=_name_two_values,
)

#: One value, 1: which pairs there are is all that can be learnt.
CLICKS = Default(
    settings={"likelihood": "all-cells"},
    left_open=lambda requested: "likelihood" not in requested,
    may_suit=lambda found: found.are_clicks,
    is_checked=False,  # clicks that it does not admit are refused: no other likelihood suits them
    reason=lambda found: (
        "ratings are all 1, so they get the likelihood all-cells, of clicks: choose another by"
        f" {named('likelihood')}"
    ),
)


def _rows_differ(found: RunRatings, config: ResolvedConfig) -> bool:
    """Whether the errors of biases only have tails that scales of rows explain."""
    if config.likelihood != "gaussian" or config.scale != "identity":
        return False
    if recognised_levels(found.ratings) is not None:
        return False
    return kurtosis(found.ratings, found.fit_biases(config)).needs_own_noise


#: Dense measurements of rows of unequal scale.
OWN_NOISE = Default(
    settings={"noise": "both"},
    left_open=lambda requested: {"noise", "noise_precision", "prior"}.isdisjoint(requested),
    may_suit=lambda found: found.are_dense,
    suits=_rows_differ,
    is_checked=False,
    reason=lambda found: (
        f"{named('noise')} both: users and items differ in the scale of their ratings, so each has"
        " a noise level of its own"
    ),
)


def _is_measured(found: RunRatings, config: ResolvedConfig) -> bool:
    """Whether docs/evidence/robust.md has such models by Gibbs sampling."""
    return config.law.is_sum_over_ratings and config.implicit_features == "no"


#: Dense ratings of any kind.
EXACT_SAMPLER = Default(
    settings={"sampler": {"name": "gibbs"}},
    left_open=lambda requested: (
        not requested["sampler"] and build(requested).sampler.name == DEFAULT_SAMPLER
    ),
    may_suit=lambda found: found.are_dense,
    suits=_is_measured,
    reason=lambda found: (
        f"{named('sampler')} {AUTO}: gibbs, as {100 * found.share:.0f} % of all pairs are rated"
    ),
)

#: The rules in their order: a later one sees what earlier ones have chosen.
DEFAULTS = (ITEM_LEVELS, TWO_VALUES, CLICKS, OWN_NOISE, EXACT_SAMPLER)


def chosen_by_ratings(found: RunRatings, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the rules add to requested ones, and tell the user.

    A rule adds nothing if the other settings, or the ratings, do not admit its settings.
    """
    chosen: dict[str, Any] = {}
    for rule in DEFAULTS:
        given = merged(requested, chosen)
        if not rule.may_suit(found) or not rule.left_open(given):
            continue
        config = _resolved(merged(given, rule.settings), found.ratings if rule.is_checked else None)
        if config is None:
            continue
        if rule.suits is not None and not rule.suits(found, config):
            continue
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
