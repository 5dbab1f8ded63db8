"""What features are centred by: a run needs it for rows that it did not see."""

from __future__ import annotations

import numpy as np

from dsgmcmc.data.ratings import Ratings, Side
from dsgmcmc.types import Float64

_STEP = 1 << 20  # rows that are read at a time


def feature_means(ratings: Ratings, side: Side) -> Float64:
    """Mean of each feature over the rows (or columns) that have any, (F,) float64.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    stored = ratings.features[side]
    total, n = np.zeros(len(stored.names)), len(stored.indptr) - 1
    for start in range(0, n, _STEP):
        part = ratings.feature_slab(side, start, min(start + _STEP, n))
        total += np.bincount(part.indices, part.values.astype(np.float64), minlength=len(total))
    return total / max(int((np.diff(stored.indptr) > 0).sum()), 1)
