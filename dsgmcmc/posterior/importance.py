"""Importance of the features of users and items, and of the effects of time.

The importance of a group of features is the mean square of its term B_g^T x_ig in the prior means of the rows, relative
to the variance of the rows around their prior means, averaged over the columns, at every draw. For a single feature, it
is the effect on the bias at the saved draws, in units of the ratings. Neither depends on the rotation of the latent
dimensions. For a level of time, it is the sd of its effects, and their share of the variance of the ratings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64

LEVEL = 0.9


@dataclass(frozen=True)
class FeatureEstimate:
    """Posterior mean of a parameter, and the bounds of its central interval of probability `LEVEL`."""

    name: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class FeatureImportance:
    """Importance of the features of the users or of the items.

    Attributes
    ----------
    groups : list of FeatureEstimate
        Variance that each group explains, relative to the remaining variance; the largest first.
    effects : list of FeatureEstimate
        Effect of each feature on the bias, in units of the ratings, the strongest first; empty without biases or saved
        draws.
    """

    groups: list[FeatureEstimate]
    effects: list[FeatureEstimate]


def feature_names(run: Run, kind: str) -> tuple[list[str], list[str]]:
    """Names of the features of the users or of the items, and their groups; empty if the run used none."""
    if f"{kind}.features.strength" not in run.traces[0]:
        return [], []
    return run.index.features(kind)


def importance(run: Run) -> dict[str, FeatureImportance]:
    """Importance of features, by "user" and "item" if they have any."""
    result = {}
    for kind in KINDS:
        names, groups = feature_names(run, kind)
        if not names:
            continue
        traced = [trace[f"{kind}.features.explained"] for trace in run.traces]
        weights = np.concatenate([trace["weight"][:, 0] for trace in run.traces])
        of_groups = estimates_of(list(dict.fromkeys(groups)), np.concatenate(traced), weights)
        of_features: list[FeatureEstimate] = []
        if run.config.biases and run.draws:
            of_features = estimates_of(names, run.effects(kind)[:, :, -1], run.draw_weights)
        result[kind] = FeatureImportance(of_groups, of_features)
    return result


def estimates_of(names: list[str], draws: Float64, weights: Float64) -> list[FeatureEstimate]:
    """Estimates from the columns of draws (n, names), by decreasing absolute mean."""
    share = weights / weights.sum()
    estimates = []
    for name, values in zip(names, draws.T, strict=True):
        order = np.argsort(values)
        below = np.cumsum(share[order]) - share[order] / 2
        low, high = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], below, values[order])
        estimates.append(FeatureEstimate(name, float(share @ values), float(low), float(high)))
    return sorted(estimates, key=lambda estimate: -abs(estimate.mean))


@dataclass(frozen=True)
class EffectImportance:
    """Spread of the effects of one level of time.

    Attributes
    ----------
    name : str
        Name in the settings, such as ``user:8``.
    sd, low, high : float
        Posterior mean of the sd of the effects, 1 / sqrt(lambda), and bounds of its central 90 % interval, in units of
        the predictor.
    share : float or None
        Posterior mean of the variance of the effects, relative to the variance of the test ratings; None if the
        predictor is not in units of the ratings, or there are no test ratings.
    """

    name: str
    sd: float
    low: float
    high: float
    share: float | None


def importance_of_effects(run: Run) -> list[EffectImportance]:
    """Importance of all levels of time, in the order of the settings; empty if the run has none."""
    names = list(run.config.times)
    if not names:
        return []
    weights = np.concatenate([trace["weight"][:, 0] for trace in run.traces])
    baselines = run.facts.get("baselines") if run.config.law.is_linear else None
    variances = 1 / np.concatenate([trace["time.precision"] for trace in run.traces])
    means = weights @ variances / weights.sum()
    by_name = {estimate.name: estimate for estimate in estimates_of(names, np.sqrt(variances), weights)}
    importances = []
    for name, variance in zip(names, means.tolist(), strict=True):
        share = variance / baselines["mean_only"] ** 2 if baselines else None
        sd = by_name[name]
        importances.append(EffectImportance(name, sd.mean, sd.low, sd.high, share))
    return importances
