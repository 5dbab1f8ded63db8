"""Draws of the ratings of pairs: those of the matrix of their users and items.

So rows that were not sampled are drawn once for all their pairs, and a pair has the draw that
`complete` has in its cell.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.matrix.complete import Completion
from dsgmcmc.types import Array, Float64, Int32, Int64


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
    completion.need_distribution()
    drawn = np.empty((draws, len(row)))
    order = np.argsort(row, kind="stable")
    for block in completion.filled(rows, None, draws=draws, noise=noise):
        first, last = np.searchsorted(row[order], [block.rows.start, block.rows.stop])
        pairs = order[first:last]
        cells = block.values["rating"]
        drawn[block.number, pairs] = cells[row[pairs] - block.rows.start, column[pairs]]
    return drawn
