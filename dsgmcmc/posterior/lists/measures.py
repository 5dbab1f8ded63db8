r"""Measures of lists: how many of the items that users liked are in them.

With h_r = 1 if the item at rank r of a list of k items is liked, otherwise 0, and n liked items of
the user,

    precision = sum_r h_r / k,   recall = sum_r h_r / n,
    reciprocal rank = 1 / min{r: h_r = 1}, or 0,
    NDCG = sum_r h_r / log2(1 + r)  /  sum_{r <= min(n, k)} 1 / log2(1 + r)

[Järvelin & Kekäläinen 2002].

[Järvelin & Kekäläinen 2002] Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4).
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.types import Float64, Int32, Int64

Lists = Int32  # (users, k): rows of items, the best first, then -1

MEASURES = ("ndcg", "precision", "recall", "reciprocal_rank")


def measures(
    users: Int32, items: Lists, liked_users: Int32, liked_items: Int32
) -> dict[str, Float64]:
    """Measure the list of every user.

    Parameters
    ----------
    users : (n,) int32
        In ascending order; every user has a liked item.
    items : (n, k) int32
        Lists of the users, filled up with -1.
    liked_users, liked_items : (m,) int32
        Pairs of a user and a liked item; pairs of other users are ignored.

    Returns
    -------
    dict of str to (n,) float64
        Values by user, by the names in `MEASURES`.
    """
    selected = np.isin(liked_users, users)
    liked_users = liked_users[selected]
    liked_items = liked_items[selected]
    width = int(max(items.max(), liked_items.max())) + 2
    codes = (users[:, None].astype(np.int64) * width) + items
    hits = np.isin(codes, liked_users.astype(np.int64) * width + liked_items) & (items >= 0)
    n_liked: Int64 = np.bincount(np.searchsorted(users, liked_users), minlength=len(users))
    k = items.shape[1]
    discount = 1 / np.log2(np.arange(2, k + 2))
    reciprocal_rank = np.where(hits.any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0.0)
    ideal = np.cumsum(discount)[np.minimum(n_liked, k) - 1]
    found = hits.sum(axis=1)
    return {
        "ndcg": hits @ discount / ideal,
        "precision": found / k,
        "recall": found / n_liked,
        "reciprocal_rank": reciprocal_rank,
    }


def evenly_spaced(users: Int32, limit: int | None) -> Int32:
    """Return at most `limit` of the users, evenly spaced, or all users if `limit` is None."""
    if limit is None or len(users) <= limit:
        return users
    return users[np.linspace(0, len(users) - 1, limit).astype(np.int64)]
