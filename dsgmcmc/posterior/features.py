"""Which features matter: how much of the differences between users or items each group explains, and effects on biases.

For a group, at every draw: the mean square of its term B_g^T x_ig of the rows' prior means, in units of the rows'
variance around their means, averaged over the columns. For a feature, at the saved draws: its effect on the bias, in
units of the ratings. Neither depends on the rotation of the latent dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Float64

LEVEL = 0.9


@dataclass(frozen=True)
class FeatureEstimate:
    """Posterior of a number: its mean and the bounds of its central interval of probability `LEVEL`."""

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


def feature_names(run: SavedRun, kind: str) -> tuple[list[str], list[str]]:
    """Names of the features of the users or of the items, and their groups; empty if the run used none."""
    if f"{kind}.features.strength" not in run.traces[0]:
        return [], []
    return run.index.features(kind)


def importance(run: SavedRun) -> dict[str, FeatureImportance]:
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
    """Summaries of the columns of draws (n, names), the largest first."""
    share = weights / weights.sum()
    estimates = []
    for name, values in zip(names, draws.T, strict=True):
        order = np.argsort(values)
        below = np.cumsum(share[order]) - share[order] / 2
        low, high = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], below, values[order])
        estimates.append(FeatureEstimate(name, float(share @ values), float(low), float(high)))
    return sorted(estimates, key=lambda each: -abs(each.mean))
