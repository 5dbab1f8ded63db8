"""The best of all pairs of users and items, for example those to measure next."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dsgmcmc.posterior.lists.ranking import Columns, Ranking, recommendations
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.run import Run


def best_pairs(
    run: Run, ranking: Ranking, rated: Rated | None, titles: dict[int, str] | None = None
) -> Columns:
    """Return the best pairs of all users and items of a run, the best first.

    There are at most ``ranking.top`` pairs, whatever their users. Columns are those of
    `recommendations`, as is `titles`; ``rank`` is that among all pairs. Equal scores are in the
    order of rows.
    """
    top = ranking.top
    users = np.arange(len(run.users), dtype=np.int32)
    by_user = ranking.model_copy(update={"top": min(top, len(run.items))})
    return merged(recommendations(run, users, by_user, rated, titles=titles), top)


def merged(blocks: Iterable[Columns], top: int) -> Columns:
    """Return the best rows of recommendations, ranked together.

    Equal scores are in the order of the blocks.
    """
    best: Columns = {}
    for block in blocks:
        joined = block
        if best:
            joined = {name: np.concatenate([best[name], block[name]]) for name in block}
        order = np.argsort(-joined["score"], kind="stable")[:top]
        best = {name: column[order] for name, column in joined.items()}
    best["rank"] = np.arange(1, len(best["score"]) + 1, dtype=np.int32)
    return best
