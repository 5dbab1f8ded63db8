"""How good a run of clicks is: its rankings of held-out clicks, beside those by popularity alone.

Clicks have no ratings that a prediction could be compared with; what counts is where the held-out ones come among all
that a user has not clicked in training. Measures are those of `dsgmcmc.diagnostics.ranking`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics.ranking import average, measures, popular, recommended
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.rules import Ranking
from dsgmcmc.posterior.run import Run

#: Lengths of the lists, by measure: what is usually reported of clicks.
LENGTHS = {"recall": 20, "ndcg": 100}

#: The summary looks at no more users, evenly spaced among those with test clicks; ``evaluate`` looks at all.
MAX_USERS = 2000


def click_scores(run: Run, ratings: Ratings) -> dict[str, Any] | None:
    """Measure a run's rankings by mean score.

    Parameters
    ----------
    run : Run
        Of clicks.
    ratings : Ratings
        The open file that it sampled.

    Returns
    -------
    dict or None
        ``users`` (their number), and by ``"recall@20"`` and ``"ndcg@100"`` the ``mean`` over them with its normal 95 %
        interval ``low`` to ``high``, and ``popular``, what ranking by popularity has. None without test clicks.
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
    found: dict[str, Any] = {"users": len(users)}
    for measure, k in LENGTHS.items():
        mean, by_popularity = (average(measures(users, lists[:, :k], *pairs)[measure]) for lists in (own, others))
        found[f"{measure}@{k}"] = {**mean, "popular": by_popularity["mean"]}
    return found
