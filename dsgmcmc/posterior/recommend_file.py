"""Recommendations by original names, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.posterior.predict import Newcomers
from dsgmcmc.posterior.recommend import Ranking, Rated, recommend
from dsgmcmc.posterior.run import Run

Columns = dict[str, npt.NDArray[Any]]


def recommendations(
    run: Run,
    users: npt.NDArray[np.int32],
    ranking: Ranking,
    rated: Rated | None = None,
    *,
    newcomers: Newcomers | None = None,
    titles: dict[int, str] | None = None,
) -> Iterator[Columns]:
    """Rank items for users; parameters as of `recommend`.

    Yields
    ------
    dict of str to (m,) array
        Columns ``user_id, item_id, score, rank`` and, with `titles` (by place), ``item_name``; rank 1 is the best.
    """
    names = run.users.ids
    if newcomers is not None:
        names = np.concatenate([names, newcomers.names.ids])
    for places, items, score in recommend(run, users, ranking, rated, newcomers):
        first = np.flatnonzero(np.diff(places, prepend=-1))
        lengths = np.diff(np.append(first, len(places)))
        columns: Columns = {
            "user_id": names[places],
            "item_id": run.items.ids[items],
            "score": score,
            "rank": (np.arange(len(places)) - np.repeat(first, lengths) + 1).astype(np.int32),
        }
        if titles is not None:
            columns["item_name"] = np.array([titles.get(item, "") for item in items.tolist()], dtype=object)
        yield columns
