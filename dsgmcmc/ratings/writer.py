"""Writes the ratings file (`dsgmcmc.ratings.format`) slab by slab, in bounded memory."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import h5py
import numpy as np

from dsgmcmc.errors import writing
from dsgmcmc.ratings.format import (
    ATTRIBUTES,
    CHUNK,
    COLUMNS,
    DIRECTIONS,
    EXTENDED,
    FORMAT,
    GROUPED_BY,
    HEADING,
    IS_OPEN,
    ITEM_LEVELS,
    MEAN_WEIGHT,
    READING,
    REPLICATES,
    RESOLUTION,
    SIDES,
    VERSION,
    ContentHash,
    Directions,
    Features,
    MatrixNames,
    Side,
    Split,
    Times,
    as_utf8,
    parts_dataset,
)
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.ratings.resolution import SAMPLE, find_resolution
from dsgmcmc.storage.files import check_target, replacing, sync
from dsgmcmc.storage.hdf5 import new_hdf5
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, UInt8


class Slab(NamedTuple):
    """Ratings of a part in consecutive rows, which follow the rows of the part's previous slab.

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
    weight : (m,) float32, optional
        Relative precisions, above 0, of the measurements.
    lower, upper : (m,) float32, optional
        Bounds between which ratings are known to lie; both are the value of an exact rating.
    groups : (m,) int32, optional
        Numbers of the groups of ratings, if groups are held out.
    """

    part: Split
    indptr: Int64
    indices: Int32
    values: Float32
    times: Mapping[Side, Times] | None = None
    ages: UInt8 | None = None
    weight: Float32 | None = None
    lower: Float32 | None = None
    upper: Float32 | None = None
    groups: Int32 | None = None


class Sizes(NamedTuple):
    """Numbers of rows, columns, training and test ratings; the rows are the longer side."""

    rows: int
    cols: int
    train: int
    test: int


class Origin(NamedTuple):
    """Where the ratings of a file come from: attributes of the file, as in `Ratings`."""

    seed: int = 0
    transposed: bool = False
    source: str = ""
    replicates: int = 0
    item_levels: bool = False
    said_levels: Float32 | None = None
    columns: Mapping[str, str] = MappingProxyType({})
    reading: Reading = Reading()
    matrix: MatrixNames = MatrixNames("", MappingProxyType({}))
    grouped_by: tuple[str, ...] = ()


class NameParts(NamedTuple):
    """Parts of names.

    Attributes
    ----------
    by_side : dict of side to dict of str to arrays
        Each part of names by its column, in pieces like the names of `write_slabs`; of both sides.
    directions : Directions, optional
        Of a table with a context.
    """

    by_side: Mapping[Side, Mapping[str, Iterable[Array]]]
    directions: Directions | None = None


def write_slabs(
    path: str | os.PathLike[str],
    sizes: Sizes,
    ids: Mapping[Side, Iterable[Array]],
    slabs: Iterable[Slab],
    *,
    parts: NameParts | None = None,
    features: Mapping[Side, Features] | None = None,
    origin: Origin | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a ratings file slab by slab, and return its attributes.

    It is first written to a temporary file in the same folder, which is synced and renamed when it
    is complete. Raises InputError if `path` exists without `force`, and WriteError if the file
    cannot be written.

    Parameters
    ----------
    ids : dict of side to arrays
        Original names, in pieces: (n,) int64, or ``S<n>`` with UTF-8; of a side in `parts` none.
    slabs : iterable of Slab
        Slabs of both parts; the slabs of a part are in the order of rows, and cover all rows.
    parts : NameParts, optional
        Parts of names of both sides, if those of one have several.
    features : dict of side to Features
        Features of rows, columns, or both.
    """
    path = Path(path)
    with writing(path):
        with replacing(path) as temporary:
            with new_hdf5(temporary) as (file, check):
                content = _Content(file, check, sizes)
                for side, side_features in (features or {}).items():
                    content.add_features(side, side_features)
                for side in SIDES:
                    content.add_names(side, ids.get(side, ()))
                if parts is not None:
                    for side, by_label in parts.by_side.items():
                        content.add_parts(side, by_label)
                    if parts.directions is not None:
                        content.add_directions(parts.directions)
                for slab in slabs:
                    content.add(slab)
                origin = origin or Origin()
                if origin.said_levels is not None:
                    content.append(ITEM_LEVELS, origin.said_levels.ravel(), origin.said_levels.size)
                attributes = content.finish(origin)
            sync(temporary)
            check_target(path, force)
        sync(path.parent)
    return attributes


