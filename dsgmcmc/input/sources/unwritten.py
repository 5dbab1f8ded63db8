"""Finds the cells of HDF5 data sets that nobody wrote: those of chunks that the file does not have.

HDF5 reads such cells as the fill value of the data set, which is 0 unless its writer chose another.
Cells of a chunk of which only a part was written cannot be told from others.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.labelled import meaning
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float64, Mask


def unwritten_cells(node: h5py.Dataset) -> Mask | None:
    """Return a mask of the cells that nobody wrote, of the shape of a data set; None without any.

    Data in other files, and virtual data sets, count as written.
    """
    if not node.size or not node.shape:
        return None
    properties = node.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.CONTIGUOUS and not properties.get_external_count():
        if node.id.get_storage_size():
            return None
        return np.ones(node.shape, bool)
    if properties.get_layout() != h5py.h5d.CHUNKED:
        return None
    n_chunks = math.prod(
        math.ceil(length / chunk) for length, chunk in zip(node.shape, node.chunks, strict=True)
    )
    if node.id.get_num_chunks() >= n_chunks:
        return None
    unwritten = np.ones(node.shape, bool)

    def mark(stored: Any) -> None:
        corner = zip(stored.chunk_offset, node.chunks, strict=True)
        unwritten[tuple(slice(start, start + length) for start, length in corner)] = False

    node.id.chunk_iter(mark)
    return unwritten


def unwritten_in(path: Path, name: str) -> Mask | None:
    """Return the cells of a data set of a file that nobody wrote, as `unwritten_cells` does."""
    with h5py.File(path, "r") as file:
        return unwritten_cells(file[name])


def read_written(node: h5py.Dataset) -> Array:
    """Read a data set; raise InputError if nobody wrote some of its cells."""
    unwritten = unwritten_cells(node)
    if unwritten is not None:
        raise InputError(
            f"{node.file.filename}: nobody wrote {np.count_nonzero(unwritten):,} of the"
            f" {node.size:,} values of {node.name}: write them"
        )
    return np.asarray(node[()])


def with_meaning(
    where: str, values: Array, unwritten: Mask | None, choice: Reading
) -> tuple[Array, str, Reading]:
    """Give a matrix's cells that nobody wrote the meaning that the user has chosen.

    Parameters
    ----------
    where : str
        Path and name of the matrix, for messages.
    values : (n, m) array
        The matrix as HDF5 reads it; unwritten cells that are NaN are not rated.
    unwritten : (n, m) bool or None

    Returns
    -------
    values : (n, m) array
        With NaN, or 0, in the unwritten cells.
    note : str
        What these cells mean, for the summary; empty if there are none.
    choice : Reading
        The choice without `unstored`, if it was needed.

    Raises
    ------
    InputError
        If there are such cells, and the user has not chosen.
    """
    if unwritten is None:
        return values, "", choice
    doubtful = unwritten & ~np.isnan(values)
    n = int(np.count_nonzero(doubtful))
    if not n:
        return values, "", choice
    read_as = np.unique(values[doubtful])
    if choice.unstored is None:
        raise InputError(
            f"{where}: nobody wrote {n:,} of the {values.size:,} cells, which HDF5 reads as"
            f" {read_as[0]:g}: are these not rated, or ratings of 0? Give {named('unstored')}"
            f" missing or {named('unstored')} zero"
        )
    numbers: Float64 = values.astype(np.float64)
    numbers[doubtful] = np.nan
    if choice.unstored == "zero":
        numbers[doubtful] = 0
    note = f"{n:,} cells that nobody wrote are {meaning(choice)}"
    n_alike = 0
    if choice.unstored == "missing":
        n_alike = int(np.count_nonzero(numbers == read_as[0]))
    if n_alike:
        note += (
            f", {n_alike:,} cells of {read_as[0]:g} beside them are ratings"
            f" ({named('missing')} {read_as[0]:g} leaves them out)"
        )
    if choice.unstored == "limit":
        return numbers, note, choice
    return numbers, note, choice._replace(unstored=None)
