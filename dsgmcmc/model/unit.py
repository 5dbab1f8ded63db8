"""Centre and unit of ratings under likelihoods with heavy tails.

The mean and the root mean square follow single values that are far from all others, such as one
in another unit. If the root mean square is far above the spread of most ratings, heavy-tailed
likelihoods take the median, and the median absolute deviation of a normal law with its sd.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.types import Float64

#: Root mean square, over the robust sd, above which the robust centre and sd are used. The sd of
#: ratings with 2.1 degrees of freedom is 7 robust sds.
FAR = 100.0
#: sd of a normal law over its median absolute deviation.
SD_OF_MAD = 1.4826
#: Largest number of ratings of which medians are computed; of more, evenly spaced ones are used.
MOST = 1 << 22


class RobustUnit(NamedTuple):
    """Median and robust standard deviation of the training ratings."""

    centre: float
    scale: float


def robust_unit(ratings: Ratings) -> RobustUnit | None:
    """Return the robust centre and sd of the training ratings; None if mean and sd serve as well.

    Ratings are on the scale of the likelihood.
    """
    values = _spaced(ratings)
    centre = float(np.median(values))
    scale = SD_OF_MAD * float(np.median(np.abs(values - centre)))
    squares = 0.0
    for slab in ratings.values("train"):
        squares += float(np.square(slab - centre, dtype=np.float64).sum())
    if scale == 0 or np.sqrt(squares / ratings.nnz) <= FAR * scale:
        return None
    return RobustUnit(centre, scale)


def _spaced(ratings: Ratings) -> Float64:
    """Return at most `MOST` of the training ratings, evenly spaced in the order of the file."""
    every = -(-ratings.nnz // MOST)
    pieces = []
    first = 0
    for slab in ratings.values("train"):
        pieces.append(slab[-first % every :: every].astype(np.float64))
        first += len(slab)
    return np.concatenate(pieces)
