"""The cutting of a process's rows of ratings (CSR) into blocks of columns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgmcmc.kernels import jit

_SPLIT = '''\
{count}
def count(indptr, indices, block_of, starts):
    """Row counts of every block, cumulated, into starts (B, n + 1)."""
    for i in range(indptr.shape[0] - 1):
        for b in range(starts.shape[0]):
            starts[b, i + 1] = starts[b, i]
        for r in range(indptr[i], indptr[i + 1]):
            starts[block_of[indices[r]], i + 1] += 1


{fill}
def fill(indptr, indices, values, block_of, bounds, starts, firsts, offset, out_indices, out_values):
    """Ratings to their blocks; block b begins at firsts[b]."""
    offset = float32(offset)
    place = np.empty(firsts.shape[0], np.int64)
    for i in range(indptr.shape[0] - 1):
        for b in range(place.shape[0]):
            place[b] = firsts[b] + starts[b, i]
        for r in range(indptr[i], indptr[i + 1]):
            b = block_of[indices[r]]
            out_indices[place[b]] = int32(indices[r] - bounds[b])
            out_values[place[b]] = values[r] - offset
            place[b] += 1
'''

Ratings = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def split_columns(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    bounds: NDArray[np.int64],
    offset: float,
) -> list[Ratings]:
    """Cut rows of ratings into blocks of columns.

    Parameters
    ----------
    indptr : (n + 1,) int64
        CSR row boundaries, from 0.
    indices : (nnz,) int32
        Columns, from bounds[0] to below bounds[B].
    values : (nnz,) float32
        Ratings.
    bounds : (B + 1,) int64
        Block b has the columns bounds[b] to below bounds[b + 1].
    offset : float
        Taken off every rating: the training mean.

    Returns
    -------
    blocks : list of B tuples (indptr (n + 1,) int64, indices int32, values float32)
        Columns count from the block's first. Order inside a row is kept.

    Raises
    ------
    ValueError
        Arrays of unlike lengths, or a column outside the bounds.
    """
    blocks = len(bounds) - 1
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(values):
        raise ValueError("indptr, indices and values do not describe one CSR matrix")
    if len(indices) and not (bounds[0] <= indices.min() and indices.max() < bounds[-1]):
        raise ValueError(f"a column lies outside [{bounds[0]}, {bounds[-1]})")
    block_of = np.zeros(int(bounds[-1]), np.int32)
    block_of[bounds[0] :] = np.repeat(np.arange(blocks, dtype=np.int32), np.diff(bounds))
    starts = np.zeros((blocks, len(indptr)), np.int64)
    module = _split_module()
    module.count(indptr, indices, block_of, starts)
    firsts = np.zeros(blocks + 1, np.int64)
    np.cumsum(starts[:, -1], out=firsts[1:])
    out_indices = np.empty(len(indices), np.int32)
    out_values = np.empty(len(indices), np.float32)
    module.fill(indptr, indices, values, block_of, bounds, starts, firsts[:-1], offset, out_indices, out_values)
    return [
        (starts[b], out_indices[firsts[b] : firsts[b + 1]], out_values[firsts[b] : firsts[b + 1]])
        for b in range(blocks)
    ]


@functools.cache
def _split_module() -> Any:
    count = jit.decorator("void(int64[::1], int32[::1], int32[::1], int64[:, ::1])")
    fill = jit.decorator(
        "void(int64[::1], int32[::1], float32[::1], int32[::1], int64[::1], int64[:, ::1], int64[::1], "
        "float64, int32[::1], float32[::1])"
    )
    return jit.compile_source("split", _SPLIT.format(count=count, fill=fill))
