r"""RMSE of two simple baselines on the test ratings, which a model should beat.

- *mean only*: the mean mu of the training ratings for every pair;
- *biases only*: mu + a_i + b_j with shrunken means, of the items first and then, from their residuals, of the users

      b_j = sum_i (x_ij - mu) / (25 + n_j),    a_i = sum_j (x_ij - mu - b_j) / (10 + n_i)

  [Koren 2010, section 2.1]. A model with factors that does worse than this fits noise.

[Koren 2010] Factor in the neighbors: scalable and accurate collaborative filtering, ACM TKDD 4(1).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsgmcmc.data.ratings import Ratings, Split, row_slabs
from dsgmcmc.types import Float64, Int32, Int64

SHRINKAGE = {"item": 25.0, "user": 10.0}
_SLAB = 2_000_000  # ratings read at a time


def baselines(ratings: Ratings) -> dict[str, float] | None:
    """Score the two baselines; reads the training ratings twice, in slabs.

    Returns the RMSE on the test ratings of ``mean_only`` and ``biases_only``; None without test ratings.
    """
    if not ratings.nnz_test:
        return None
    item, user = (0, 1) if ratings.transposed else (1, 0)  # which of row and column
    counts = (np.diff(ratings.row_indptr), ratings.column_counts)
    bias: tuple[Float64, Float64] = (np.zeros(ratings.n_rows), np.zeros(ratings.n_cols))
    for side, kind in ((item, "item"), (user, "user")):
        sums = np.zeros(len(counts[side]))
        for rows, columns, values in _slabs(ratings, "train", ratings.row_indptr):
            left = values - ratings.mean - bias[0][rows] - bias[1][columns]
            sums += np.bincount((rows, columns)[side], left, minlength=len(sums))
        bias[side][:] = sums / (SHRINKAGE[kind] + counts[side])
    indptr = ratings.slab("test", 0, ratings.n_rows)[0]
    squares = np.zeros(2)
    for rows, columns, values in _slabs(ratings, "test", indptr):
        error = values - ratings.mean
        squares += (error @ error, ((error - bias[0][rows] - bias[1][columns]) ** 2).sum())
    mean_only, biases_only = np.sqrt(squares / ratings.nnz_test).tolist()
    return {"mean_only": mean_only, "biases_only": biases_only}


def _slabs(ratings: Ratings, part: Split, indptr: Int64) -> Iterator[tuple[Int64, Int32, Float64]]:
    """Row, column and value of the ratings of a part, some rows at a time."""
    for start, stop in row_slabs(indptr, _SLAB):
        ends, columns, values = ratings.slab(part, start, stop)
        yield np.repeat(np.arange(start, stop), np.diff(ends)), columns, values.astype(np.float64)
