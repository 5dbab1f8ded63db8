"""Draws of the ratings of pairs: those of the matrix of their users and items.

So rows that were not sampled are drawn once for all their pairs, and a pair has the draw that
`complete` has in its cell.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.matrix.complete import Completion
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64


def _distinct(index: Int32, names: Array) -> tuple[Int32, Int64]:
    """Return the rows of distinct names, and which of them each name has.

    Names that the run does not know have the index -1, but are rows of their own.
    """
    number: dict[object, int] = {}
    of_pair = [number.setdefault(name, len(number)) for name in names.tolist()]
    rows = np.empty(len(number), np.int32)
    rows[of_pair] = index
    return rows, np.array(of_pair, np.int64)


def drawn_pairs(
    predictor: Predictor,
    users: tuple[Int32, Array],
    items: tuple[Int32, Array],
    *,
    draws: int,
    noise: bool,
) -> Float64:
    """Return draws of the ratings of pairs, (draws, n), from draws spread over the saved ones.

    Parameters
    ----------
    predictor : Predictor
    users, items : ((n,) int32, (n,) array)
        Rows of the pairs in the run, and their names.
    draws : int
    noise : bool
        Whether they are new ratings; otherwise expected ratings, each at one draw.
    """
    rows, row = _distinct(*users)
    columns, column = _distinct(*items)
    completion = Completion(predictor, columns)
    completion.need_draws(draws, noise=noise)
    drawn = np.empty((draws, len(row)))
    order = np.argsort(row, kind="stable")
    for block in completion.filled(rows, None, draws=draws, noise=noise):
        first, last = np.searchsorted(row[order], [block.rows.start, block.rows.stop])
        pairs = order[first:last]
        cells = block.values["rating"]
        drawn[block.number, pairs] = cells[row[pairs] - block.rows.start, column[pairs]]
    return drawn


class PairDrawer(Predictor):
    """Draws ratings of pairs of known users and items, in columns ``rating_1`` and so on.

    Parameters
    ----------
    run : Run
    options : PredictOptions
        With `of_mean`, expected ratings are drawn.
    draws : int
    """

    def __init__(self, run: Run, options: PredictOptions, draws: int) -> None:
        super().__init__(run, options)
        self.names = [f"rating_{number}" for number in range(1, draws + 1)]

    @override
    def columns(self, users: Int32, items: Int32) -> dict[str, Float32]:
        noise = not self.options.of_mean
        drawn = drawn_pairs(
            self, (users, users), (items, items), draws=len(self.names), noise=noise
        )
        return dict(zip(self.names, drawn.astype(np.float32), strict=True))
