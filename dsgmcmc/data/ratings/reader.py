"""Reads and checks ratings files."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dsgmcmc.data.ratings.format import (
    ATTRIBUTES,
    CHUNK,
    FORMAT,
    MAX_FEATURES,
    MAX_ID_BYTES,
    SPLITS,
    VERSION,
    ContentHash,
    Features,
    Side,
    Split,
    StoredFeatures,
    Times,
    find_bad_attributes,
    find_bad_cells,
    read_attribute,
    row_slabs,
)
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.stored import Numbering
from dsgmcmc.storage.hdf5 import checked_dataset
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, UInt8

_SLAB = 1_000_000  # entries per slab when a whole part is read


class Ratings:
    """A ratings file, opened for reading and checked. Use as a context manager.

    Raises InputError if `path` is not a ratings file of this version, or contradicts itself.

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
    mean, minimum, maximum : float
        Mean and range of the training ratings.
    transposed : bool
        Whether the rows are items (if items are more than users).
    seed : int
        Seed of the order of rows and columns, and of the split.
    source : str
        Names of the input files.
    features : dict of {"rows", "cols"} to StoredFeatures
        Features of the sides that have features.
    times : dict of {"rows", "cols"} to Times, or None
        Numbers of places and pages of each row (or column), if the order in time was kept.
    temporal : bool
        Whether the test ratings are the latest ratings, so that `ages` are known.
    digest : str
        Hash of the content, by which runs identify the data; `verify` computes it again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._data: dict[str, Any] = {}
        if not self.path.is_file():
            reason = "is not a file" if self.path.exists() else "does not exist"
            raise InputError(f"{self.path} {reason}; make a ratings file with `dsgmcmc prepare`")
        try:
            self._file = h5py.File(self.path, "r", locking=False, rdcc_nbytes=0)
        except OSError as error:
            if not h5py.is_hdf5(self.path):
                advice = f"make one of it with `dsgmcmc prepare {self.path} OUT.h5`"
                raise self._wrong(f"it is not HDF5; if it holds ratings, {advice}") from error
            raise self._wrong(f"it cannot be opened as HDF5 ({error})") from error
        try:
            self._check()
        except InputError:
            self._file.close()
            raise
        except (OSError, KeyError, RuntimeError, TypeError, ValueError, MemoryError) as error:
            self._file.close()
            raise self._wrong(f"its structure cannot be read ({error})") from error

    def __enter__(self) -> Ratings:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def row_ids(self) -> Array:
        """Return (I,) original names of the rows: int64, or an object array of str."""
        return self._ids("rows")

    def col_ids(self) -> Array:
        """Return (J,) original names of the columns: int64, or an object array of str."""
        return self._ids("cols")

    def slab(self, part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """Read rows `start` to `stop` of a part.

        Raises InputError if the file holds indices out of range or order, or values that are not finite.

        Returns
        -------
        indptr : (stop - start + 1,) int64, starting at 0
        indices : (n,) int32, ascending in each row
        values : (n,) float32
        """
        first, last = self._cells(part, start, stop)
        indices = self._read(f"{part}/indices", first, last)
        values = self._read(f"{part}/values", first, last)
        indptr = self._indptr[part][start : stop + 1] - first
        bad = find_bad_cells(indptr, indices, values, self.n_cols)
        if bad:
            raise self._wrong(f"/{part} has {bad} in rows {start} to {stop}")
        return indptr, indices, values

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """Columns of the ratings in rows `start` to `stop` of a part, (n,) int32, to count ratings per column.

        Raises InputError if the file holds indices out of range.
        """
        indices = self._read(f"{part}/indices", *self._cells(part, start, stop))
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.n_cols:
            raise self._wrong(f"/{part} has indices outside 0..{self.n_cols - 1} in rows {start} to {stop}")
        return indices

    def ages(self, start: int, stop: int) -> UInt8:
        """Ages of the training ratings in rows `start` to `stop`: hundredth by time, 0 for the latest."""
        return self._read("train/age", *self._cells("train", start, stop))

    def _cells(self, part: Split, start: int, stop: int) -> tuple[int, int]:
        if not 0 <= start <= stop <= self.n_rows:
            raise ValueError(f"rows {start}:{stop} of {self.n_rows}")
        return int(self._indptr[part][start]), int(self._indptr[part][stop])

    def levels(self, most: int) -> Float64 | None:
        """Distinct training ratings, (R,) float64 in ascending order; None if there are more than `most`.

        The first call reads all ratings; `most` is at most `dsgmcmc.kernels.stored.FEW`.
        """
        levels = self._levels
        return levels if levels is not None and len(levels) <= most else None

    @cached_property
    def _levels(self) -> Float64 | None:
        numbering = Numbering()
        for first in range(0, self.nnz, _SLAB):
            if numbering.numbers(self._read("train/values", first, min(first + _SLAB, self.nnz))) is None:
                return None
        return np.unique(numbering.values).astype(np.float64)

    @property
    def value_bytes(self) -> int:
        """Bytes per training rating in memory (`dsgmcmc.kernels.stored`), judged by the first ratings."""
        first = Numbering().numbers(self._read("train/values", 0, min(_SLAB, self.nnz)))
        return 4 if first is None else 1

    def feature_slab(self, side: Side, start: int, stop: int) -> Features:
        """Read the features of rows (or columns) `start` to `stop`.

        Raises InputError if the file holds indices out of range or order, or values that are not finite.
        """
        where, stored = f"{side}/features", self.features[side]
        first, last = int(stored.indptr[start]), int(stored.indptr[stop])
        indices, values = (self._read(f"{where}/{name}", first, last) for name in ("indices", "values"))
        features = Features(stored.indptr[start : stop + 1] - first, indices, values, stored.names, stored.groups)
        bad = find_bad_cells(features.indptr, indices, values, features.size)
        if bad:
            raise self._wrong(f"/{where} has {bad} in rows {start} to {stop}")
        return features

    def times_slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read the positions in time of a part's ratings in rows `start` to `stop`, within their rows or columns.

        `times` must be known. Raises InputError if positions exceed the numbers of their rows (or columns).
        """
        first, last = self._cells(part, start, stop)
        if side == "cols":
            owners = self.columns(part, start, stop)
        else:
            lengths = np.diff(self._indptr[part][start : stop + 1])
            owners = np.repeat(np.arange(start, stop, dtype=np.int32), lengths)
        arrays = []
        for name, counts in zip(Times.datasets(side, part), (self.times or {})[side], strict=True):
            numbers = self._read(name, first, last)
            if len(owners) and (numbers.min() < 0 or (numbers >= counts[owners]).any()):
                raise self._wrong(f"/{name} has numbers outside those of their {side}")
            arrays.append(numbers)
        return Times(*arrays)

    def verify(self) -> None:
        """Read the whole file and compare the content with the stored hash.

        Raises InputError if a value is invalid, or the content has changed since it was written.
        """
        content = ContentHash()
        counts = np.zeros(self.n_cols, dtype=np.int64)
        for part in SPLITS:
            content.update(f"{part}/indptr", self._indptr[part])
            for start, stop in row_slabs(self._indptr[part], _SLAB):
                _, indices, values = self.slab(part, start, stop)
                content.update(f"{part}/indices", indices)
                content.update(f"{part}/values", values)
                for side in self.times or ():
                    for name, numbers in zip(
                        Times.datasets(side, part), self.times_slab(part, side, start, stop), strict=True
                    ):
                        content.update(name, numbers)
                if part == "train" and self.temporal:
                    content.update("train/age", self.ages(start, stop))
                if part == "train":
                    counts += np.bincount(indices, minlength=self.n_cols)
        if not np.array_equal(counts, self.column_counts):
            raise self._wrong("/train/column_counts is not the number of ratings of each column")
        for side in ("rows", "cols"):
            for start in range(0, len(self._data[f"{side}/ids"]), _SLAB):
                content.update(f"{side}/ids", self._read(f"{side}/ids", start, start + _SLAB))
        for side, stored in self.features.items():
            whole = self.feature_slab(side, 0, len(stored.indptr) - 1)
            for name, array in whole.datasets(side).items():
                content.update(name, array)
        if content.hexdigest(self.n_rows, self.n_cols, self.transposed) != self.digest:
            raise self._wrong("its content does not match its content_sha256; prepare it again")

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self.path} is not a usable ratings file: {what}")

    def _read(self, name: str, start: int, stop: int) -> Array:
        try:
            read: Array = self._data[name][start:stop]
        except (OSError, RuntimeError) as error:
            advice = "copy the file again, or prepare it again"
            raise self._wrong(f"/{name} is damaged in entries {start} to {stop} ({error}): {advice}") from error
        return read

    def _ids(self, side: str) -> Array:
        raw = self._read(f"{side}/ids", 0, len(self._data[f"{side}/ids"]))
        if raw.dtype == np.int64:
            return raw
        try:
            return np.array([name.decode() for name in raw.tolist()], dtype=object)
        except UnicodeDecodeError as error:
            raise self._wrong(f"/{side}/ids is not UTF-8") from error

    def _check(self) -> None:
        if "posterior" in self._file:
            raise self._wrong("it is a netCDF export of a run, for ArviZ")
        attributes = {name: read_attribute(self._file.attrs, name, kind) for name, kind in ATTRIBUTES.items()}
        if (attributes["format"], attributes["version"]) != (FORMAT, VERSION):
            raise self._wrong(
                f"its format is {attributes['format']!r} version {attributes['version']}, this program reads "
                f"{FORMAT!r} version {VERSION}: prepare it again"
            )
        self.n_rows, self.n_cols = attributes["I"], attributes["J"]
        self.nnz, self.nnz_test = attributes["nnz"], attributes["nnz_test"]
        self.mean, self.minimum, self.maximum = attributes["mean"], attributes["min"], attributes["max"]
        self.transposed, self.seed, self.digest = (attributes[k] for k in ("transposed", "seed", "content_sha256"))
        self.source = attributes["source"]
        if bad := find_bad_attributes(attributes):
            raise self._wrong(bad)
        self._check_data()

    def _check_data(self) -> None:
        file = self._file
        self._indptr: dict[str, Int64] = {}
        for part, nnz in zip(SPLITS, (self.nnz, self.nnz_test), strict=True):
            self._dataset(f"{part}/indices", nnz, np.int32)
            self._dataset(f"{part}/values", nnz, np.float32)
            self._dataset(f"{part}/indptr", self.n_rows + 1, np.int64)
            indptr: Int64 = self._read(f"{part}/indptr", 0, self.n_rows + 1)
            self._check_indptr(part, indptr, nnz)
            self._indptr[part] = indptr
        self.row_indptr, self.test_indptr = self._indptr["train"], self._indptr["test"]
        self._dataset("train/column_counts", self.n_cols, np.int64)
        self.column_counts: Int64 = self._read("train/column_counts", 0, self.n_cols)
        inside = (self.column_counts >= 0) & (self.column_counts <= self.nnz)  # so that the sum cannot overflow
        if not inside.all() or int(self.column_counts.sum()) != self.nnz:
            raise self._wrong(f"/train/column_counts does not add up to {self.nnz}")
        sizes: dict[Side, int] = {"rows": self.n_rows, "cols": self.n_cols}
        for side, n in sizes.items():
            self._dataset(f"{side}/ids", n, None)
        self.features = {side: self._check_features(side, n) for side, n in sizes.items() if f"{side}/features" in file}
        self.times = {side: self._check_times(side, n) for side, n in sizes.items()} if "rows/times" in file else None
        self.temporal = "train/age" in file
        if self.temporal:
            self._dataset("train/age", self.nnz, np.uint8)

    def _check_features(self, side: Side, n: int) -> StoredFeatures:
        """Read names, groups, encoding and index pointer of the features of a side with n rows."""
        where = f"{side}/features"
        names = self._dataset(f"{where}/names", None, None)
        if not 0 < len(names) <= MAX_FEATURES:
            raise self._wrong(f"/{where} has {len(names)} features: expected 1 to {MAX_FEATURES}")
        groups = self._dataset(f"{where}/groups", len(names), None)
        encoding = b""
        if f"{where}/encoding" in self._file:
            encoding = self._dataset(f"{where}/encoding", None, np.uint8)[:].tobytes()
        indptr: Int64 = self._dataset(f"{where}/indptr", n + 1, np.int64)[:]
        nnz = len(self._dataset(f"{where}/indices", None, np.int32))
        self._dataset(f"{where}/values", nnz, np.float32)
        self._check_indptr(where, indptr, nnz)
        texts = [tuple(text.decode() for text in data[:].tolist()) for data in (names, groups)]
        return StoredFeatures(indptr, texts[0], texts[1], encoding.decode())

    def _check_times(self, side: Side, n: int) -> Times:
        """Read and check the numbers of places and pages of a side with n rows."""
        place, page = (self._dataset(name, n, np.int32)[:] for name in Times.datasets(side))
        if page.min() < 0 or (page > place).any() or place.sum(dtype=np.int64) != self.nnz + self.nnz_test:
            raise self._wrong(f"/{side}/times has numbers of places or pages that cannot be")
        for part, nnz in zip(SPLITS, (self.nnz, self.nnz_test), strict=True):
            for name in Times.datasets(side, part):
                self._dataset(name, nnz, np.int32)
        return Times(place, page)

    def _check_indptr(self, where: str, indptr: Int64, nnz: int) -> None:
        if indptr[0] != 0 or indptr[-1] != nnz or (indptr[1:] < indptr[:-1]).any():
            raise self._wrong(f"/{where}/indptr does not rise from 0 to {nnz}")

    def _dataset(self, name: str, length: int | None, dtype: type | None) -> Any:
        """Check a data set and put it into `_data`; `length` None: any length; `dtype` None: int64 or text."""
        try:
            data = checked_dataset(self._file, name, CHUNK)
            if dtype is None:
                wrong = data.dtype != np.int64 and not (data.dtype.kind == "S" and data.dtype.itemsize <= MAX_ID_BYTES)
            else:
                wrong = data.dtype != dtype
            if data.ndim != 1 or length not in (None, len(data)) or wrong:
                raise ValueError(f"/{name} has shape {data.shape} and type {data.dtype}")
        except ValueError as error:
            raise self._wrong(str(error)) from error
        self._data[name] = data
        return data


def open_ratings(path: str | os.PathLike[str]) -> Ratings:
    """Open a ratings file, to be used as a context manager."""
    return Ratings(path)
