"""Cuts rows of ratings (CSR) into blocks of columns, and transposes them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.stored import index_type
from dsgmcmc.types import Array, Int32, Int64

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
def fill(indptr, indices, values, block_of, bounds, starts, firsts, out_indices, out_values):
    """Ratings to their blocks; block b begins at firsts[b]."""
    place = np.empty(firsts.shape[0], np.int64)
    for i in range(indptr.shape[0] - 1):
        for b in range(place.shape[0]):
            place[b] = firsts[b] + starts[b, i]
        for r in range(indptr[i], indptr[i + 1]):
            b = block_of[indices[r]]
            out_indices[place[b]] = indices[r] - bounds[b]
            out_values[place[b]] = values[r]
            place[b] += 1
'''

_TURN = '''\
{turn}
def turn(indptr, indices, values, places, out_indices, out_values):
    """Ratings to their columns, of which places (m,) are where the next one goes."""
    for i in range(indptr.shape[0] - 1):
        for r in range(indptr[i], indptr[i + 1]):
            place = places[indices[r]]
            places[indices[r]] = place + 1
            out_indices[place] = i
            out_values[place] = values[r]
'''

Ratings = tuple[Int64, Array, Array]


def split_columns(indptr: Int64, indices: Int32, values: Array, bounds: Int64) -> list[Ratings]:
    """Cut rows of ratings into blocks of columns.

    Parameters
    ----------
    indptr : (n + 1,) int64
        CSR row boundaries, from 0.
    indices : (nnz,) int32
        Columns, from bounds[0] to below bounds[B].
    values : (nnz,) float32 or uint8
        Ratings.
    bounds : (B + 1,) int64
        Block b has the columns bounds[b] to below bounds[b + 1].

    Returns
    -------
    blocks : list of B tuples (indptr (n + 1,) int64, indices of `index_type` of the widest block, values)
        Columns are counted from the first column of the block. The order within a row is kept.

    Raises
    ------
    ValueError
        If lengths differ, or a column is outside the bounds.
    """
    blocks = len(bounds) - 1
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(values):
        raise ValueError("indptr, indices and values do not describe one CSR matrix")
    if len(indices) and not (bounds[0] <= indices.min() and indices.max() < bounds[-1]):
        raise ValueError(f"a column lies outside [{bounds[0]}, {bounds[-1]})")
    block_of = np.zeros(int(bounds[-1]), np.int32)
    block_of[bounds[0] :] = np.repeat(np.arange(blocks, dtype=np.int32), np.diff(bounds))
    starts = np.zeros((blocks, len(indptr)), np.int64)
    out_indices = np.empty(len(indices), index_type(int(np.diff(bounds).max())))
    out_values = np.empty_like(values)
    module = _split_module(out_indices.dtype.name, values.dtype.name)
    module.count(indptr, indices, block_of, starts)
    firsts = np.zeros(blocks + 1, np.int64)
    np.cumsum(starts[:, -1], out=firsts[1:])
    module.fill(indptr, indices, values, block_of, bounds, starts, firsts[:-1], out_indices, out_values)
    return [
        (starts[b], out_indices[firsts[b] : firsts[b + 1]], out_values[firsts[b] : firsts[b + 1]])
        for b in range(blocks)
    ]


def turned(indptr: Int64, indices: Array, values: Array, columns: int) -> Ratings:
    """Transpose ratings in CSR; the result has the types of `split_columns`."""
    found = np.zeros(columns + 1, np.int64)
    np.cumsum(np.bincount(indices, minlength=columns), out=found[1:])
    out_indices, out_values = np.empty(len(indices), index_type(len(indptr) - 1)), np.empty_like(values)
    module = _turn_module(indices.dtype.name, out_indices.dtype.name, values.dtype.name)
    module.turn(indptr, indices, values, found[:-1].copy(), out_indices, out_values)
    return found, out_indices, out_values


@functools.cache
def _split_module(index: str, value: str) -> Any:
    count = jit.decorator("void(int64[::1], int32[::1], int32[::1], int64[:, ::1])")
    fill = jit.decorator(
        f"void(int64[::1], int32[::1], {value}[::1], int32[::1], int64[::1], int64[:, ::1], int64[::1], "
        f"{index}[::1], {value}[::1])"
    )
    return jit.compile_source("split", _SPLIT.format(count=count, fill=fill))


@functools.cache
def _turn_module(index: str, out_index: str, value: str) -> Any:
    turn = jit.decorator(f"void(int64[::1], {index}[::1], {value}[::1], int64[::1], {out_index}[::1], {value}[::1])")
    return jit.compile_source("turn", _TURN.format(turn=turn))
