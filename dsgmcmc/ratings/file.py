"""The ratings file (`dsgmcmc.ratings.format`), from which every process reads a range of rows.

A process that reads a range of rows checks only the chunks of this range against their checksums.
Attributes and other metadata have separate HDF5 checksums. ``prepare`` hashes the content, and
`Ratings.verify` reads the whole file and compares it with the hash.

Files may come from untrusted sources: a reader checks types, lengths and ranges before it allocates
memory or uses indices.
"""

from __future__ import annotations

import errno
import math
import os
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.kernels.compact_ratings import Numbering, count_values
from dsgmcmc.orientation import Orientation
from dsgmcmc.ratings.checks import (
    find_bad_cells,
    read_attribute,
    read_columns,
    read_grouped_by,
    read_optional,
    read_reading,
)
from dsgmcmc.ratings.format import (
    ATTRIBUTES,
    CHUNK,
    DIRECTIONS,
    FORMAT,
    HEADING,
    IS_OPEN,
    ITEM_LEVELS,
    MAX_FEATURES,
    MAX_ID_BYTES,
    MAX_PARTS,
    MAX_SIDE,
    MEAN_WEIGHT,
    REPLICATES,
    RESOLUTION,
    SIDES,
    SLAB,
    SPLITS,
    VERSIONS,
    Bounds,
    ContentHash,
    Directions,
    Features,
    RowRatings,
    Side,
    Split,
    Times,
    parts_dataset,
    row_slabs,
)
from dsgmcmc.ratings.names import tuples_of
from dsgmcmc.ratings.resolution import SAMPLE, find_resolution
from dsgmcmc.storage.hdf5 import checked_dataset
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64, UInt8

_PIECE = 1_000_000  # entries in memory at a time when a whole file is read
_MAKE_ONE = "make a ratings file with `dsgmcmc prepare`"


def _entries(indptr: Int64, start: int, stop: int) -> tuple[int, int]:
    """Return the positions at which rows `start` to `stop` begin and end."""
    if not 0 <= start <= stop < len(indptr):
        raise ValueError(f"rows {start}:{stop} of {len(indptr) - 1}")
    return int(indptr[start]), int(indptr[stop])


