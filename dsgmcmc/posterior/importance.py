"""Importance of the features of users and items, and of the effects of time.

The importance of a group of features is the mean square of its term B_g^T x_ig in the prior means of the rows, relative
to the variance of the rows around their prior means, averaged over the columns, at every draw. For a single feature, it
is the effect on the bias at the saved draws, in units of the ratings. Neither depends on the rotation of the latent
dimensions. For a level of time, it is the sd of its effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64

LEVEL = 0.9


class Estimate(NamedTuple):
    """Posterior mean of a parameter, and the bounds of its central interval of probability `LEVEL`."""

    name: str
    mean: float
    low: float
    high: float


def feature_names(run: Run, kind: str) -> list[str]:
    """Names of the features of the users or of the items; empty if the run used none."""
    return run.index.features(kind)[0] if f"{kind}.features.strength" in run.traces[0] else []


def importance(run: Run) -> dict[str, list[Estimate]]:
    """Importance by what it is of: of groups of features, of single features, and of levels of time."""
    weights = np.concatenate([trace["weight"][:, 0] for trace in run.traces])

    def traced(name: str) -> Float64:
        return np.concatenate([trace[name] for trace in run.traces])

    result = {}
    for kind in KINDS:
        if names := feature_names(run, kind):
            groups = list(dict.fromkeys(run.index.features(kind)[1]))
            explained = _estimates(groups, traced(f"{kind}.features.explained"), weights)
            result[f"Variance between {kind}s that features explain, relative to the remaining variance"] = explained
            if run.config.biases and run.draws:
                effects = _estimates(names, run.effects(kind)[:, :, -1], run.draw_weights)
                result[f"Effects of features on the mean rating of {kind}s"] = effects
    if run.config.times:
        sds = _estimates(run.config.times, traced("time.precision") ** -0.5, weights)
        result["Sd of the effects of groups of ratings"] = sds
    return result


def _estimates(names: Sequence[str], draws: Float64, weights: Float64) -> list[Estimate]:
    """Estimates from the columns of draws (n, names), by decreasing absolute mean."""
    share = weights / weights.sum()
    estimates = []
    for name, values in zip(names, draws.T, strict=True):
        order = np.argsort(values)
        below = np.cumsum(share[order]) - share[order] / 2
        low, high = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], below, values[order])
        estimates.append(Estimate(name, float(share @ values), float(low), float(high)))
    return sorted(estimates, key=lambda estimate: -abs(estimate.mean))
