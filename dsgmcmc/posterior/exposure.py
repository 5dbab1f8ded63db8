r"""Probability that a user rates an item, estimated from who rated what in training, whatever the ratings.

The **exposure** of user i to item j, the probability that i rates j, is estimated from the pattern B of training
ratings (1 where there is one) alone: the ridge regression of the pattern on itself, in its leading singular directions,

    e_i = b_i V diag(s^2 / (s^2 + lambda)) V^T,    B ~ U diag(s) V^T

the pure SVD of [Cremonesi 2010] with the penalty of [Steck 2019]. It is at least `FLOOR` times the share of the
users who rated the item, so that a user without ratings is exposed to popular items. It is a point estimate that does
not enter the posterior of ratings. Width and penalty are those that ranked well on MovieLens 100K and 1M.

[Cremonesi 2010] Performance of recommender algorithms on top-N recommendation tasks, RecSys.
[Steck 2019] Embarrassingly shallow autoencoders for sparse data, WWW.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from dsgmcmc.types import Float64, Int32

WIDTH, PENALTY, FLOOR = 64, 500.0, 0.01


class Exposure:
    """Probabilities that users rate items; see the module.

    Parameters
    ----------
    pattern : (users, items) sparse matrix
        1 where there is a rating.
    """

    def __init__(self, pattern: scipy.sparse.csr_matrix) -> None:
        users, items = pattern.shape
        self._floor = FLOOR * np.asarray(pattern.sum(axis=0)).ravel() / max(users, 1)
        width = min(WIDTH, items - 1)
        if width < 1:
            squares, vectors = np.zeros(0), np.zeros((items, 0))
        else:
            turned = pattern.T.tocsr()
            gram = LinearOperator((items, items), lambda x: turned @ (pattern @ x), dtype=np.float64)
            squares, vectors = eigsh(gram, width, v0=np.ones(items))  # a start of its own would be drawn at random
        self._vectors: Float64 = vectors
        self._shares = np.maximum(squares, 0) / (np.maximum(squares, 0) + PENALTY)

    def of(self, items: Int32) -> Float64:
        """Probabilities of all items, (items,) float64, for a user who rated these."""
        smoothed = self._vectors @ (self._shares * self._vectors[items].sum(axis=0))
        result: Float64 = np.clip(smoothed, self._floor, 1.0)
        return result