class Ratings(AbstractContextManager["Ratings"]):
    """A ratings file that is open for reading, and has been checked. Use as a context manager.

    Raises InputError if `path` is not a ratings file of this version, or is inconsistent.

    Attributes
    ----------
    path : Path
    n_rows, n_cols : int
        I and J; I >= J.
    nnz, nnz_test : int
        Number of training and test ratings.
    row_indptr, test_indptr : (I + 1,) int64
        Positions at which the training and the test ratings of a row begin.
    column_counts : (J,) int64
        Number of training ratings of each column.
    replicates : int
        Number of training and test ratings beyond the first of their user and item.
    mean_weight : float or None
        Mean weight of the training ratings, if ratings have weights.
    has_bounds : bool
        Whether ratings may be known only to lie within bounds.
    mean, minimum, maximum : float
        Mean and range of the training ratings.
    orientation : Orientation
        Whether the rows are users or, if there are more items than users, items.
    entities : (str, str)
        What the rows and the columns are: user or item.
    seed : int
        Seed of the order of rows and columns, and of the split.
    source : str
        Names of the input files.
    named_columns : dict of str to str
        Columns of the first input by role (`NAMED`), if it had names of columns.
    reading : Reading
        What users have said of the input.
    heading : str
        Column of users in a matrix; "" if it is unknown.
    layouts : list of {"rows", "cols"}
        Sides of which `ids` has the order in the matrix that was read.
    parts : dict of {"rows", "cols"} to tuple of str
        Columns of the parts of names, for sides whose names have several parts.
    labels : dict of {"rows", "cols"} to tuple of str
        Columns of names, one a part, of both sides, if the names of one have several parts.
    directions : Directions or None
        Columns of users, items and context, if the table has three directions.
    said_levels : (2, n) float32 or None
        Lowest and highest levels of items that users have said; NaN for other items.
    features : dict of {"rows", "cols"} to Features
        Features of the sides that have features, without indices and values, which `feature_slab`
        reads.
    times : dict of {"rows", "cols"} to Times, or None
        Numbers of places and pages of each row (or column), if the file has the order in time.
    temporal : bool
        Whether the split is temporal: the test ratings are the latest ratings, and `ages` are
        known.
    grouped : bool
        Whether ratings have groups that are held out as a whole, and `groups` are known.
    grouped_by : tuple of str
        Columns whose values are the groups; the groups of test ratings are then known, too. Empty
        without groups, and in earlier files.
    digest : str
        Hash of the content, by which runs identify the data; `verify` computes it again.
    recorded : Ratings or None
        The ratings as they were recorded, if this is a view of them on another scale.
    """

    recorded: Ratings | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._data: dict[str, Any] = {}
        self._file = self._open()
        try:
            self._check_attributes()
            self._check_arrays()
        except (OSError, KeyError, RuntimeError, TypeError, ValueError, MemoryError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            raise self._wrong(f"its structure cannot be read ({error})") from error

    def _open(self) -> h5py.File:
        """Open the HDF5 file; raise InputError if it is missing or is not HDF5."""
        if not self.path.exists():
            raise InputError(f"{self.path} does not exist; {_MAKE_ONE}")
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a file; {_MAKE_ONE}")
        try:
            return h5py.File(self.path, "r", locking=False, rdcc_nbytes=0)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # not the file's fault
                raise OSError(error.errno, os.strerror(error.errno), str(self.path)) from error
            if h5py.is_hdf5(self.path) or isinstance(error, PermissionError):
                raise self._wrong(f"it cannot be opened as HDF5 ({error})") from error
            command = f"dsgmcmc prepare {shlex.quote(str(self.path))} OUT.h5"
            advice = f"make a ratings file from it with `{command}`"
            raise self._wrong(f"it is not HDF5; if it holds ratings, {advice}") from error

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; if that fails, nothing is lost, because the file is only read."""
        with suppress(OSError, RuntimeError):
            self._file.close()

    def ids(self, side: Side, content: str = "ids") -> Array:
        """Return the names of all rows, or of all columns: (n,) int64, or object arrays of str.

        Names of several parts are tuples of int or str, in object arrays. With "layout" as
        `content`, they are those of a matrix in its order, also without ratings (`layouts`).
        """
        if side in self.parts:
            return tuples_of(self.name_parts(side))
        return self._names(f"{side}/{content}")

    def name_parts(self, side: Side) -> list[Array]:
        """Return each part of names of several parts: (n,) int64, or object arrays of str."""
        return [self._names(parts_dataset(side, k)) for k in range(len(self.parts[side]))]

    def _names(self, dataset: str) -> Array:
        """Read names: (n,) int64, or object arrays of str."""
        stored = self._read(dataset, 0, len(self._data[dataset]))
        if stored.dtype == np.int64:
            return stored
        with refusing(str(self._wrong(f"/{dataset} is not UTF-8")), UnicodeDecodeError):
            return np.array([name.decode() for name in stored.tolist()], dtype=object)

    def slab(self, part: Split, start: int, stop: int) -> RowRatings:
        """Read rows `start` to `stop` of a part.

        Raises InputError if the file has indices out of range or order, or values that are not
        finite.
        """
        matrix = self._matrix(
            part,
            self._indptr[part],
            slice(start, stop),
            n_cols=self.n_cols,
            may_recur=self.replicates > 0,
        )
        weights = None
        if self.mean_weight is not None:
            stored = self.stored_weights(part, start, stop)
            weights = (stored / self.mean_weight).astype(np.float32)
        bounds = None
        if f"{part}/lower" in self._data:
            bounds = self._bounds(part, start, stop, matrix[2])
        return RowRatings(*matrix, weights, bounds)

    def _bounds(self, part: Split, start: int, stop: int, values: Float32) -> Bounds:
        """Read the bounds of a part's ratings in rows `start` to `stop`, which have these values.

        Raises InputError if a rating is outside its bounds.
        """
        entries = _entries(self._indptr[part], start, stop)
        bounds = Bounds(
            self._read(f"{part}/lower", *entries), self._read(f"{part}/upper", *entries)
        )
        if not ((bounds.lower <= values) & (values <= bounds.upper)).all():
            raise self._wrong(f"/{part}/values has ratings outside their bounds")
        return bounds

    def count_bounded(self, part: Split) -> int:
        """Return the number of a part's ratings that are known only to lie within bounds."""
        number = 0
        if self.has_bounds:
            for start, stop in row_slabs(self._indptr[part], SLAB):
                bounds = self.slab(part, start, stop).bounds
                if bounds is not None:
                    number += int(np.count_nonzero(bounds.bounded))
        return number

    def stored_weights(self, part: Split, start: int, stop: int) -> Float32:
        """Read the weights of a part's ratings in rows `start` to `stop` as the file has them.

        Raises InputError if one is not above 0.
        """
        weights: Float32 = self._read(f"{part}/weight", *_entries(self._indptr[part], start, stop))
        if not ((weights > 0) & np.isfinite(weights)).all():
            raise self._wrong(f"/{part}/weight has values that are not above 0")
        return weights

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """Return the column of every rating of a part in rows `start` to `stop`, (n,) int32.

        The values are not read. Raises InputError if the file has indices out of range.
        """
        indices = self._read(f"{part}/indices", *_entries(self._indptr[part], start, stop))
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.n_cols:
            raise self._wrong(
                f"/{part} has indices outside 0..{self.n_cols - 1} in rows {start} to {stop}"
            )
        return indices

    def values(self, part: Split) -> Iterator[Float32]:
        """Yield the ratings of a part, in their order in the file, those of some rows at a time."""
        for start, stop in row_slabs(self._indptr[part], SLAB):
            yield self.slab(part, start, stop).values

    def ages(self, start: int, stop: int) -> UInt8:
        """Return the ages of the training ratings in rows `start` to `stop`, (n,) uint8.

        An age is a hundredth by time, 0 for the latest.
        """
        return self._read("train/age", *_entries(self.row_indptr, start, stop))

    def groups(self, part: Split, start: int, stop: int) -> Int32:
        """Return the numbers of the groups of a part's ratings in rows `start` to `stop`.

        Raises InputError if a number is impossible.
        """
        groups: Int32 = self._read(f"{part}/group", *_entries(self._indptr[part], start, stop))
        if len(groups) and not 0 <= groups.min() <= groups.max() < self.nnz + self.nnz_test:
            raise self._wrong(f"/{part}/group has impossible numbers")
        return groups

    @cached_property
    def untrained(self) -> dict[str, int]:
        """Numbers of test ratings whose "user", or "item", has no training ratings."""
        without_training = np.diff(self.row_indptr) == 0
        by_row = int(np.diff(self.test_indptr)[without_training].sum())
        by_column = 0
        for start, stop in row_slabs(self.test_indptr, SLAB):
            columns = self.columns("test", start, stop)
            by_column += int(np.count_nonzero(self.column_counts[columns] == 0))
        row_entity, column_entity = self.entities
        return {row_entity: by_row, column_entity: by_column}

    @property
    def open_directions(self) -> Directions | None:
        """The directions of a table whose arrangement is still to be chosen; else None."""
        if self.directions is None or not self.directions.is_open:
            return None
        return self.directions

    def levels(self, limit: int) -> Float64 | None:
        """Return the distinct training ratings, (R,) float64 in ascending order.

        The result is None if there are more than `limit`, at most
        `dsgmcmc.kernels.compact_ratings.FEW`. The first call reads all training ratings of the
        file, also for a view of some ratings (`dsgmcmc.ratings.held_out`), so that a model of a
        view has the same levels as a model of the file.
        """
        counted = self._counted
        if counted is None or len(counted[0]) > limit:
            return None
        return counted[0]

    def count_levels(self) -> tuple[Float64, Int64] | None:
        """Return the distinct training ratings, (R,) float64 ascending, and the number of each.

        The result is None if there are more than `dsgmcmc.kernels.compact_ratings.FEW`.
        """
        return self._counted

    @cached_property
    def _counted(self) -> tuple[Float64, Int64] | None:
        """Result of `count_levels` of the file."""
        starts = range(0, len(self._data["train/values"]), _PIECE)
        return count_values(self._read("train/values", start, start + _PIECE) for start in starts)

    @cached_property
    def resolution(self) -> float | None:
        """Step to which the training ratings were recorded; None without one.

        It is that of the file, also for a view of some ratings. Files of earlier versions do not
        store it: it is found in their first ratings, as `prepare` does.
        """
        if self._stored_resolution is not None:
            return self._stored_resolution
        values = self._read("train/values", 0, SAMPLE)
        if self.has_bounds:
            lower = self._read("train/lower", 0, SAMPLE)
            values = values[lower >= self._read("train/upper", 0, SAMPLE)]
        return find_resolution(values)

    @property
    def value_bytes(self) -> int:
        """Bytes per training rating in memory, by the first ratings."""
        numbers = Numbering().numbers(self._read("train/values", 0, _PIECE))
        of_value = 4 if numbers is None else 1
        if self.mean_weight is not None:
            return of_value + 4
        return of_value

    def feature_slab(self, side: Side, start: int, stop: int) -> Features:
        """Read the features of rows (or columns) `start` to `stop`.

        Raises InputError if the file has indices out of range or order, or values that are not
        finite.
        """
        stored = self.features[side]
        indptr, indices, values = self._matrix(
            f"{side}/features", stored.indptr, slice(start, stop), n_cols=len(stored.names)
        )
        return Features(indptr, indices, values, stored.names, stored.groups)

    def times_slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read the positions in time of a part's ratings in rows `start` to `stop`.

        They are positions within their rows, or within their columns. `times` must be known. Raises
        InputError if a place or page is not below the count of its row (or column).
        """
        assert self.times is not None
        first, last = _entries(self._indptr[part], start, stop)
        if side == "cols":
            owners = self.columns(part, start, stop)
        else:
            lengths = np.diff(self._indptr[part][start : stop + 1])
            owners = np.repeat(np.arange(start, stop, dtype=np.int32), lengths)
        arrays = []
        for name, counts in zip(Times.datasets(side, part), self.times[side], strict=True):
            numbers = self._read(name, first, last)
            if len(owners) and (numbers.min() < 0 or (numbers >= counts[owners]).any()):
                raise self._wrong(f"/{name} has positions outside the range of its {side}")
            arrays.append(numbers)
        place, page = arrays
        return Times(place, page)

    def verify(self) -> None:
        """Read the whole file and compare the content with the stored hash.

        Raises InputError if a value is invalid, or the content has changed since it was written.
        """
        content = ContentHash()
        column_counts = self._hash_part(content, "train")
        self._hash_part(content, "test")
        if not np.array_equal(column_counts, self.column_counts):
            raise self._wrong("/train/column_counts is not the number of ratings of each column")
        for side in SIDES:
            for name in self._name_datasets(side):
                for start in range(0, len(self._data[name]), _PIECE):
                    content.update(name, self._read(name, start, start + _PIECE))
        if self.directions is not None:
            content.update(DIRECTIONS, self._read(DIRECTIONS, 0, 3))
        if self.said_levels is not None:
            content.update(ITEM_LEVELS, self.said_levels.ravel())
        for side, stored in self.features.items():
            features = self.feature_slab(side, 0, len(stored.indptr) - 1)
            for name, array in features.datasets(side).items():
                content.update(name, array)
        if content.hexdigest(self.n_rows, self.n_cols, self.orientation.transposed) != self.digest:
            raise self._wrong("its content does not match its content_sha256: prepare it again")

    def _name_datasets(self, side: Side) -> list[str]:
        """Return the data sets that have the names of a side."""
        labels = self.labels.get(side, ())
        datasets = [f"{side}/ids"]
        if len(labels) > 1:
            datasets = [parts_dataset(side, part) for part in range(len(labels))]
        if labels:
            datasets.append(parts_dataset(side, "labels"))
        return datasets

    def _hash_part(self, content: ContentHash, part: Split) -> Int64:
        """Read all ratings of a part into the hash; return their numbers in columns, (J,) int64."""
        column_counts = np.zeros(self.n_cols, dtype=np.int64)
        content.update(f"{part}/indptr", self._indptr[part])
        for start, stop in row_slabs(self._indptr[part], _PIECE):
            slab = self.slab(part, start, stop)
            content.update(f"{part}/indices", slab.indices)
            content.update(f"{part}/values", slab.values)
            if self.mean_weight is not None:
                content.update(f"{part}/weight", self.stored_weights(part, start, stop))
            if slab.bounds is not None:
                content.update(f"{part}/lower", slab.bounds.lower)
                content.update(f"{part}/upper", slab.bounds.upper)
            column_counts += np.bincount(slab.indices, minlength=self.n_cols)
            for side in self.times or ():
                times = self.times_slab(part, side, start, stop)
                for name, numbers in zip(Times.datasets(side, part), times, strict=True):
                    content.update(name, numbers)
            if part == "train" and self.temporal:
                content.update("train/age", self.ages(start, stop))
            if f"{part}/group" in self._data:
                content.update(f"{part}/group", self.groups(part, start, stop))
        return column_counts

    def _wrong(self, fault: str) -> InputError:
        """Return the error for a file with a fault."""
        return InputError(f"{self.path} is not a usable ratings file: {fault}")

    def _read(self, name: str, start: int, stop: int) -> Array:
        """Read entries of a data set; raise InputError if their checksum does not match."""
        advice = "copy the file again, or prepare it again"
        fault = f"/{name} is damaged in entries {start} to {stop} ({advice})"
        with refusing(str(self._wrong(fault)), OSError, RuntimeError):
            array: Array = self._data[name][start:stop]
        return array

    def _matrix(
        self, group: str, indptr: Int64, rows: slice, *, n_cols: int, may_recur: bool = False
    ) -> tuple[Int64, Int32, Float32]:
        """Read rows of a matrix in compressed sparse rows, and check them."""
        first, last = _entries(indptr, rows.start, rows.stop)
        indices = self._read(f"{group}/indices", first, last)
        values = self._read(f"{group}/values", first, last)
        ends = indptr[rows.start : rows.stop + 1] - first
        if bad := find_bad_cells(ends, indices, values, n_cols=n_cols, may_recur=may_recur):
            raise self._wrong(f"/{group} has {bad} in rows {rows.start} to {rows.stop}")
        return ends, indices, values

    def _check_attributes(self) -> None:
        """Read the attributes, and check their types, ranges and the version."""
        if "posterior" in self._file:
            raise self._wrong("it is a netCDF export of a run, for ArviZ")
        attributes = {
            name: read_attribute(self._file.attrs, name, expected)
            for name, expected in ATTRIBUTES.items()
        }
        if attributes["format"] != FORMAT or attributes["version"] not in VERSIONS:
            found = f"its format is {attributes['format']!r} version {attributes['version']}"
            known = " and ".join(map(str, VERSIONS))
            raise self._wrong(
                f"{found}, but this program reads {FORMAT!r} versions {known}: prepare it again"
            )
        optional = partial(read_optional, self._file.attrs)
        self.replicates: int = optional(REPLICATES, int) or 0
        self.mean_weight: float | None = optional(MEAN_WEIGHT, float)
        if self.mean_weight is not None and not 0 < self.mean_weight < np.inf:
            raise self._wrong(f"its mean weight is {self.mean_weight}")
        self.n_rows: int = attributes["I"]
        self.n_cols: int = attributes["J"]
        self.nnz: int = attributes["nnz"]
        self.nnz_test: int = attributes["nnz_test"]
        self.mean: float = attributes["mean"]
        self.minimum: float = attributes["min"]
        self.maximum: float = attributes["max"]
        self.seed: int = attributes["seed"]
        self.source: str = attributes["source"]
        self.digest: str = attributes["content_sha256"]
        self.orientation = Orientation(attributes["transposed"])
        self.entities = (
            self.orientation.entity_of(Factor.W),
            self.orientation.entity_of(Factor.H),
        )
        #: Whether items clearly differ in their levels (`dsgmcmc.ratings.item_levels`).
        self.item_levels = ITEM_LEVELS in self._file.attrs
        self.named_columns = read_columns(self._file.attrs)
        self.reading = read_reading(self._file.attrs)
        self.heading: str = optional(HEADING, str) or ""
        self._stored_resolution: float | None = optional(RESOLUTION, float)
        if self._stored_resolution is not None and not 0 < self._stored_resolution <= 1:
            raise self._wrong(f"its resolution is {self._stored_resolution}")
        if not (
            self._has_possible_sizes() and self._has_possible_mean() and len(self.digest) == 64
        ):
            found = ", ".join(f"{name}={value}" for name, value in attributes.items())
            raise self._wrong(f"its attributes are impossible: {found}")

    def _has_possible_sizes(self) -> bool:
        return 0 < self.n_cols <= self.n_rows <= MAX_SIDE and self.nnz >= 1 and self.nnz_test >= 0

    def _has_possible_mean(self) -> bool:
        """Whether the mean is finite and in the range; float64 may round just outside of it."""
        slack = 1e-6 * max(1.0, abs(self.minimum), abs(self.maximum))
        in_range = self.minimum - slack <= self.mean <= self.maximum + slack  # NaN is not
        return in_range and math.isfinite(self.mean)

    def _check_arrays(self) -> None:
        """Check shapes and types of all data sets; read index pointers and numbers of ratings."""
        self._indptr: dict[str, Int64] = {}
        self.grouped_by = read_grouped_by(self._file.attrs)
        for part, nnz in zip(SPLITS, (self.nnz, self.nnz_test), strict=True):
            columns: dict[str, type] = {"indices": np.int32, "values": np.float32}
            if self.mean_weight is not None:
                columns["weight"] = np.float32
            if f"{part}/lower" in self._file:  # in earlier files test ratings were exact
                columns |= {"lower": np.float32, "upper": np.float32}
            if self.grouped_by or f"{part}/group" in self._file:
                columns["group"] = np.int32
            for name, dtype in columns.items():
                self._dataset(f"{part}/{name}", nnz, dtype)
            self._dataset(f"{part}/indptr", self.n_rows + 1, np.int64)
            indptr: Int64 = self._read(f"{part}/indptr", 0, self.n_rows + 1)
            self._check_indptr(part, indptr, nnz)
            self._indptr[part] = indptr
        self.has_bounds = "train/lower" in self._data
        self.row_indptr = self._indptr["train"]
        self.test_indptr = self._indptr["test"]
        self.column_counts = self._check_column_counts()
        sizes: dict[Side, int] = {"rows": self.n_rows, "cols": self.n_cols}
        self.labels: dict[Side, tuple[str, ...]] = {}
        self.layouts: list[Side] = []
        for side, n in sizes.items():
            self._check_names(side, n)
        self.parts = {side: labels for side, labels in self.labels.items() if len(labels) > 1}
        self.directions = self._check_directions()
        self.said_levels: Float32 | None = None
        if ITEM_LEVELS in self._file:
            _, n_items = self.orientation.users_and_items(self.n_rows, self.n_cols)
            self._dataset(ITEM_LEVELS, 2 * n_items, np.float32)
            self.said_levels = self._read(ITEM_LEVELS, 0, 2 * n_items).reshape(2, n_items)
        self.features = {
            side: self._check_features(side, n)
            for side, n in sizes.items()
            if f"{side}/features" in self._file
        }
        self.times: dict[Side, Times] | None = None
        if "rows/times" in self._file:
            self.times = {side: self._check_times(side, n) for side, n in sizes.items()}
        self.temporal = "train/age" in self._file
        if self.temporal:
            self._dataset("train/age", self.nnz, np.uint8)
        self.grouped = "train/group" in self._file

    def _check_names(self, side: Side, n: int) -> None:
        """Check the names of a side of n rows, and read the labels of their parts."""
        n_parts = 1
        if f"{side}/parts" in self._file:
            stored = self._dataset(parts_dataset(side, "labels"), None, None)
            n_parts = len(stored)
            if not 0 < n_parts <= MAX_PARTS or stored.dtype.kind != "S":
                raise self._wrong(f"/{side}/parts has {n_parts} labels")
            self.labels[side] = tuple(label.decode() for label in stored[:].tolist())
        if n_parts == 1:
            self._dataset(f"{side}/ids", n, None)
            if f"{side}/layout" in self._file:
                self._dataset(f"{side}/layout", None, None)
                self.layouts.append(side)
            return
        for k in range(n_parts):
            self._dataset(parts_dataset(side, k), n, None)

    def _check_directions(self) -> Directions | None:
        """Read the directions of a table with a context, whose columns are those of the names."""
        if DIRECTIONS not in self._file:
            return None
        stored = self._dataset(DIRECTIONS, 3, None)
        is_open = read_attribute(self._file.attrs, IS_OPEN, bool)
        labels = sorted(label for side in SIDES for label in self.labels.get(side, ()))
        columns = []
        if stored.dtype.kind == "S":
            columns = [label.decode() for label in stored[:].tolist()]
        if sorted(columns) != labels:
            raise self._wrong(f"its directions {columns} are not the columns {labels} of its names")
        user, item, context = columns
        return Directions((user, item, context), is_open)

    def _check_column_counts(self) -> Int64:
        """Read the numbers of training ratings of columns."""
        self._dataset("train/column_counts", self.n_cols, np.int64)
        counts: Int64 = self._read("train/column_counts", 0, self.n_cols)
        possible = (counts >= 0) & (counts <= self.nnz)  # so that the sum cannot overflow
        if not possible.all() or int(counts.sum()) != self.nnz:
            raise self._wrong(f"/train/column_counts does not add up to {self.nnz}")
        return counts

    def _check_features(self, side: Side, n: int) -> Features:
        """Read names, groups, encoding and index pointer of the features of a side with n rows."""
        group = f"{side}/features"
        names = self._dataset(f"{group}/names", None, None)
        if not 0 < len(names) <= MAX_FEATURES:
            raise self._wrong(f"/{group} has {len(names)} features: expected 1 to {MAX_FEATURES}")
        groups = self._dataset(f"{group}/groups", len(names), None)
        encoding = b""
        if f"{group}/encoding" in self._file:
            encoding = self._dataset(f"{group}/encoding", None, np.uint8)[:].tobytes()
        indptr: Int64 = self._dataset(f"{group}/indptr", n + 1, np.int64)[:]
        nnz = len(self._dataset(f"{group}/indices", None, np.int32))
        self._dataset(f"{group}/values", nnz, np.float32)
        self._check_indptr(group, indptr, nnz)
        return Features(
            indptr=indptr,
            indices=np.zeros(0, np.int32),
            values=np.zeros(0, np.float32),
            names=tuple(name.decode() for name in names[:].tolist()),
            groups=tuple(name.decode() for name in groups[:].tolist()),
            encoding=encoding.decode(),
        )

    def _check_times(self, side: Side, n: int) -> Times:
        """Read and check the numbers of places and pages of a side with n rows."""
        place, page = (self._dataset(name, n, np.int32)[:] for name in Times.datasets(side))
        if (
            page.min() < 0
            or (page > place).any()
            or place.sum(dtype=np.int64) != self.nnz + self.nnz_test
        ):
            raise self._wrong(f"/{side}/times has impossible numbers of places or pages")
        for part, nnz in zip(SPLITS, (self.nnz, self.nnz_test), strict=True):
            for name in Times.datasets(side, part):
                self._dataset(name, nnz, np.int32)
        return Times(place, page)

    def _check_indptr(self, group: str, indptr: Int64, nnz: int) -> None:
        """Raise InputError if an index pointer is not ascending from 0 to `nnz`."""
        if indptr[0] != 0 or indptr[-1] != nnz or (indptr[1:] < indptr[:-1]).any():
            raise self._wrong(f"/{group}/indptr does not rise from 0 to {nnz}")

    def _dataset(self, name: str, length: int | None, dtype: type | None) -> h5py.Dataset:
        """Check a data set and put it into `_data`.

        None allows any `length`; as `dtype`, it allows int64 and text.
        """
        data = checked_dataset(self._file, name, CHUNK)
        if dtype is None:
            is_name = data.dtype.kind == "S" and data.dtype.itemsize <= MAX_ID_BYTES
            has_type = is_name or data.dtype == np.int64
        else:
            has_type = data.dtype == dtype
        if data.ndim != 1 or length not in (None, len(data)) or not has_type:
            raise self._wrong(f"/{name} has shape {data.shape} and type {data.dtype}")
        self._data[name] = data
        return data
