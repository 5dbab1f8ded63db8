"""The best of all pairs of users and items, for example those to measure next."""

from __future__ import annotations

import numpy as np

from dsgmcmc.posterior.cells.fitted_rows import FittedRows, UsersByRow
from dsgmcmc.posterior.lists.ranking import Columns, Ranking, recommendations


def best_pairs(
    model: FittedRows, users: UsersByRow, ranking: Ranking, titles: dict[int, str] | None
) -> Columns:
    """Return the best pairs of some users and all items that are ranked, the best first.

    There are at most ``ranking.top`` pairs, whatever their users. Columns are those of
    `recommendations`, as is `titles`; ``rank`` is that among all pairs. Equal scores are in the
    order of rows.
    """
    top = min(ranking.top, len(model.run.items))
    by_user = ranking.model_copy(update={"top": top})
    best: Columns = {}
    for block in recommendations(model, users, by_user, titles):
        joined = block
        if best:
            joined = {name: np.concatenate([best[name], block[name]]) for name in block}
        order = np.argsort(-ranking.sign * joined["score"], kind="stable")[: ranking.top]
        best = {name: column[order] for name, column in joined.items()}
    best["rank"] = np.arange(1, len(best["score"]) + 1, dtype=np.int32)
    return best
