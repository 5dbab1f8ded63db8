"""Ranks all columns of the completed matrix over its rows, or rows over columns, with uncertainty.

At every draw, the expected ratings of all pairs (`Completion.filled` without noise) are averaged
over the other side, and the averages are ranked: ranks of draws give intervals, and the probability
of being best.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.matrix.complete import Completion
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Float64, Int32

#: Draws from which ranks are computed, if the run has as many.
DRAWS = 400


def ranking(
    run: Run,
    *,
    kind: Literal["user", "item"] = "item",
    over: Int32 | None = None,
    lowest: bool = False,
) -> Table:
    """Rank all items (or users) of a run by their expected ratings over all users (or items).

    Parameters
    ----------
    run : Run
    kind : {"user", "item"}
        Side that is ranked.
    over : (n,) int32, optional
        Rows of the other side over which expected ratings are averaged, by default all.
    lowest : bool
        Whether the lowest average is best.

    Returns
    -------
    Table
        ``item_id`` (or ``user_id``), ``mean``, ``sd``, ``q05``, ``q95`` of the average expected
        rating; ``rank`` by its mean, ``rank_q05``, ``rank_q95``; and ``p_best``, the probability of
        being best. The best comes first.

    Raises
    ------
    InputError
        If the run has no draws or three directions, or its likelihood predicts no ratings.
    """
    run.need_draws()
    if run.directions:
        raise InputError(f"{run.path} has three directions: rank with recommend")
    averages = averages_at_draws(run, kind, over)
    sign = 1.0 if lowest else -1.0
    ranks = 1 + np.argsort(np.argsort(sign * averages, axis=1, kind="stable"), axis=1)
    mean = averages.mean(axis=0)
    order = np.argsort(sign * mean, kind="stable")
    low, high = np.quantile(averages, [0.05, 0.95], axis=0)
    first, last = np.quantile(ranks, [0.05, 0.95], axis=0, method="inverted_cdf")
    vocabulary = run.vocabulary(kind)
    table = Table(vocabulary.table(vocabulary.ids[order]))
    table["mean"] = mean[order]
    table["sd"] = averages.std(axis=0)[order]
    table["q05"] = low[order]
    table["q95"] = high[order]
    table["rank"] = np.arange(1, len(order) + 1)
    table["rank_q05"] = first[order].astype(np.int64)
    table["rank_q95"] = last[order].astype(np.int64)
    table["p_best"] = (ranks == 1).mean(axis=0)[order]
    return table


def averages_at_draws(run: Run, kind: str, over: Int32 | None = None) -> Float64:
    """Return the average expected ratings of all items (or users) at draws, (draws, n)."""
    users = np.arange(len(run.users), dtype=np.int32)
    items = np.arange(len(run.items), dtype=np.int32)
    if over is not None:
        if not len(over):
            raise InputError("there is nothing over which to average")
        if kind == "item":
            users = over
        else:
            items = over
    number = min(DRAWS, len(run.draws))
    completion = Completion(Predictor(run, PredictOptions()), items)
    completion.need_draws(number, noise=False)
    averages = np.zeros((number, len(run.vocabulary(kind))))
    for block in completion.filled(users, None, draws=number, noise=False):
        expected = block.values["rating"]
        if kind == "item":
            averages[block.number] += expected.sum(axis=0, dtype=np.float64) / len(users)
        else:
            averages[block.number, block.rows] = expected.mean(axis=1, dtype=np.float64)
    return averages
