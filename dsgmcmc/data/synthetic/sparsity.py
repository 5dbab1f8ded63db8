"""Who rates what in synthetic data: numbers of ratings a user and an item, skewed as in MovieLens.

User i has 20 ratings (half the mean where that is less) plus a share of the rest that follows the quantiles of
Gamma(0.6); item j has one plus a share that follows those of Gamma(0.5), the chi-square law with one degree of
freedom. Nobody rates more than 60 % of the items, nor is any item rated by more than 60 % of the users. Both
shapes were fitted to the percentiles of MovieLens 1M.

Given their number, a user's items are drawn one after the other without replacement, with weights solved for so
that the items' expected numbers are those wanted: the most popular weigh more than their share, since nobody
rates them twice.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv

from dsgmcmc.types import Float64, Int64

USER_SHAPE, ITEM_SHAPE, FEWEST, MOST = 0.6, 0.5, 20, 0.6


def marginals(rows: int, cols: int, ratings: int, rng: np.random.Generator) -> tuple[Int64, Float64]:
    """Number of ratings of every user, and expected number of every item, both in random order.

    Parameters
    ----------
    rows, cols, ratings : int
        Users, items, ratings: at least one of each user and item, a quarter of all pairs at most.
    rng : numpy Generator
        Puts users and items in order.

    Returns
    -------
    activity : (I,) int64
        Adds up to the number of ratings.
    popularity : (J,) float64
        Adds up to it too.
    """
    fewest = max(min(FEWEST, ratings // (2 * rows)), -(-cols // rows))
    spare = rng.permutation(_spread(rows, ratings - rows * fewest, USER_SHAPE, MOST * cols - fewest))
    edges = np.rint(np.cumsum(spare)).astype(np.int64)
    popularity = 1 + rng.permutation(_spread(cols, ratings - cols, ITEM_SHAPE, MOST * rows - 1))
    return fewest + np.diff(edges, prepend=0), popularity


def item_weights(activity: Int64, popularity: Float64) -> Float64:
    """Weights with which users draw items so that items are rated as often as wanted.

    A user who draws until n items are distinct has item j with probability 1 - exp(-w_j t) to a good
    approximation, t such that these add up to n. Users of like activity share one t. Each pass corrects the
    weights by wanted over expected and takes a Newton step for every t.

    Parameters
    ----------
    activity : (I,) int64
        Ratings of every user.
    popularity : (J,) float64
        Wanted ratings of every item, one of which is given and not drawn.
    """
    given = len(popularity) / len(activity)
    target = popularity - 1 + 1e-9  # positive also where nothing is to be drawn
    groups = [group for group in np.array_split(np.sort(activity), 64) if len(group)]
    wanted = [max(group.mean() - given, 1e-9) for group in groups]
    weights: Float64 = target / target.sum()
    times = list(wanted)
    for _ in range(40):
        expected = np.zeros_like(weights)
        for k, group in enumerate(groups):
            absent = np.exp(-weights * times[k])
            expected += len(group) * (1 - absent)
            newton = times[k] + (wanted[k] - (1 - absent).sum()) / (weights @ absent)
            times[k] = min(max(newton, times[k] / 2), 2 * times[k])
        weights *= target / expected
        weights /= weights.sum()
    return weights


def _spread(n: int, total: float, shape: float, most: float) -> Float64:
    """Add up to `total` by n ascending numbers in the ratios of Gamma(shape)'s quantiles, capped at `most`."""
    quantiles = gammaincinv(shape, (np.arange(n) + 0.5) / n)
    if total == 0:
        return np.zeros(n)
    scale = brentq(lambda c: np.minimum(most, c * quantiles).sum() - total, 0, 2 * most / quantiles[0])
    numbers: Float64 = np.minimum(most, scale * quantiles)
    return numbers
