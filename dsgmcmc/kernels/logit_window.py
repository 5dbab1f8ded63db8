"""Changes of the log likelihood of two levels, if an element of every row moves to several places.

For a rating of level y with z = eta - C, and s = 2 y - 1, the log likelihood is -log(1 +
exp(-s z)). The places of a row's element are z's changes of (q - start) spacing x, q = 0, 1, ...,
`PLACES` - 1, where x is the covariate of the rating. They are computed side by side.
"""

from __future__ import annotations

import functools
from typing import Any

from dsgmcmc.kernels.compact_ratings import COLUMN, RATINGS
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.densities import FUNCTIONS
from dsgmcmc.types import Array, Float32

#: Places that a row's element can move to, its own among them.
PLACES = 16

_SOURCE = '''\
{functions}


{column}@kernel("void({ratings}, float32[::1], float32[::1], float32[:, ::1], float32[:, ::1])")
def changes(indptr, indices, codes, values, z, covariate, windows, out):
    """Add the changes of all ratings of a cell to those of their rows, or of their columns."""
    wide_vectors()
    tile = np.zeros({places}, np.float32)
    flat = out.reshape(out.size)
    halves = indices.size > z.size
    coded = codes.size > 0
    for i in range(uint64(indptr.size - 1)):
        for r in range(uint64(indptr[i]), uint64(indptr[i + uint64(1)])):
            j = column(indices, halves, r)
            own = {own}
            sign = float32(2) * (values[uint64(codes[r])] if coded else values[r]) - float32(1)
            here = -sign * z[r]
            now = max(here, float32(0)) + log1p32(exp32(-abs(here)))
            step = -sign * covariate[{other}] * windows[own, uint64(1)]
            first = here - step * windows[own, uint64(0)]
            for q in range(uint64({places})):
                x = first + step * float32(int32(q))
                tile[q] = now - max(x, float32(0)) - log1p32(exp32(-abs(x)))
            row = own * uint64({places})
            for q in range(uint64({places})):
                flat[row + q] += tile[q]
'''


@functools.cache
def _module(by_column: bool) -> Any:
    source = _SOURCE.format(
        functions=FUNCTIONS,
        column=COLUMN,
        ratings=RATINGS,
        places=PLACES,
        own="j" if by_column else "i",
        other="i" if by_column else "j",
    )
    return jit.compile_source("logit_window", source)


def add_changes(
    ratings: tuple[Array, ...],
    z: Float32,
    covariate: Float32,
    windows: Float32,
    *,
    out: Float32,
    by_column: bool,
) -> None:
    """Add the changes of the log likelihood at all places of a cell's rows or columns.

    Parameters
    ----------
    ratings : tuple of arrays
        Ratings from `dsgmcmc.kernels.compact_ratings.kernel_arguments`: 0 or 1.
    z : (nnz,) float32
        Predictors less the threshold.
    covariate : (m,) float32
        What multiplies the moved element in the predictor, for every row of the other factor.
    windows : (n, 2) float32
        The place of every element as it is, and the distance of places.
    out : (n, PLACES) float32
        Changes, to which those of the cell are added.
    by_column : bool
        Whether the elements are of the cell's columns.
    """
    _module(by_column).changes(*ratings, z, covariate, windows, out)
