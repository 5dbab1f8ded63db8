"""How much the effects of each level of time matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgmcmc.posterior.features import estimates_of
from dsgmcmc.posterior.saved import SavedRun

TITLE = "Effects of groups of ratings"
HEADINGS = ("ratings that share one", "sd", "5 %", "95 %", "of the variance")


@dataclass(frozen=True)
class EffectImportance:
    """Spread of the effects of one level.

    Attributes
    ----------
    name : str
        As the settings have it, such as ``user:8``.
    sd, low, high : float
        Their sd, 1 / sqrt(lambda): posterior mean, and bounds of the central 90 % interval, in units of the predictor.
    share : float or None
        Posterior mean of their variance, relative to that of the test ratings; None where predictors are no ratings, or
        there are no test ratings.
    """

    name: str
    sd: float
    low: float
    high: float
    share: float | None


def importance_of_effects(run: SavedRun) -> list[EffectImportance]:
    """Importance of all levels, in the order of the settings; empty if the run has none."""
    names = list(run.config.times)
    if not names:
        return []
    weights = np.concatenate([trace["weight"][:, 0] for trace in run.traces])
    baselines = run.facts.get("baselines") if run.config.law.is_linear() else None
    variances = 1 / np.concatenate([trace["time.precision"] for trace in run.traces])
    means = weights @ variances / weights.sum()
    by_name = {estimate.name: estimate for estimate in estimates_of(names, np.sqrt(variances), weights)}
    importance = []
    for name, variance in zip(names, means.tolist(), strict=True):
        share = variance / baselines["mean_only"] ** 2 if baselines else None
        sd = by_name[name]
        importance.append(EffectImportance(name, sd.mean, sd.low, sd.high, share))
    return importance


def table_of_effects(effects: list[EffectImportance]) -> list[list[str]]:
    """Rows of a table: name, sd, its bounds, and the share in per cent."""
    rows = []
    for level in effects:
        numbers = [f"{x:.3f}" for x in (level.sd, level.low, level.high)]
        rows.append([level.name, *numbers, "" if level.share is None else f"{level.share:.1%}"])
    return rows
