"""Products of rows with small matrices, and inner products of columns, without BLAS.

The last bits of BLAS results depend on the processor, the version and the number of threads. Here
64 rows at a time are transposed, so that inner loops run over rows, whatever the number of columns.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Array, Float64

#: Loops over a chunk do not have a constant length: the compiler would unroll them, for three
#: seconds.
_ROTATE = """\
@kernel("void({dtype}[:, ::1], {dtype}[:, ::1], {dtype}[:, ::1], {dtype})")
def rotate(values, matrix, out, keep):
    n, D = values.shape
    wide = (D + 3) // 4 * 4
    padded = np.zeros((wide, D), np.{dtype})
    padded[:D] = matrix
    chunk = np.zeros((wide, 64), np.{dtype})
    product = np.empty((D, 64), np.{dtype})
    for first in range(0, n, 64):
        rows = min(64, n - first)
        for i in range(rows):
            for k in range(D):
                chunk[k, i] = values[first + i, k]
        for l in range(D):
            for i in range(chunk.shape[1]):
                product[l, i] = 0
            for k in range(0, wide, 4):
                a, b, c, d = padded[k, l], padded[k + 1, l], padded[k + 2, l], padded[k + 3, l]
                for i in range(chunk.shape[1]):
                    first_two = a * chunk[k, i] + b * chunk[k + 1, i]
                    product[l, i] += first_two + (c * chunk[k + 2, i] + d * chunk[k + 3, i])
        for i in range(rows):
            for k in range(D):
                out[first + i, k] = keep * out[first + i, k] + product[k, i]
"""

_INNER = """\
@kernel("void({dtype}[:, ::1], {dtype}[:, ::1], float64[:, ::1], int64)")
def inner(left, right, out, are_equal):
    n, D = left.shape
    columns = np.zeros((2, D, 64), np.{dtype})
    for first in range(0, n, 64):
        rows = min(64, n - first)
        if rows < 64:
            columns[:] = 0
        for i in range(rows):
            for k in range(D):
                columns[0, k, i] = left[first + i, k]
                columns[1, k, i] = right[first + i, k]
        for k in range(D):
            for l in range(are_equal * k, D):
                total = {dtype}(0)
                for i in range(columns.shape[2]):
                    total += columns[0, k, i] * columns[1, l, i]
                out[k, l] += float64(total)
    for k in range(D):
        for l in range(are_equal * k):
            out[k, l] = out[l, k]
"""


def add_rotated(out: Array, values: Array, matrix: Array, keep: float = 1.0) -> None:
    """Set `out` to `keep` times itself plus `values` @ `matrix`.

    Parameters
    ----------
    out, values : (n, D) array
        C-contiguous, float32 or float64; may be the same array.
    matrix : (D, D) array
        Matrix of the same dtype as `values`.
    keep : float
        0 replaces `out`.
    """
    _module("rotate", _ROTATE, values.dtype).rotate(
        values, np.ascontiguousarray(matrix, values.dtype), out, keep
    )


def inner(left: Array, right: Array) -> Float64:
    """Return `left`.T @ `right`, (D, D): inner products of columns.

    Parameters
    ----------
    left, right : (n, D) array
        C-contiguous, of the same dtype, float32 or float64. If they are one array, half of the
        products are computed: the others are the same to the bit.
    """
    out = np.zeros((left.shape[1],) * 2)
    _module("inner", _INNER, left.dtype).inner(left, right, out, int(left is right))
    return out


@functools.cache
def _module(name: str, source: str, dtype: np.dtype[Any]) -> Any:
    return jit.compile_source(name, source.format(dtype=dtype))
