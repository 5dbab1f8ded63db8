"""Writes ratings files atomically, in bounded memory."""

from __future__ import annotations

import itertools
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from dsgmcmc.data.ratings.format import (
    ATTRIBUTES,
    CHUNK,
    FORMAT,
    MAX_SIDE,
    SIDES,
    SPLITS,
    VERSION,
    ContentHash,
    Features,
    Side,
    Split,
    Times,
    find_bad_cells,
)
from dsgmcmc.errors import InputError, writing
from dsgmcmc.storage.files import sync
from dsgmcmc.storage.hdf5 import new_hdf5
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, UInt8


class Slab(NamedTuple):
    """Ratings of a part in the rows that follow those of the part's slab before.

    Attributes
    ----------
    part : {"train", "test"}
    indptr : (n+1,) int64, starting at 0
    indices : (m,) int32, ascending in each row
    values : (m,) float32, finite
    times : dict of side to Times, optional
        Positions of the ratings in time.
    ages : (m,) uint8, optional
        Ages of training ratings in a temporal split: hundredth by time, 0 for the latest.
    """

    part: Split
    indptr: Int64
    indices: Int32
    values: Float32
    times: Mapping[Side, Times] | None = None
    ages: UInt8 | None = None


class Sizes(NamedTuple):
    """Numbers of rows, columns, training and test ratings; the rows are the longer side."""

    rows: int
    cols: int
    train: int
    test: int


def check_target(path: Path, force: bool) -> None:
    """Raise InputError if `path` cannot be written, or exists and must not be replaced."""
    if not os.access(path.parent, os.W_OK):
        reason = "may not be written" if path.parent.exists() else "does not exist"
        raise InputError(f"{path} cannot be written: the folder {path.parent} {reason}")
    if path.is_dir() or (path.exists() and not force):
        raise InputError(f"{path} exists; give another name, or --force to replace a file")


