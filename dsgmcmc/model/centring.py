"""Centre and unit of ratings: what is subtracted from them, and what they are divided by.

The mean and the root mean square follow single values that are far from all others, such as one
in another unit. If the root mean square is far above the spread of most ratings, heavy-tailed
likelihoods take the median, and the median absolute deviation of a normal law with its sd.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.ratings.file import Ratings

#: Root mean square, over the robust sd, above which the robust centre and sd are used. The sd of
#: ratings with 2.1 degrees of freedom is 7 robust sds.
FAR = 100.0
#: sd of a normal law over its median absolute deviation.
SD_OF_MAD = 1.4826
#: Largest number of ratings of which medians are computed; of more, evenly spaced ones are used.
MOST = 1 << 22


class Unit(NamedTuple):
    """Centre and unit of ratings.

    Attributes
    ----------
    centre : float
        Number that is subtracted from ratings.
    scale : float or None
        Divisor of ratings; None: their root mean square, less the centre.
    """

    centre: float
    scale: float | None = None


def robust_unit(ratings: Ratings) -> Unit | None:
    """Return the median and the robust sd of the training ratings; None if mean and sd serve.

    Ratings are on the scale of the likelihood.
    """
    every = -(-ratings.nnz // MOST)
    spaced = []
    first = 0
    squares = 0.0  # about the mean
    for slab in ratings.values("train"):
        spaced.append(slab[-first % every :: every].astype(np.float64))
        first += len(slab)
        squares += float(np.square(slab - ratings.mean, dtype=np.float64).sum())
    values = np.concatenate(spaced)
    centre = float(np.median(values))
    scale = SD_OF_MAD * float(np.median(np.abs(values - centre)))
    mean_square = squares / ratings.nnz + (ratings.mean - centre) ** 2
    if scale == 0 or np.sqrt(mean_square) <= FAR * scale:
        return None
    return Unit(centre, scale)