def _sums_of_rows(indptr: Int64, values: Float32) -> Float64:
    """Sums of the values of every row that has some."""
    starts = indptr[:-1][np.diff(indptr) > 0]
    return np.add.reduceat(values.astype(np.float64), starts)


class _Content:
    """The content of a ratings file that is being written."""

    def __init__(self, file: h5py.File, check: Callable[[], None], sizes: Sizes) -> None:
        self._file = file
        self._check = check
        self._sizes = sizes
        self._hash = ContentHash()
        self._filled: dict[str, int] = {}
        self._column_counts = np.zeros(sizes.cols, dtype=np.int64)
        self._row_sums: list[Float64] = []
        self._weight_sums: list[Float64] = []
        self._time_counts: dict[str, Int32] = {}
        self._first_ratings: list[Float32] = []
        self._minimum = np.inf
        self._maximum = -np.inf

    def append(self, name: str, array: Array, length: int, *, hashed: bool = True) -> None:
        """Append to a data set of final length `length`, and, if `hashed`, to the content hash."""
        if name not in self._file:
            self._create(name, array.dtype, length)
        start = self._filled.get(name, 0)
        self._filled[name] = start + len(array)
        stored = array.astype(self._file[name].dtype)  # it also tells h5py that bytes are UTF-8
        if len(stored):
            self._file[name][start : start + len(stored)] = stored
            self._check()
        if hashed:
            self._hash.update(name, stored)

    def _create(self, name: str, dtype: np.dtype[Any], length: int) -> None:
        """Create a data set, with checksums; an empty one has no chunks, and so no checksums."""
        stored = dtype
        if dtype.kind == "S":
            stored = h5py.string_dtype("utf-8", dtype.itemsize)
        chunks = (min(length, CHUNK),) if length else None
        self._file.create_dataset(
            name, (length,), stored, chunks=chunks, fletcher32=chunks is not None
        )

    def add_names(self, side: Side, pieces: Iterable[Array]) -> None:
        """Write the names of a side."""
        for names in pieces:
            self.append(f"{side}/ids", names, getattr(self._sizes, side))

    def add_parts(self, side: Side, by_label: Mapping[str, Iterable[Array]]) -> None:
        """Write the parts of the names of a side."""
        labels = as_utf8(tuple(by_label))
        self.append(parts_dataset(side, "labels"), labels, len(labels))
        for k, pieces in enumerate(by_label.values()):
            dataset = parts_dataset(side, k) if len(labels) > 1 else f"{side}/ids"
            for names in pieces:
                self.append(dataset, names, getattr(self._sizes, side))

    def add_directions(self, directions: Directions) -> None:
        """Write the columns of users, items and context."""
        columns = as_utf8(directions.columns)
        self.append(DIRECTIONS, columns, len(columns))
        self._write_attribute(IS_OPEN, directions.is_open)

    def add_features(self, side: Side, features: Features) -> None:
        """Write the features of a side."""
        for name, array in features.datasets(side).items():
            hashed = not name.endswith("/encoding")
            self.append(name, array, len(array), hashed=hashed)

    def add(self, slab: Slab) -> None:
        """Append the ratings of the next rows of a part."""
        part = slab.part
        indices = slab.indices.astype(np.int32, copy=False)
        values = slab.values.astype(np.float32, copy=False)
        length = getattr(self._sizes, part)
        n_rows = self._sizes.rows
        offset = self._filled.get(f"{part}/indices", 0)
        row = self._filled.get(f"{part}/indptr", 1) - 1
        if row == 0:
            self.append(f"{part}/indptr", np.zeros(1, dtype=np.int64), n_rows + 1)
        self.append(f"{part}/indptr", offset + slab.indptr[1:], n_rows + 1)
        self.append(f"{part}/indices", indices, length)
        self.append(f"{part}/values", values, length)
        if slab.weight is not None:
            self._add_weights(slab, slab.weight, length)
        if slab.lower is not None and slab.upper is not None:
            self.append(f"{part}/lower", slab.lower, length)
            self.append(f"{part}/upper", slab.upper, length)
        if slab.ages is not None:
            self.append(f"{part}/age", slab.ages, length)
        if slab.groups is not None:
            self.append(f"{part}/group", slab.groups, length)
        if slab.times is not None:
            self._add_times(slab, slab.times, row)
        if part == "train" and len(values):
            self._column_counts += np.bincount(indices, minlength=self._sizes.cols)
            self._minimum = min(self._minimum, float(values.min()))
            self._maximum = max(self._maximum, float(values.max()))
            self._keep_first(slab)
            # `finish` adds the row sums exactly, so that the mean does not depend on the slabs
            self._row_sums.append(_sums_of_rows(slab.indptr, values))

    def _add_weights(self, slab: Slab, weights: Float32, length: int) -> None:
        """Append weights, and keep the sums of those of training ratings."""
        self.append(f"{slab.part}/weight", weights, length)
        if slab.part == "train" and len(weights):
            self._weight_sums.append(_sums_of_rows(slab.indptr, weights))

    def _keep_first(self, slab: Slab) -> None:
        """Keep exact training ratings up to the first `SAMPLE`, which show the resolution."""
        values = slab.values.astype(np.float32, copy=False)
        if slab.lower is not None and slab.upper is not None:
            values = values[slab.lower >= slab.upper]
        missing = SAMPLE - sum(map(len, self._first_ratings))
        if missing > 0:
            self._first_ratings.append(values[:missing])

    def _add_times(self, slab: Slab, times_of_sides: Mapping[Side, Times], first: int) -> None:
        """Append positions in time, and raise the counts of rows and columns; `first` is a row."""
        n_slab_rows = len(slab.indptr) - 1
        rows = np.repeat(np.arange(first, first + n_slab_rows), np.diff(slab.indptr))
        owners: dict[Side, Array] = {
            "rows": rows,
            "cols": slab.indices.astype(np.int32, copy=False),
        }
        for side, times in times_of_sides.items():
            names = Times.datasets(side, slab.part)
            totals = Times.datasets(side)
            for name, total, numbers in zip(names, totals, times, strict=True):
                if total not in self._time_counts:
                    self._time_counts[total] = np.zeros(getattr(self._sizes, side), np.int32)
                np.maximum.at(self._time_counts[total], owners[side], numbers + 1)
                self.append(name, numbers, getattr(self._sizes, slab.part))

    def finish(self, origin: Origin) -> dict[str, Any]:
        """Write the numbers of ratings, places and pages, and the attributes; return these."""
        sizes = self._sizes
        for side, names in origin.matrix.by_side.items():
            self.append(f"{side}/layout", names, len(names), hashed=False)
        self.append("train/column_counts", self._column_counts, sizes.cols, hashed=False)
        for name, counts in self._time_counts.items():
            self.append(name, counts, len(counts), hashed=False)
        attributes = {
            **origin._asdict(),
            "format": FORMAT,
            "version": EXTENDED if self._is_extended(origin) else VERSION,
            "min": self._minimum,
            "max": self._maximum,
            "I": sizes.rows,
            "J": sizes.cols,
            "nnz": sizes.train,
            "nnz_test": sizes.test,
            "mean": math.fsum(itertools.chain.from_iterable(self._row_sums)) / sizes.train,
            "content_sha256": self._hash.hexdigest(sizes.rows, sizes.cols, origin.transposed),
        }
        for name, expected in ATTRIBUTES.items():
            self._write_attribute(name, expected(attributes[name]))
        optional = {
            REPLICATES: origin.replicates,
            ITEM_LEVELS: origin.item_levels,
            HEADING: origin.matrix.heading,
        }
        for name, value in optional.items():
            if value:
                self._write_attribute(name, value)
        said = {
            COLUMNS: dict(origin.columns),
            READING: origin.reading.stored(),
            GROUPED_BY: origin.grouped_by,
        }
        for name, found in said.items():
            if found:
                self._write_attribute(name, json.dumps(found))
        if self._weight_sums:
            total = math.fsum(itertools.chain.from_iterable(self._weight_sums))
            self._write_attribute(MEAN_WEIGHT, total / sizes.train)
        resolution = find_resolution(np.concatenate(self._first_ratings))
        if resolution is not None:
            self._write_attribute(RESOLUTION, resolution)
        return {**attributes, RESOLUTION: resolution}

    def _is_extended(self, origin: Origin) -> bool:
        """Whether the file has contents that earlier versions do not have."""
        added = (
            "train/weight",
            "train/lower",
            "train/group",
            "rows/parts",
            "cols/parts",
            ITEM_LEVELS,
        )
        return origin.replicates > 0 or any(name in self._file for name in added)

    def _write_attribute(self, name: str, value: object) -> None:
        """Write an attribute; HDF5 hangs on damaged files with text of variable length."""
        if not isinstance(value, str):
            self._file.attrs.create(name, value)
            return
        encoded = value.encode()
        dtype = h5py.string_dtype("utf-8", max(1, len(encoded)))
        self._file.attrs.create(name, encoded, dtype=dtype)
