r"""Quality of rankings: how many of the items that users liked are recommended to them.

An item is *liked* if its test rating reaches a threshold. To a user with liked items, the k best of
the items that this user did not rate in training are recommended. The measures of these lists
(`dsgmcmc.posterior.lists.measures`) are averaged over users with a liked item, with normal 95 %
intervals. Two rankings are compared by the mean difference over users and its standard error.
Items that a user has not rated count as not liked, so the measures are useful only for comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.diagnostics.scores import difference
from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import reaches
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.lists.caps import positions_in_lists
from dsgmcmc.posterior.lists.liked import liked_from
from dsgmcmc.posterior.lists.measures import MEASURES, Lists, evenly_spaced, measures
from dsgmcmc.posterior.lists.ranking import Ranking, recommend
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import By, ExposureKind
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named
from dsgmcmc.types import Float64, Int32

#: Rules of `recommend` that are compared, the default first: the ranking criterion, and z of a
#: lower bound.
RULES: dict[str, tuple[By, float]] = {
    "likely": ("likely", 0.0),
    "exposure": ("exposure", 0.0),
    "mean": ("mean", 0.0),
    "lcb, z = 1": ("lcb", 1.0),
    "lcb, z = 3": ("lcb", 3.0),
}

#: Lengths of the lists that are usual for clicks, by measure.
LENGTHS = {"recall": 20, "ndcg": 100}

#: Maximum number of users for the summary, evenly spaced among the users with test clicks.
MAX_USERS = 2000
#: Default maximum number of users in `evaluate`.
USERS = 1000


def evaluate(
    run: Run,
    rated: Rated | None = None,
    at: int = 10,
    liked: float | None = None,
    *,
    users: int | None = USERS,
    exposure: ExposureKind = "auto",
) -> dict[str, Any]:
    """Compare rankings on the test ratings: by the rules of `recommend`, and by popularity.

    The rule `exposure` is EASE^R (`dsgmcmc.posterior.lists.exposure`), which uses only which user
    rated, or liked, which item.

    Parameters
    ----------
    run : Run
        A run with test ratings, from `dsgmcmc.open_run`, or `run_` of a `BPMF`.
    rated : Rated, optional
        Items that users rated in training, which are not recommended to them; by default read from
        the ratings file of the run.
    at : int, optional
        Length k of the lists.
    liked : float, optional
        Lowest rating that counts as liked; by default `dsgmcmc.posterior.lists.liked.liked_from`.
        Every click counts as liked.
    users : int, optional
        Maximum number of users, evenly spaced among the users with a liked item; None for all.
    exposure : {"auto", "rated", "liked"}, optional
        From what the exposure is learnt, as in `recommend`.

    Returns
    -------
    dict
        ``at``, ``liked``, ``users`` (number of users), ``of_users`` (number of users with a liked
        item and training ratings), ``untrained`` (number of users with a liked item alone, who are
        not counted) and ``rules``. For each rule this list has a dict with its name ``rule``; for
        each measure, such as ``"recall"``, the values ``mean``, ``low`` and ``high``; and
        ``difference``, the ``mean`` difference in NDCG from the default rule with its ``se``, which
        is 1 for a single user.

    Raises
    ------
    InputError
        If no test rating is liked.
    """
    if rated is None:
        rated = read_rated(run)
    if liked is None:
        liked = liked_from(run)
    found = liked_tests(run, liked)
    sampled = evenly_spaced(found.trained, users)
    measured = {
        name: measures(sampled, lists, found.users, found.items)
        for name, lists in _lists(
            run, sampled, rated, at=at, liked=liked, exposure=exposure
        ).items()
    }
    default_ndcg = measured[next(iter(RULES))]["ndcg"]
    rules = []
    for name, values in measured.items():
        averages = {measure: average(by_user) for measure, by_user in values.items()}
        change = difference(values["ndcg"], default_ndcg, sampled)
        se = min(change.error, 1.0)  # unknown for a single user
        rules.append({"rule": name, **averages, "difference": {"mean": change.mean, "se": se}})
    return {"at": at, "liked": liked, **found.counts(sampled), "rules": rules}


class LikedTests(NamedTuple):
    """Liked test ratings: users and items, (n,) each, and who they are.

    Attributes
    ----------
    users, items : int32
        Their rows.
    trained : (m,) int32
        Those of the users who have training ratings, ascending.
    untrained : int
        Number of the others, whose lists say nothing of the rules.
    """

    users: Int32
    items: Int32
    trained: Int32
    untrained: int

    def counts(self, sampled: Int32) -> dict[str, int]:
        """Return how many users are counted, of how many, and how many are not."""
        return {
            "users": len(sampled),
            "of_users": len(self.trained),
            "untrained": self.untrained,
        }


def liked_tests(run: Run, liked: float) -> LikedTests:
    """Return the liked test ratings. Raises InputError if no user with training ratings has one."""
    chosen = reaches(predict_test(run).least, liked)
    if not chosen.any():
        raise InputError(
            f"no test rating of {run.path} is {liked:g} or more: give another {named('liked')}"
        )
    test_users, test_items = run.test_pairs()
    users = np.unique(test_users[chosen])
    is_trained = run.counts("user")[users] > 0
    if not is_trained.any():
        raise InputError(f"no user of {run.path} with a liked test rating has training ratings")
    return LikedTests(
        users=test_users[chosen],
        items=test_items[chosen],
        trained=users[is_trained],
        untrained=int(np.count_nonzero(~is_trained)),
    )


def compare_runs(
    runs: Sequence[Run],
    at: int = 10,
    liked: float | None = None,
    *,
    users: int | None = USERS,
    exposure: ExposureKind = "auto",
) -> dict[str, Any]:
    """Compare the lists of several runs on the same test ratings, by the default rule.

    Parameters
    ----------
    runs : sequence of Run
        Runs on the same ratings file; the others are compared with the first.
    at, liked, users, exposure
        As for `evaluate`.

    Returns
    -------
    dict
        ``at``, ``liked``, ``users``, ``of_users``, ``untrained`` as of `evaluate`, and ``runs``.
        For each run this list has a dict with ``run``, its path, the measures, and ``difference``,
        by measure: the ``mean`` over the users of the difference from the first run, its ``se``,
        and ``low`` and ``high``.

    Raises
    ------
    InputError
        If the runs have not the same ratings, or no test rating is liked.
    """
    first = runs[0]
    if liked is None:
        liked = liked_from(first)
    found = liked_tests(first, liked)
    sampled = evenly_spaced(found.trained, users)
    rated = read_rated(first)
    by_run = []
    for run in runs:
        if run.facts["data_hash"] != first.facts["data_hash"]:
            raise InputError(
                f"{run.path} and {first.path} have other ratings or another split, so their lists"
                " cannot be compared: sample both from one ratings file"
            )
        at_least = None
        if run.config.law.can_be_evaluated:
            at_least = liked
        ranking = Ranking(top=at, at_least=at_least, exposure=exposure)
        lists = recommended(run, sampled, ranking, rated)
        by_run.append(measures(sampled, lists, found.users, found.items))
    compared = []
    for run, values in zip(runs, by_run, strict=True):
        differences = {}
        for name in MEASURES:
            change = difference(values[name], by_run[0][name], sampled)
            se = min(change.error, 1.0)
            ends = {"low": change.mean - 1.96 * se, "high": change.mean + 1.96 * se}
            differences[name] = {"mean": change.mean, "se": se, **ends}
        averages = {name: average(of_users) for name, of_users in values.items()}
        compared.append({"run": str(run.path), **averages, "difference": differences})
    return {"at": at, "liked": liked, **found.counts(sampled), "runs": compared}


def _lists(
    run: Run, users: Int32, rated: Rated, *, at: int, liked: float, exposure: ExposureKind
) -> dict[str, Lists]:
    """Return the lists by every rule, and by popularity."""
    lists = {}
    for name, (by, z) in RULES.items():
        at_least = None
        if by == "likely" and run.config.law.can_be_evaluated:  # clicks have no such probability
            at_least = liked
        ranking = Ranking(top=at, by=by, z=z, at_least=at_least, exposure=exposure)
        lists[name] = recommended(run, users, ranking, rated)
    lists["most popular"] = popular(run, users, rated, at)
    return lists


def click_scores(run: Run, ratings: Ratings) -> dict[str, Any] | None:
    """Measure rankings by the rule ``mean`` for a run on clicks.

    Parameters
    ----------
    run : Run
    ratings : Ratings
        The run's open ratings file.

    Returns
    -------
    dict or None
        ``users`` (number of users), and for ``"recall@20"`` and ``"ndcg@100"`` the ``mean`` over
        users, its normal 95 % interval ``low`` to ``high``, and ``popular``, the mean for rankings
        by popularity. None without test clicks.
    """
    test_users, test_items = run.test_pairs()
    users = evenly_spaced(np.unique(test_users), MAX_USERS)
    if not len(users):
        return None
    rated = Rated(ratings)
    longest = max(LENGTHS.values())
    by_mean = recommended(run, users, Ranking(top=longest, by="mean"), rated)
    by_popularity = popular(run, users, rated, longest)
    scores: dict[str, Any] = {"users": len(users)}
    for measure, k in LENGTHS.items():
        of_mean = measures(users, by_mean[:, :k], test_users, test_items)[measure]
        of_popularity = measures(users, by_popularity[:, :k], test_users, test_items)[measure]
        scores[f"{measure}@{k}"] = {**average(of_mean), "popular": average(of_popularity)["mean"]}
    return scores


def average(values: Float64) -> dict[str, float]:
    """Return the mean over users, with a normal 95 % interval; for a single user it is 0 to 1."""
    mean = float(values.mean())
    if len(values) < 2:
        return {"mean": mean, "low": 0.0, "high": 1.0}
    half = 1.96 * float(values.std(ddof=1)) / np.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def recommended(run: Run, users: Int32, ranking: Ranking, rated: Rated) -> Lists:
    """List the items that are recommended to each user."""
    lists = np.full((len(users), ranking.top), -1, np.int32)
    for ranked in recommend(run, users, ranking, rated):
        rows = np.searchsorted(users, ranked.users)
        lists[rows, positions_in_lists(ranked.users)] = ranked.items
    return lists


def popular(run: Run, users: Int32, rated: Rated, at: int) -> Lists:
    """List for each user the unrated items with the most training ratings.

    The lower item number breaks ties.
    """
    by_popularity = np.argsort(-run.counts("item"), kind="stable").astype(np.int32)
    lists = np.full((len(users), at), -1, np.int32)
    for row, user in zip(lists, users.tolist(), strict=True):
        shown = by_popularity[~np.isin(by_popularity, rated.items_of(user))][:at]
        row[: len(shown)] = shown
    return lists
