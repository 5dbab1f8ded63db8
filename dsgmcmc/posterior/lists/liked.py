"""The lowest rating that counts as liked, and whether enough training ratings are liked to rank by.

If ratings are levels of a scale, those from three quarters up the scale on are liked
(`dsgmcmc.model.likelihoods.limits.reaches_top`). Of other values, such as small counts, the upper
quarter of the training ratings is liked, but never the lowest rating. Every click is liked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dsgmcmc.model.likelihoods.limits import reaches_top, top_of
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.likelihoods.ordinal.ordinal import MAX_LEVELS
from dsgmcmc.model.predictive.base import reaches
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Float64

#: Share of the training ratings that are liked, if ratings are not levels of a scale.
LIKED_SHARE = 0.25
#: Share of the training ratings below which likes are too few to rank by.
RARE = 0.01


def liked_facts(ratings: Ratings) -> dict[str, float]:
    """Return facts about a run: ``liked`` (`liked_from`); ``rare``, which `RARE` ratings reach."""
    levels = ratings.levels(MAX_LEVELS)
    if levels is None:
        values = np.sort(np.concatenate([*ratings.values("train")]))
        counts = np.ones(len(values), np.int64)
    else:  # reading in pieces saves memory
        found = Levels.from_ratings(ratings)
        values = found.values
        counts = found.counts
    # share of the ratings that are at least each value
    reached = np.cumsum(counts[::-1])[::-1] / ratings.nnz
    if levels is not None and reaches_top(ratings, levels):
        liked = top_of(levels)
    else:
        liked = _from_share(values, reached)
    return {"liked": liked, "rare": float(values[np.count_nonzero(reached >= RARE) - 1])}


def _from_share(values: Float64, reached: Float64) -> float:
    """Return the lowest of the highest `LIKED_SHARE` of the ratings, without the lowest rating."""
    quarter = int(np.count_nonzero(reached >= LIKED_SHARE))
    lowest = int(np.count_nonzero(values == values[0]))
    return float(values[min(max(quarter - 1, lowest), len(values) - 1)])


def _liked_facts_of(run: Run) -> Mapping[str, float]:
    """Return the `liked_facts` of a run; runs of earlier versions do not record them."""
    if "liked" in run.facts:
        return run.facts
    with run.open_ratings() as ratings:
        return liked_facts(ratings)


def liked_from(run: Run) -> float:
    """Return the lowest rating that counts as liked by default."""
    if not run.config.law.can_be_evaluated:  # clicks
        return float(run.facts["minimum"])
    return _liked_facts_of(run)["liked"]


def warn_of_few(run: Run, by: str, bound: float | None) -> list[str]:
    """Return a warning if a rule ranks by a bound that less than `RARE` of the ratings reach.

    If `bound` is None, the bound of ``likely`` is `liked_from`; other rules have none.
    """
    if not run.config.law.can_be_evaluated:
        return []
    if bound is None and by == "likely":
        bound = liked_from(run)
    if bound is None or reaches(np.array(_liked_facts_of(run)["rare"]), bound):
        return []
    return [
        f"fewer than {100 * RARE:g} % of the training ratings are {bound:g} or more, so the run"
        " knows little about what is liked: a lower bound ranks better"
    ]