def write_slabs(
    path: str | os.PathLike[str],
    sizes: Sizes,
    ids: Mapping[Side, Iterable[Array]],
    slabs: Iterable[Slab],
    *,
    features: Mapping[Side, Features] | None = None,
    seed: int = 0,
    transposed: bool = False,
    source: str = "",
    force: bool = False,
) -> None:
    """Write a ratings file slab by slab: a temporary file beside it, which is synced and renamed when it is complete.

    Raises InputError if `path` exists without `force`, and WriteError if the file cannot be written.

    Parameters
    ----------
    ids : dict of side to arrays
        Original names, piece by piece: (n,) int64, or ``S<n>`` with UTF-8.
    features : dict of side to Features
        Features of rows, columns, or both.
    seed, transposed, source
        Attributes of the file, as in `Ratings`.
    """
    path = Path(path)
    check_target(path, force)
    if not 0 < sizes.cols <= sizes.rows <= MAX_SIDE or sizes.train < 1:
        raise ValueError(f"{sizes} are no sizes of a ratings file")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(path):
            with new_hdf5(temporary) as (file, check):
                content = _Content(file, check, sizes)
                for side in SIDES:
                    content.add_features(side, (features or {}).get(side))
                    for names in ids[side]:
                        content.append(f"{side}/ids", names, getattr(sizes, side))
                for slab in slabs:
                    content.add(slab)
                attributes = {"seed": seed, "transposed": transposed, "source": source}
                content.finish(attributes)
            sync(temporary)
            check_target(path, force)
            temporary.replace(path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


class _Content:
    """The content of a ratings file that is being written."""

    def __init__(self, file: h5py.File, check: Callable[[], None], sizes: Sizes) -> None:
        self._file, self._check, self._sizes = file, check, sizes
        self._hash = ContentHash()
        self._filled: dict[str, int] = {}
        self._column_counts = np.zeros(sizes.cols, dtype=np.int64)
        self._row_sums: list[Float64] = []
        self._time_counts: dict[str, Int32] = {}
        self._minimum, self._maximum = np.inf, -np.inf

    def append(self, name: str, array: Array, length: int, identity: bool = True) -> None:
        """Append to a data set of final length `length`; bytes are UTF-8. `identity`: include it in the hash."""
        if name not in self._file:
            stored = h5py.string_dtype("utf-8", array.dtype.itemsize) if array.dtype.kind == "S" else array.dtype
            chunks = (min(length, CHUNK),) if length else None  # an empty data set has no chunks
            self._file.create_dataset(name, (length,), stored, chunks=chunks, fletcher32=bool(chunks))
        start = self._filled.get(name, 0)
        self._filled[name] = start + len(array)
        if self._filled[name] > length:
            raise ValueError(f"/{name} has more than {length} entries")
        array = array.astype(self._file[name].dtype)  # also tells h5py that bytes are UTF-8
        if len(array):
            self._file[name][start : start + len(array)] = array
            self._check()
        if identity:
            self._hash.update(name, array)

    def add_features(self, side: Side, features: Features | None) -> None:
        """Add the features of a side, if there are any; their encoding is not part of the hash."""
        for name, array in features.datasets(side).items() if features else ():
            self.append(name, array, len(array), identity=not name.endswith("/encoding"))

    def add(self, slab: Slab) -> None:
        """Append the ratings of the next rows of a part."""
        part, indptr = slab.part, slab.indptr
        indices, values = slab.indices.astype(np.int32, copy=False), slab.values.astype(np.float32, copy=False)
        if bad := find_bad_cells(indptr, indices, values, self._sizes.cols):
            raise ValueError(bad)
        length, n_rows = getattr(self._sizes, part), self._sizes.rows
        offset = self._filled.get(f"{part}/indices", 0)
        row = self._filled.get(f"{part}/indptr", 1) - 1
        if row == 0:
            self.append(f"{part}/indptr", np.zeros(1, dtype=np.int64), n_rows + 1)
        self.append(f"{part}/indptr", offset + indptr[1:], n_rows + 1)
        self.append(f"{part}/indices", indices, length)
        self.append(f"{part}/values", values, length)
        if slab.ages is not None:
            self.append(f"{part}/age", slab.ages, length)
        owners: dict[Side, Array] = {
            "rows": np.repeat(np.arange(row, row + len(indptr) - 1), np.diff(indptr)),
            "cols": indices,
        }
        for side, times in (slab.times or {}).items():
            for name, total, numbers in zip(Times.datasets(side, part), Times.datasets(side), times, strict=True):
                counts = self._time_counts.setdefault(total, np.zeros(getattr(self._sizes, side), np.int32))
                np.maximum.at(counts, owners[side], numbers + 1)
                self.append(name, numbers, length)
        if part == "train" and len(values):
            self._column_counts += np.bincount(indices, minlength=self._sizes.cols)
            self._minimum = min(self._minimum, float(values.min()))
            self._maximum = max(self._maximum, float(values.max()))
            # exact sum of the row sums: the mean does not depend on the division into slabs
            starts = indptr[:-1][np.diff(indptr) > 0]
            self._row_sums.append(np.add.reduceat(values.astype(np.float64), starts))

    def finish(self, attributes: dict[str, Any]) -> None:
        """Add the numbers of ratings of columns and of times, and the attributes."""
        sizes = self._sizes
        for name, filled in self._filled.items():
            if filled != len(self._file[name]):
                raise ValueError(f"/{name} has {filled} entries, fewer than {len(self._file[name])}")
        self.append("train/column_counts", self._column_counts, sizes.cols, identity=False)
        for name, counts in self._time_counts.items():
            self.append(name, counts, len(counts), identity=False)
        attributes |= {"format": FORMAT, "version": VERSION, "min": self._minimum, "max": self._maximum}
        attributes |= {"I": sizes.rows, "J": sizes.cols, "nnz": sizes.train, "nnz_test": sizes.test}
        attributes["mean"] = math.fsum(itertools.chain.from_iterable(self._row_sums)) / sizes.train
        attributes["content_sha256"] = self._hash.hexdigest(sizes.rows, sizes.cols, attributes["transposed"])
        for name, expected in ATTRIBUTES.items():
            value = expected(attributes[name])
            text = value.encode() if isinstance(value, str) else None
            # text of fixed length: HDF5 hangs on some damaged files with text of variable length
            kind = None if text is None else h5py.string_dtype("utf-8", max(1, len(text)))
            self._file.attrs.create(name, value if text is None else text, dtype=kind)


def write_ratings(
    path: str | os.PathLike[str],
    train: tuple[Int64, Int32, Float32],
    test: tuple[Int64, Int32, Float32],
    row_ids: Array,
    col_ids: Array,
    times: tuple[Mapping[Side, Times], Mapping[Side, Times]] | None = None,
    **attributes: Any,
) -> None:
    """Write a ratings file from arrays in memory.

    `train` and `test` are compressed sparse rows (indptr, indices, values) in the order of the file, `row_ids` and
    `col_ids` are int64 or ``S`` arrays, and `times` has the positions in time of the training and of the test ratings.
    `attributes` may be ``features``, ``seed``, ``transposed``, ``source`` and ``force`` of `write_slabs`.
    """
    sizes = Sizes(len(row_ids), len(col_ids), len(train[1]), len(test[1]))
    slabs = (
        Slab(part, *ratings, times[k] if times else None)
        for k, (part, ratings) in enumerate(zip(SPLITS, (train, test), strict=True))
    )
    write_slabs(path, sizes, {"rows": [row_ids], "cols": [col_ids]}, slabs, **attributes)
