"""Item neighbours: a ranking without a model, to compare with.

The similarity of two items is the cosine of their columns of the pattern of ratings (1 where there is one); the score
of an item for a user is the sum of its similarities to those of its `NEAREST` neighbours that the user rated [Sarwar
2001]. The number was the best of 20, 50, 100 and 200 on MovieLens 100K.

[Sarwar 2001] Item-based collaborative filtering recommendation algorithms, WWW.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.types import Float32, Int32

if TYPE_CHECKING:
    import scipy.sparse

NEAREST = 100
MOST_ITEMS = 20_000  # time grows with the square of their number
_CELLS = 1 << 23  # similarities in memory at a time


class Neighbours:
    """Scores of items by the neighbours that a user rated; `pattern` is a sparse (users, items) matrix of ones."""

    def __init__(self, pattern: scipy.sparse.csr_matrix) -> None:
        import scipy.sparse

        items = pattern.shape[1]
        length = np.sqrt(np.maximum(np.asarray(pattern.sum(axis=0)).ravel(), 1))
        columns = (pattern.astype(np.float32) @ scipy.sparse.diags((1 / length).astype(np.float32))).tocsc()
        turned, nearest, step = columns.T.tocsr(), min(NEAREST, items - 1), max(1, _CELLS // items)
        parts = []
        for start in range(0, items, step):
            similar = (turned[start : start + step] @ columns).toarray()
            similar[np.arange(len(similar)), start + np.arange(len(similar))] = 0
            if nearest:
                similar[similar < np.partition(similar, -nearest, axis=1)[:, [-nearest]]] = 0
            parts.append(scipy.sparse.csr_matrix(similar))
        self._turned = scipy.sparse.vstack(parts).T.tocsr()

    def of(self, rated: Sequence[Int32]) -> Float32:
        """Scores (users, items) float32 for users who rated these items each."""
        import scipy.sparse

        ends = np.append(0, np.cumsum([len(items) for items in rated]))
        shape = len(rated), self._turned.shape[0]
        own = scipy.sparse.csr_matrix((np.ones(ends[-1], np.float32), np.concatenate(rated), ends), shape=shape)
        scores: Float32 = (own @ self._turned).toarray()
        return scores
