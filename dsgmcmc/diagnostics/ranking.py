r"""Quality of rankings: whether the items recommended to a user include those that the user liked in the test ratings.

An item is *liked* if its test rating is at least a threshold. For a user with n liked items, the k best of all items
that were not rated in training are recommended; h_r = 1 if the item at rank r is liked:

    precision = sum_r h_r / k,   recall = sum_r h_r / n,   reciprocal rank = 1 / min{r: h_r = 1}, or 0
    NDCG = sum_r h_r / log2(1 + r)  /  sum_{r <= min(n, k)} 1 / log2(1 + r)       [Järvelin & Kekäläinen 2002]

averaged over users with a liked item, with normal 95 % intervals of that average. Items that a user has not rated count
as not liked, so the numbers compare rules and mean little by themselves. *Novelty* is the mean of -log2 of the fraction
of users who rated a recommended item: how surprising the lists are, in bits.

[Järvelin & Kekäläinen 2002] Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.recommend import recommend
from dsgmcmc.posterior.rules import Ranking, liked_from
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float64, Int32, Int64

Lists = npt.NDArray[np.int32]  # (users, k): rows of items, the best first; -1 where there are no more

MEASURES = ("ndcg", "precision", "recall", "reciprocal_rank")

#: Lengths of the lists, by measure, that are usually reported for clicks.
LENGTHS = {"recall": 20, "ndcg": 100}

#: Most users of the summary, evenly spaced among those with test clicks; ``evaluate`` uses all.
MAX_USERS = 2000


def evaluate(run: Run, rated: Rated | None = None, at: int = 10, liked: float | None = None) -> dict[str, Any]:
    """Compare rankings on the test ratings: by the rules of `recommend`, and without the model.

    The rankings without the model are by popularity and by exposure alone (`dsgmcmc.posterior.exposure`), which uses
    who rated what but no rating values.

    Parameters
    ----------
    run : Run
        With test ratings: from `dsgmcmc.open_run`, or `run_` of a `BPMF`.
    rated : Rated, optional
        Training ratings, whose items are left out; by default read from the ratings file that the run names.
    at : int
        Length k of the lists.
    liked : float, optional
        Lowest rating that counts as liked; default three quarters up the scale; every click is liked.

    Returns
    -------
    dict
        ``at``, ``liked``, ``users`` (their number) and ``rules``: for each its name ``rule``, ``{"mean", "low",
        "high"}`` by measure, ``coverage``, the fraction of all items that are recommended to anybody, and ``novelty``.

    Raises
    ------
    InputError
        If no test rating is liked.
    """
    if rated is None:
        with run.open_ratings() as ratings:
            rated = Rated(ratings)
    liked = liked_from(run) if liked is None else liked
    chosen = run.test.rating >= liked
    if not chosen.any():
        raise InputError(
            f"no test rating of {run.path} is {liked:g} or more: nothing counts as liked; give another --liked"
        )
    pairs = [side[chosen] for side in run.test_pairs()]
    users = np.unique(pairs[0])
    rules = {
        "mean": Ranking(at, "mean"),
        "lcb, z = 1": Ranking(at, "lcb", 1.0),
        "lcb, z = 3": Ranking(at, "lcb", 3.0),
    }
    if run.config.law.can_be_evaluated():  # clicks have no probability, and their scores include exposure
        rules["likely"] = Ranking(at, "likely", at_least=liked)
    lists = {name: recommended(run, users, ranking, rated) for name, ranking in rules.items()}
    lists["exposure alone"] = _without_model(rated.exposure.of, users, rated, at)
    lists["most popular"] = popular(run, users, rated, at)
    surprise = -np.log2(np.maximum(run.counts("item"), 1) / len(run.users))
    rows = []
    for name, items in lists.items():
        averages = {measure: average(values) for measure, values in measures(users, items, *pairs).items()}
        shown = items[items >= 0]
        spread = {"coverage": len(np.unique(shown)) / len(run.items), "novelty": float(surprise[shown].mean())}
        rows.append({"rule": name, **averages, **spread})
    return {"at": at, "liked": liked, "users": len(users), "rules": rows}


def click_scores(run: Run, ratings: Ratings) -> dict[str, Any] | None:
    """Measure a run's rankings of clicks by mean score; `ratings` is the open file that it sampled.

    Returns ``users`` (their number), and for ``"recall@20"`` and ``"ndcg@100"`` the ``mean`` over them, its normal 95 %
    interval ``low`` to ``high``, and ``popular``, the value of ranking by popularity. None without test clicks.
    """
    test_users, test_items = run.test_pairs()
    users = np.unique(test_users)
    if not len(users):
        return None
    users = users[np.linspace(0, len(users) - 1, min(len(users), MAX_USERS)).astype(np.int64)]
    chosen = np.isin(test_users, users)
    pairs = test_users[chosen], test_items[chosen]
    rated, longest = Rated(ratings), max(LENGTHS.values())
    own, others = recommended(run, users, Ranking(longest), rated), popular(run, users, rated, longest)
    scores: dict[str, Any] = {"users": len(users)}
    for measure, k in LENGTHS.items():
        mean, by_popularity = (average(measures(users, lists[:, :k], *pairs)[measure]) for lists in (own, others))
        scores[f"{measure}@{k}"] = {**mean, "popular": by_popularity["mean"]}
    return scores


def measures(users: Int32, items: Lists, liked_users: Int32, liked_items: Int32) -> dict[str, Float64]:
    """Measure the list of every user.

    Parameters
    ----------
    users : (n,) int32
        Ascending; each has a liked item.
    items : (n, k) int32
        Their lists, -1 where there are no more.
    liked_users, liked_items : (m,) int32
        The pairs that are liked.

    Returns
    -------
    dict of str to (n,) float64
        By the names in `MEASURES`.
    """
    width = int(max(items.max(), liked_items.max())) + 2
    codes = (users[:, None].astype(np.int64) * width) + items
    hits = np.isin(codes, liked_users.astype(np.int64) * width + liked_items) & (items >= 0)
    number: Int64 = np.bincount(np.searchsorted(users, liked_users), minlength=len(users))
    k = items.shape[1]
    discount = 1 / np.log2(np.arange(2, k + 2))
    first = np.where(hits.any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0.0)
    ideal = np.cumsum(discount)[np.minimum(number, k) - 1]
    return {
        "ndcg": hits @ discount / ideal,
        "precision": hits.sum(axis=1) / k,
        "recall": hits.sum(axis=1) / number,
        "reciprocal_rank": first,
    }


def average(values: Float64) -> dict[str, float]:
    """Mean over users, with a normal 95 % interval; for a single user the interval is 0 to 1."""
    mean = float(values.mean())
    if len(values) < 2:
        return {"mean": mean, "low": 0.0, "high": 1.0}
    half = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def recommended(run: Run, users: Int32, ranking: Ranking, rated: Rated) -> Lists:
    """Items that are recommended to each user."""
    lists = np.full((len(users), ranking.top), -1, np.int32)
    for rows, items, _ in recommend(run, users, ranking, rated):
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        place = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
        lists[np.searchsorted(users, rows), place] = items
    return lists


def popular(run: Run, users: Int32, rated: Rated, at: int) -> Lists:
    """Items with the most training ratings that a user has not rated, for each."""
    counts = run.counts("item")
    return _without_model(lambda _: counts, users, rated, at)


def _without_model(score_of: Callable[[Int32], Array], users: Int32, rated: Rated, at: int) -> Lists:
    """Lists by a score of all items that is a function of the items that a user rated."""
    lists = np.full((len(users), at), -1, np.int32)
    for row, user in enumerate(users.tolist()):
        own = rated.of(user)
        scores = score_of(own).astype(np.float64)
        scores[own] = -np.inf
        order = np.argsort(-scores, kind="stable")[: min(at, len(scores) - len(own))]
        lists[row, : len(order)] = order
    return lists
