r"""Chooses the exposure by held-out lists: to what users rate, or to what they rate and like.

The lists are to have items that a user rates *and* likes, with probability P(rated) P(liked |
rated). Both exposures estimate their first factor, and the posterior of the ratings the second. If
ratings are missing at random, which of a user's items are rated does not depend on liking them
given P(rated), so the exposure to rated items suffices; with likes alone, liking would count twice.
Ratings to come are not such a sample: a user has seen, and left, many items of large P(rated), and
what is rated next is rather what is liked.

So training ratings are held out as the test ratings were: the latest, or at random
(`dsgmcmc.ratings.held_out`). From the others come both exposures, and p_j, the share of the ratings
of item j that are liked, in place of P(liked | rated), which has seen the held-out ratings. The
lists by e_ij p_j with the larger mean NDCG@10 choose the exposure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import reaches
from dsgmcmc.posterior.lists.exposure import Exposure
from dsgmcmc.posterior.lists.measures import evenly_spaced, measures
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.ratings.pairs import rated_pairs, select
from dsgmcmc.types import Float64, Int32

#: Share of the training ratings that are held out.
HELD_OUT = 0.1
#: Maximum number of users, and of items that take part in the regressions.
MAX_USERS = 2000
MAX_ITEMS = 1500
LENGTH = 10
#: Ratings of an item that the average item counts as, in its share of liked ratings.
PRIOR_RATINGS = 20.0

_BLOCK = 256  # users whose scores are in memory


class _HeldOut(NamedTuple):
    """Liked held-out ratings, (n,) each, and the users among them who have training ratings."""

    users: Int32
    items: Int32
    listed: Int32


def prefers_liked(ratings: Ratings, liked: float) -> bool:
    """Return whether lists by the exposure to liked items are better on held-out training ratings.

    Parameters
    ----------
    ratings : Ratings
        The open ratings file.
    liked : float
        Lowest rating that is liked.
    """
    try:
        inner = InnerSplit(ratings, HELD_OUT, seed=0)
    except InputError:  # too few ratings to hold some out
        return False
    rated = Rated(inner)
    held_out = _held_out(inner, liked)
    if not len(held_out.listed):
        return False
    counts = np.asarray(rated.pattern.getnnz(axis=0))
    n_liked = np.asarray(rated.reaching(liked).getnnz(axis=0))
    mean = n_liked.sum() / counts.sum()
    chances = (n_liked + PRIOR_RATINGS * mean) / (counts + PRIOR_RATINGS)
    shares = counts / rated.pattern.shape[0]
    by_rated = Exposure.of_ratings(rated, shares, most=MAX_ITEMS)
    by_liked = Exposure.of_ratings(rated, shares, liked, most=MAX_ITEMS)
    ndcg_rated = _mean_ndcg(by_rated, rated, chances, held_out)
    ndcg_liked = _mean_ndcg(by_liked, rated, chances, held_out)
    return ndcg_liked > ndcg_rated


def _held_out(inner: InnerSplit, liked: float) -> _HeldOut:
    """Return the liked held-out ratings of an inner split."""
    pairs = rated_pairs(inner, "test")
    trained, _ = inner.orientation.users_and_items(np.diff(inner.row_indptr), inner.column_counts)
    found = select(pairs, reaches(pairs.values, liked) & (trained[pairs.users] > 0))
    listed = evenly_spaced(np.unique(found.users), MAX_USERS)
    return _HeldOut(found.users, found.items, listed)


def _mean_ndcg(exposure: Exposure, rated: Rated, chances: Float64, held_out: _HeldOut) -> float:
    """Return the mean NDCG of lists by exposure times chance."""
    total = 0.0
    for start in range(0, len(held_out.listed), _BLOCK):
        users = held_out.listed[start : start + _BLOCK]
        histories = [rated.items_of(user, exposure.liked) for user in users.tolist()]
        scores = exposure.scores(histories) * chances
        for row, user in zip(scores, users.tolist(), strict=True):
            row[rated.items_of(user)] = -1.0
        lists = np.argsort(-scores, axis=1, kind="stable")[:, :LENGTH].astype(np.int32)
        total += measures(users, lists, held_out.users, held_out.items)["ndcg"].sum()
    return total / len(held_out.listed)
