"""Sums of chosen rows of a matrix, for many choices."""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Float32, Int64

#: Columns that are summed together: those of some thousand rows fit in the cache.
_COLUMNS = 256

_SOURCE = '''\
@kernel("void(float32[:, ::1], int64[::1], int64[::1], float32[::1], float32[:, ::1])", EXACT)
def sums(matrix, rows, ends, total, out):
    """Sums in the order of rows; negative numbers are left out."""
    for first in range(0, out.shape[1], total.shape[0]):
        width = min(total.shape[0], out.shape[1] - first)
        for i in range(out.shape[0]):
            for j in range(width):
                total[j] = float32(0)
            for r in range(ends[i], ends[i + 1]):
                k = rows[r]
                if k >= 0 and first >= 0:  # no vectors if a column may count from the end
                    for j in range(width):
                        total[j] += matrix[k, first + j]
            for j in range(width):
                out[i, first + j] = total[j]
'''


def sum_rows(matrix: Float32, rows: Int64, ends: Int64, out: Float32) -> None:
    """Set every row of a matrix to the sum of chosen rows of another one.

    Parameters
    ----------
    matrix : (n, m) float32
    rows : (k,) int64
        Rows of `matrix` that are added, in this order; negative numbers are left out.
    ends : (q + 1,) int64
        Ends of the choices in `rows`, after a 0.
    out : (q, m) float32
    """
    total = np.empty(_COLUMNS, np.float32)
    jit.native_kernels("row_sums", _SOURCE)["sums"](matrix, rows, ends, total, out)
