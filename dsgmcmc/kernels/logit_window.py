"""Changes of the log likelihood of two levels, if an element of every row moves to several places.

For a rating of level y with z = eta - C, and s = 2 y - 1, the log likelihood is -log(1 +
exp(-s z)). With x = -s z that is -max(x, 0) - log(1 + exp(-|x|)). The places of a row's element are
z's changes of (q - start) spacing c, q = 0, 1, ..., `PLACES` - 1, where c is the covariate of the
rating. They are computed side by side. The numbers 1 + exp(-|x|) are between 1 and 2: those of
`TOGETHER` ratings are multiplied, and one logarithm is taken of the product.
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

#: Ratings whose logarithms are taken together.
TOGETHER = 32

_SOURCE = f'''\
{FUNCTIONS}


{COLUMN}@kernel("void({RATINGS}, float32[::1], float32[::1], float32[:, ::1], float32[:, ::1])")
def changes(indptr, indices, codes, values, z, covariate, windows, out):
    """Add the changes of all ratings of a cell to those of their rows."""
    wide_vectors()
    sums = np.zeros({PLACES}, np.float32)
    products = np.zeros({PLACES}, np.float32)
    flat = out.reshape(out.size)
    halves = indices.size > z.size
    coded = codes.size > 0
    for i in range(uint64(indptr.size - 1)):
        start = windows[i, uint64(0)]
        row = i * uint64({PLACES})
        end = uint64(indptr[i + uint64(1)])
        for first in range(uint64(indptr[i]), end, uint64({TOGETHER})):
            sums[:] = float32(0)
            products[:] = float32(1)
            for r in range(first, min(first + uint64({TOGETHER}), end)):
                sign = float32(2) * (values[uint64(codes[r])] if coded else values[r]) - float32(1)
                step = -sign * covariate[column(indices, halves, r)] * windows[i, uint64(1)]
                origin = -sign * z[r] - step * start
                for q in range(uint64({PLACES})):
                    x = origin + step * float32(int32(q))
                    sums[q] += max(x, float32(0))
                    products[q] *= float32(1) + exp32(-abs(x))
            for q in range(uint64({PLACES})):
                sums[q] += log32(products[q])
            now = sums[uint64(start)]
            for q in range(uint64({PLACES})):
                flat[row + q] += now - sums[q]
'''


@functools.cache
def _module() -> Any:
    return jit.compile_source("logit_window", _SOURCE)


def add_changes(
    ratings: tuple[Array, ...],
    z: Float32,
    covariate: Float32,
    windows: Float32,
    *,
    out: Float32,
) -> None:
    """Add the changes of the log likelihood at all places of a cell's rows.

    Parameters
    ----------
    ratings : tuple of arrays
        Ratings from `dsgmcmc.kernels.compact_ratings.kernel_arguments`: 0 or 1.
    z : (nnz,) float32
        Predictors less the threshold.
    covariate : (m,) float32
        What multiplies the moved element in the predictor, for every column of the cell.
    windows : (n, 2) float32
        The place of every element as it is, and the distance of places.
    out : (n, PLACES) float32
        Changes, to which those of the cell are added.
    """
    _module().changes(*ratings, z, covariate, windows, out)
