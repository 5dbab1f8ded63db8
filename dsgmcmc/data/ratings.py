"""The ratings file: `write_slabs` writes it for ``prepare``, and with `Ratings` every process reads
a range of rows.

Format ``dsgmcmc-ratings``, version 2, an HDF5 file with

========================  =========================  ===========================================
``/train``, ``/test``     ``indptr``                 (I+1,) int64, compressed sparse rows
..                        ``indices``                (nnz,) int32, columns, ascending in each row
..                        ``values``                 (nnz,) float32, ratings
``/train``                ``column_counts``          (J,) int64, number of training ratings of each column
..                        ``age``                    (nnz,) uint8, for a temporal split: hundredth by time, latest is 0
``/rows/ids``             ``/cols/ids``              int64, or UTF-8 of fixed length: original names
``/rows/features``        ``indptr indices values``  int64, int32, float32: compressed sparse rows
..                        ``names groups``           (F,) UTF-8 of fixed length (`Features`)
..                        ``encoding``               (bytes,) uint8: encoding of the features, JSON as UTF-8; optional
``/cols/features``                                   features of columns; both groups are optional
``/train``, ``/test``     ``times/SIDE/place``       int32, with SIDE rows and cols (`Times`)
..                        ``times/SIDE/page``
``/rows``, ``/cols``      ``times/place``            int32: number of places of each row or column
..                        ``times/page``             int32: number of pages; ``times`` are optional
attributes                ``format version``         text is UTF-8 of fixed length
..                        ``I J nnz nnz_test``       sizes
..                        ``mean min max``           mean and range of the training ratings
..                        ``seed transposed``        seed of shuffle and split; whether rows are items
..                        ``source``                 names of the input files
..                        ``content_sha256``         identifies the data: hash of the arrays without encoding and counts
========================  =========================  ===========================================

Rows and columns are in a seeded random order, so that contiguous ranges with equal nnz are
statistically alike. The rows are the longer side. The file does not depend on grids or processes.

Every data set is stored in chunks with HDF5's Fletcher32 checksum, which HDF5 checks for every
chunk that it reads. A process that reads a range of rows checks only the chunks of this range.
Attributes and other metadata have separate HDF5 checksums. ``prepare`` hashes the content, and
``verify`` reads the whole file and compares it with the hash.

Files may come from untrusted sources: a reader checks types, lengths and ranges before it allocates
memory or uses indices.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import h5py
import numpy as np

from dsgmcmc.errors import InputError, refusing, writing
from dsgmcmc.kernels.stored import Numbering
from dsgmcmc.storage.files import check_target, replacing, sync
from dsgmcmc.storage.hdf5 import checked_dataset, new_hdf5
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, UInt8

FORMAT = "dsgmcmc-ratings"
VERSION = 2
CHUNK = 1 << 16  # entries of a data set that are read and checked together
CONTENT = (  # first text of the hashed content; does not change with the layout of the file
    "dsgmcmc-ratings 1"
)
MAX_SIDE = 2**31 - 1  # column indices are int32
MAX_ID_BYTES = 1024
MAX_RATING = (
    1e15  # its square and inverse square leave room in float32 for sums and for small variances
)
MAX_FEATURES = 1_000_000
AGES = 100  # number of parts of equal size, by time, into which a temporal split divides training ratings
SLAB = 250_000  # ratings that are read at a time
_PIECE = 1_000_000  # entries in memory at a time when a whole file is read

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")
Side = Literal["rows", "cols"]
SIDES: tuple[Side, Side] = ("rows", "cols")

#: Names and types of the attributes of the file, which are scalars.
ATTRIBUTES: dict[str, type] = {
    "format": str,
    "version": int,
    "I": int,
    "J": int,
    "nnz": int,
    "nnz_test": int,
    "mean": float,
    "min": float,
    "max": float,
    "seed": int,
    "transposed": bool,
    "source": str,
    "content_sha256": str,
}


class Features(NamedTuple):
    """Features of all rows of a side, or of a range of rows.

    Attributes
    ----------
    indptr : (n + 1,) int64, starting at 0
        A row without entries has unknown features, and is taken to be average.
    indices : (nnz,) int32, ascending in each row
    values : (nnz,) float32
    names : (F,) of str
    groups : (F,) of str
        Source column of each feature; the features of a group share a prior strength.
    encoding : str
        Encoding by which features of new rows can be computed, as JSON; empty if unknown. The
        encoding is not part of the content hash.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    names: tuple[str, ...]
    groups: tuple[str, ...]
    encoding: str = ""

    def matrix(self) -> Any:
        """Return the features as a scipy.sparse.csr_matrix (n, F)."""
        from scipy.sparse import csr_matrix  # slow to import, and most runs do not need it

        cells = self.values.astype(np.float64), self.indices, self.indptr
        return csr_matrix(cells, (len(self.indptr) - 1, len(self.names)))

    def datasets(self, side: Side) -> dict[str, Array]:
        """Return the arrays to store, by data set; the encoding, as UTF-8, is among them only if it
        is known.
        """
        arrays: dict[str, Array] = {
            "indptr": self.indptr,
            "indices": self.indices,
            "values": self.values,
        }
        for name, texts in (("names", self.names), ("groups", self.groups)):
            arrays[name] = np.array([text.encode() for text in texts], "S")
        if self.encoding:
            arrays["encoding"] = np.frombuffer(self.encoding.encode(), np.uint8)
        return {f"{side}/features/{name}": array for name, array in arrays.items()}


class Times(NamedTuple):
    """Positions in time of ratings within their rows, or within their columns: (m,) int32 each.

    The *place* of a rating is its rank by time, from 0, among all ratings of its row (or column),
    training and test together. Its *page* is the rank of its second among the distinct seconds of
    the row (or column). Times in seconds are not stored. Ratings within one second are in the order
    of the other side, which is random.

    For whole rows or columns, the two arrays are the numbers of places and of pages, (n,) int32
    each.
    """

    place: Int32
    page: Int32

    @classmethod
    def datasets(cls, side: Side, part: Split | None = None) -> tuple[str, str]:
        """Return the names of the data sets of a part; without a part, of the counts per row (or
        column).
        """
        group = f"{part}/times/{side}" if part else f"{side}/times"
        return f"{group}/place", f"{group}/page"


def _read_attribute(attributes: Any, name: str, kind: type) -> Any:
    """Read an attribute that must be a scalar of its type; text has a fixed length and is UTF-8.

    Raises ValueError if the attribute is missing, or of another type.
    """
    if name not in attributes:
        raise ValueError(f"it has no attribute {name!r}")
    attribute = attributes.get_id(name)
    scalar = {str: np.bytes_, bool: np.bool_, int: np.integer, float: np.floating}[kind]
    if attribute.shape != () or not np.issubdtype(attribute.dtype, scalar):
        raise ValueError(f"attribute {name!r} is not one {kind.__name__}")
    value = attributes[name]
    return value.decode() if kind is str else kind(value)


class ContentHash:
    """SHA-256 of the arrays in a fixed order, which does not depend on the division of arrays into
    slabs.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Any] = {}

    def update(self, name: str, array: Array) -> None:
        """Append the little-endian bytes of `array` to the data set `name`."""
        stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        part = self._parts.setdefault((name, stored.dtype.str), hashlib.sha256())
        part.update(stored.view(np.uint8).data)

    def hexdigest(self, n_rows: int, n_cols: int, transposed: bool) -> str:
        """Return the hash of the sizes and of all arrays."""
        total = hashlib.sha256(f"{CONTENT} {n_rows} {n_cols} {int(transposed)}\n".encode())
        for (name, dtype), part in sorted(self._parts.items(), key=lambda item: item[0]):
            total.update(f"{name} {dtype} {part.hexdigest()}\n".encode())
        return total.hexdigest()


def _find_bad_cells(indptr: Int64, indices: Int32, values: Float32, n_cols: int) -> str | None:
    """Return a description of the first fault in a slab, or None; `indptr` starts at 0."""
    if len(indices) == 0:
        return None
    if int(indices.min()) < 0 or int(indices.max()) >= n_cols:
        return f"indices outside 0..{n_cols - 1}"
    descents = 1 + np.flatnonzero(indices[1:] <= indices[:-1])
    if not np.isin(descents, indptr).all():  # the first index of a row may have any value
        return "indices that do not ascend in their row"
    if not np.isfinite(values).all():
        return "values that are not finite"
    return None


def find_bad_scale(low: float, high: float) -> str | None:
    """Return an error message if squares or variances of ratings in [low, high] exceed float32's
    range, or None.
    """
    largest, spread = max(abs(low), abs(high)), high - low
    if largest > MAX_RATING:
        wrong, limit = largest, f"at most {MAX_RATING:g}"
    elif 0 < spread < 1 / MAX_RATING:
        wrong, limit = spread, f"at least {1 / MAX_RATING:g} apart"
    else:
        return None
    advice = (
        f"multiply them by {10.0 ** -math.floor(math.log10(wrong)):g}, or remove values that are"
        " not ratings"
    )
    return (
        f"ratings range from {low:g} to {high:g}, but single precision needs them to be {limit}:"
        f" {advice}"
    )


def find_coarseness(what: str, low: float, high: float) -> str | None:
    """Return an error message if float32 changes differences of numbers by over 1 % of their range,
    or None.
    """
    if low == high or max(-low, high) * np.finfo(np.float32).eps <= (high - low) / 100:
        return None
    middle = (low + high) // 2
    return (
        f"{what} are {low:.15g} to {high:.15g}, too close for single precision: subtract"
        f" {middle:.15g} from all"
    )


def describe_untrained(counts: Mapping[str, int]) -> str:
    """Say how many test ratings have a "user", and an "item", without training ratings; an empty
    text if none has.
    """
    if not any(counts.values()):
        return ""
    return (
        f"the users of {counts['user']:,} and the items of {counts['item']:,} have no training"
        " ratings"
    )


def row_slabs(indptr: Int64, entries: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of consecutive ranges of rows, each as long as `entries` allows, but at
    least one row.

    Parameters
    ----------
    indptr : (n+1,) int64
        Non-decreasing.
    entries : int
        Largest number of entries in a range, unless a single row has more.
    """
    n_rows = len(indptr) - 1
    start = 0
    while start < n_rows:
        stop = int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1
        stop = min(max(stop, start + 1), n_rows)
        yield start, stop
        start = stop


def _entries(indptr: Int64, start: int, stop: int) -> tuple[int, int]:
    """Return the positions at which rows `start` to `stop` begin and end."""
    if not 0 <= start <= stop < len(indptr):
        raise ValueError(f"rows {start}:{stop} of {len(indptr) - 1}")
    return int(indptr[start]), int(indptr[stop])


class Ratings(AbstractContextManager["Ratings"]):
    """A ratings file, opened for reading and checked. Use as a context manager.

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
    mean, minimum, maximum : float
        Mean and range of the training ratings.
    transposed : bool
        Whether the rows are items (if there are more items than users).
    kinds : (str, str)
        What the rows and the columns are: user or item.
    seed : int
        Seed of the order of rows and columns, and of the split.
    source : str
        Names of the input files.
    features : dict of {"rows", "cols"} to Features
        Features of the sides that have features, without indices and values, which `feature_slab`
        reads.
    times : dict of {"rows", "cols"} to Times, or None
        Numbers of places and pages of each row (or column), if the file has the order in time.
    temporal : bool
        Whether the split is temporal: the test ratings are the latest ratings, and `ages` are
        known.
    digest : str
        Hash of the content, by which runs identify the data; `verify` computes it again.
    recorded : Ratings or None
        The ratings as they were recorded, if this is a view of them on another scale.
    """

    recorded: Ratings | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._data: dict[str, Any] = {}
        if not self.path.is_file():
            reason = "is not a file" if self.path.exists() else "does not exist"
            raise InputError(f"{self.path} {reason}; make a ratings file with `dsgmcmc prepare`")
        try:
            self._file = h5py.File(self.path, "r", locking=False, rdcc_nbytes=0)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # not the file's fault
                raise OSError(error.errno, os.strerror(error.errno), str(self.path)) from error
            if not (h5py.is_hdf5(self.path) or isinstance(error, PermissionError)):
                advice = (
                    "make a ratings file from it with `dsgmcmc prepare"
                    f" {shlex.quote(str(self.path))} OUT.h5`"
                )
                raise self._wrong(f"it is not HDF5; if it holds ratings, {advice}") from error
            raise self._wrong(f"it cannot be opened as HDF5 ({error})") from error
        try:
            self._check_attributes()
            self._check_arrays()
        except (OSError, KeyError, RuntimeError, TypeError, ValueError, MemoryError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            raise self._wrong(f"its structure cannot be read ({error})") from error

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; if that fails, nothing is lost, because the file is only read."""
        with suppress(OSError, RuntimeError):
            self._file.close()

    def ids(self, side: Side) -> Array:
        """Return the original names of all rows, or of all columns: int64, or an object array of
        str.
        """
        raw = self._read(f"{side}/ids", 0, len(self._data[f"{side}/ids"]))
        if raw.dtype == np.int64:
            return raw
        with refusing(str(self._wrong(f"/{side}/ids is not UTF-8")), UnicodeDecodeError):
            return np.array([name.decode() for name in raw.tolist()], dtype=object)

    def slab(self, part: Split, start: int, stop: int) -> tuple[Int64, Int32, Float32]:
        """Read rows `start` to `stop` of a part.

        Raises InputError if the file has indices out of range or order, or values that are not
        finite.

        Returns
        -------
        indptr : (stop - start + 1,) int64, starting at 0
        indices : (n,) int32, ascending in each row
        values : (n,) float32
        """
        return self._matrix(part, self._indptr[part], self.n_cols, start, stop)

    def columns(self, part: Split, start: int, stop: int) -> Int32:
        """Return the column of every rating of a part in rows `start` to `stop`, (n,) int32; values
        are not read.

        Raises InputError if the file has indices out of range.
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
            yield self.slab(part, start, stop)[2]

    def ages(self, start: int, stop: int) -> UInt8:
        """Return the ages of the training ratings in rows `start` to `stop`: hundredth by time, 0
        for the latest.
        """
        return self._read("train/age", *_entries(self.row_indptr, start, stop))

    def untrained(self) -> dict[str, int]:
        """Return the number of test ratings whose "user", and whose "item", has no training
        ratings.
        """
        by_row = int(np.diff(self.test_indptr)[np.diff(self.row_indptr) == 0].sum())
        slabs = (self.columns("test", *slab) for slab in row_slabs(self.test_indptr, 1 << 22))
        by_column = sum(
            int(np.count_nonzero(self.column_counts[columns] == 0)) for columns in slabs
        )
        return dict(zip(self.kinds, (by_row, by_column), strict=True))

    def describe(self) -> dict[str, str]:
        """Describe the sizes and the scale, by labels for people."""
        sizes, total = (self.n_rows, self.n_cols), self.nnz + self.nnz_test
        users, items = sizes[::-1] if self.transposed else sizes
        untrained = describe_untrained(self.untrained())
        return {
            "users": f"{users:,}",
            "items": f"{items:,}",
            "ratings": f"{total:,}, density {total / (users * items):.3%}",
            "scale": f"{self.minimum:g} to {self.maximum:g}, mean {self.mean:.5g}",
            "training": f"{self.nnz:,}",
            "test": (
                f"{self.nnz_test:,} ({self.nnz_test / total:.1%})"
                + (untrained and f"; {untrained}")
            ),
        }

    def doubts(self) -> list[str]:
        """Return a warning for each side of which no test rating's user (or item) has training
        ratings.
        """
        return [
            f"all test ratings are of {kind}s without training ratings: are the {kind}s named as in"
            " the training file?"
            for kind, number in self.untrained().items()
            if 0 < number == self.nnz_test
        ]

    def levels(self, limit: int) -> Float64 | None:
        """Return the distinct training ratings, (R,) float64 in ascending order; None if there are
        more than `limit`.

        The first call reads all training ratings of the file, also for a view of some ratings
        (`dsgmcmc.data.inner`), so that a model of a view has the same levels as a model of the
        file. `limit` is at most `dsgmcmc.kernels.stored.FEW`.
        """
        levels = self._levels
        return levels if levels is not None and len(levels) <= limit else None

    @cached_property
    def _levels(self) -> Float64 | None:
        numbering = Numbering()
        for first in range(0, len(self._data["train/values"]), _PIECE):
            if numbering.numbers(self._read("train/values", first, first + _PIECE)) is None:
                return None
        return np.unique(numbering.values).astype(np.float64)

    @property
    def value_bytes(self) -> int:
        """Bytes per training rating in memory (`dsgmcmc.kernels.stored`), estimated from the file's
        first ratings.
        """
        first = Numbering().numbers(self._read("train/values", 0, _PIECE))
        return 4 if first is None else 1

    def feature_slab(self, side: Side, start: int, stop: int) -> Features:
        """Read the features of rows (or columns) `start` to `stop`.

        Raises InputError if the file has indices out of range or order, or values that are not
        finite.
        """
        stored = self.features[side]
        rows = self._matrix(f"{side}/features", stored.indptr, len(stored.names), start, stop)
        return Features(*rows, stored.names, stored.groups)

    def times_slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read the positions in time of a part's ratings in rows `start` to `stop`, within their
        rows or columns.

        `times` must be known. Raises InputError if a place or page is not below the count of its
        row (or column).
        """
        first, last = _entries(self._indptr[part], start, stop)
        if side == "cols":
            owners = self.columns(part, start, stop)
        else:
            lengths = np.diff(self._indptr[part][start : stop + 1])
            owners = np.repeat(np.arange(start, stop, dtype=np.int32), lengths)
        arrays = []
        for name, counts in zip(Times.datasets(side, part), (self.times or {})[side], strict=True):
            numbers = self._read(name, first, last)
            if len(owners) and (numbers.min() < 0 or (numbers >= counts[owners]).any()):
                raise self._wrong(f"/{name} has positions outside the range of its {side}")
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
            for start, stop in row_slabs(self._indptr[part], _PIECE):
                _, indices, values = self.slab(part, start, stop)
                content.update(f"{part}/indices", indices)
                content.update(f"{part}/values", values)
                for side in self.times or ():
                    times = self.times_slab(part, side, start, stop)
                    for name, numbers in zip(Times.datasets(side, part), times, strict=True):
                        content.update(name, numbers)
                if part == "train":
                    counts += np.bincount(indices, minlength=self.n_cols)
                    if self.temporal:
                        content.update("train/age", self.ages(start, stop))
        if not np.array_equal(counts, self.column_counts):
            raise self._wrong("/train/column_counts is not the number of ratings of each column")
        for side in SIDES:
            for start in range(0, len(self._data[f"{side}/ids"]), _PIECE):
                content.update(f"{side}/ids", self._read(f"{side}/ids", start, start + _PIECE))
        for side, stored in self.features.items():
            whole = self.feature_slab(side, 0, len(stored.indptr) - 1)
            for name, array in whole.datasets(side).items():
                content.update(name, array)
        if content.hexdigest(self.n_rows, self.n_cols, self.transposed) != self.digest:
            raise self._wrong("its content does not match its content_sha256: prepare it again")

    def _wrong(self, fault: str) -> InputError:
        """Return the error for a file with a fault."""
        return InputError(f"{self.path} is not a usable ratings file: {fault}")

    def _read(self, name: str, start: int, stop: int) -> Array:
        """Read entries of a data set; raise InputError if their checksum does not match."""
        fault = (
            f"/{name} is damaged in entries {start} to {stop} (copy the file again, or prepare it"
            " again)"
        )
        with refusing(str(self._wrong(fault)), OSError, RuntimeError):
            array: Array = self._data[name][start:stop]
        return array

    def _matrix(
        self, group: str, indptr: Int64, n_cols: int, start: int, stop: int
    ) -> tuple[Int64, Int32, Float32]:
        """Read rows `start` to `stop` of a matrix in compressed sparse rows, and check them."""
        first, last = _entries(indptr, start, stop)
        indices, values = (
            self._read(f"{group}/{name}", first, last) for name in ("indices", "values")
        )
        ends = indptr[start : stop + 1] - first
        if bad := _find_bad_cells(ends, indices, values, n_cols):
            raise self._wrong(f"/{group} has {bad} in rows {start} to {stop}")
        return ends, indices, values

    def _check_attributes(self) -> None:
        """Read the attributes, and check their types, ranges and the version."""
        if "posterior" in self._file:
            raise self._wrong("it is a netCDF export of a run, for ArviZ")
        attributes = {
            name: _read_attribute(self._file.attrs, name, kind) for name, kind in ATTRIBUTES.items()
        }
        if (attributes["format"], attributes["version"]) != (FORMAT, VERSION):
            found = f"its format is {attributes['format']!r} version {attributes['version']}"
            raise self._wrong(
                f"{found}, but this program reads {FORMAT!r} version {VERSION}: prepare it again"
            )
        self.n_rows, self.n_cols = attributes["I"], attributes["J"]
        self.nnz, self.nnz_test = attributes["nnz"], attributes["nnz_test"]
        self.minimum, self.maximum = attributes["min"], attributes["max"]
        self.transposed, self.seed, self.digest = (
            attributes[k] for k in ("transposed", "seed", "content_sha256")
        )
        self.kinds = ("item", "user") if self.transposed else ("user", "item")
        self.mean, self.source = attributes["mean"], attributes["source"]
        # NaN fails every comparison; the mean in float64 may round just outside equal extremes
        slack = 1e-6 * max(1.0, abs(self.minimum), abs(self.maximum))
        is_mean = self.minimum - slack <= self.mean <= self.maximum + slack and math.isfinite(
            self.mean
        )
        has_sizes = (
            0 < self.n_cols <= self.n_rows <= MAX_SIDE and self.nnz >= 1 and self.nnz_test >= 0
        )
        if not (is_mean and has_sizes and len(self.digest) == 64):
            found = ", ".join(f"{name}={value}" for name, value in attributes.items())
            raise self._wrong(f"its attributes are impossible: {found}")

    def _check_arrays(self) -> None:
        """Check shapes and types of all data sets; read index pointers and numbers of ratings."""
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
        possible = (self.column_counts >= 0) & (
            self.column_counts <= self.nnz
        )  # so that the sum cannot overflow
        if not possible.all() or int(self.column_counts.sum()) != self.nnz:
            raise self._wrong(f"/train/column_counts does not add up to {self.nnz}")
        sizes: dict[Side, int] = {"rows": self.n_rows, "cols": self.n_cols}
        for side, n in sizes.items():
            self._dataset(f"{side}/ids", n, None)
        described = {side: n for side, n in sizes.items() if f"{side}/features" in self._file}
        self.features = {side: self._check_features(side, n) for side, n in described.items()}
        timed = "rows/times" in self._file
        self.times = (
            {side: self._check_times(side, n) for side, n in sizes.items()} if timed else None
        )
        self.temporal = "train/age" in self._file
        if self.temporal:
            self._dataset("train/age", self.nnz, np.uint8)

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
        texts = [tuple(text.decode() for text in data[:].tolist()) for data in (names, groups)]
        unread = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return Features(indptr, *unread, texts[0], texts[1], encoding.decode())

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

    def _dataset(self, name: str, length: int | None, dtype: type | None) -> Any:
        """Check a data set and put it into `_data`; None allows any `length`, or as `dtype` int64
        and text.
        """
        data = checked_dataset(self._file, name, CHUNK)
        if dtype is None:
            wrong = data.dtype != np.int64 and not (
                data.dtype.kind == "S" and data.dtype.itemsize <= MAX_ID_BYTES
            )
        else:
            wrong = data.dtype != dtype
        if data.ndim != 1 or length not in (None, len(data)) or wrong:
            raise self._wrong(f"/{name} has shape {data.shape} and type {data.dtype}")
        self._data[name] = data
        return data


class Slab(NamedTuple):
    """Ratings of a part in consecutive rows; the first row follows the last row of the part's
    previous slab.

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
) -> dict[str, Any]:
    """Write a ratings file slab by slab, to a temporary file in the same folder; return its
    attributes.

    When the file is complete, it is synced and renamed. Raises InputError if `path` exists without
    `force`, and WriteError if the file cannot be written.

    Parameters
    ----------
    ids : dict of side to arrays
        Original names, in pieces: (n,) int64, or ``S<n>`` with UTF-8.
    slabs : iterable of Slab
        Slabs of both parts; the slabs of a part are in the order of rows, and cover all rows.
    features : dict of side to Features
        Features of rows, columns, or both.
    seed, transposed, source
        Attributes of the file, as in `Ratings`.
    """
    path = Path(path)
    with writing(path):
        with replacing(path) as temporary:
            with new_hdf5(temporary) as (file, check):
                content = _Content(file, check, sizes)
                for side, side_features in (features or {}).items():
                    for name, array in side_features.datasets(side).items():
                        content.append(
                            name, array, len(array), hashed=not name.endswith("/encoding")
                        )
                for side in SIDES:
                    for names in ids[side]:
                        content.append(f"{side}/ids", names, getattr(sizes, side))
                for slab in slabs:
                    content.add(slab)
                attributes = content.finish(
                    {"seed": seed, "transposed": transposed, "source": source}
                )
            sync(temporary)
            check_target(path, force)
        sync(path.parent)
    return attributes


class _Content:
    """The content of a ratings file that is being written."""

    def __init__(self, file: h5py.File, check: Callable[[], None], sizes: Sizes) -> None:
        self._file, self._check = file, check
        self._sizes, self._hash = sizes, ContentHash()
        self._filled: dict[str, int] = {}
        self._column_counts = np.zeros(sizes.cols, dtype=np.int64)
        self._row_sums: list[Float64] = []
        self._time_counts: dict[str, Int32] = {}
        self._minimum, self._maximum = np.inf, -np.inf

    def append(self, name: str, array: Array, length: int, hashed: bool = True) -> None:
        """Append to a data set of final length `length`; `hashed` says whether the content hash
        includes the data.
        """
        if name not in self._file:
            stored = (
                h5py.string_dtype("utf-8", array.dtype.itemsize)
                if array.dtype.kind == "S"
                else array.dtype
            )
            chunks = (min(length, CHUNK),) if length else None  # an empty data set has no chunks
            self._file.create_dataset(
                name, (length,), stored, chunks=chunks, fletcher32=bool(chunks)
            )
        start = self._filled.get(name, 0)
        self._filled[name] = start + len(array)
        array = array.astype(
            self._file[name].dtype
        )  # the type also tells h5py that bytes are UTF-8
        if len(array):
            self._file[name][start : start + len(array)] = array
            self._check()
        if hashed:
            self._hash.update(name, array)

    def add(self, slab: Slab) -> None:
        """Append the ratings of the next rows of a part."""
        part, indptr = slab.part, slab.indptr
        indices, values = (
            slab.indices.astype(np.int32, copy=False),
            slab.values.astype(np.float32, copy=False),
        )
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
        rows = np.repeat(np.arange(row, row + len(indptr) - 1), np.diff(indptr))
        owners: dict[Side, Array] = {"rows": rows, "cols": indices}
        for side, times in (slab.times or {}).items():
            for name, total, numbers in zip(
                Times.datasets(side, part), Times.datasets(side), times, strict=True
            ):
                counts = self._time_counts.setdefault(
                    total, np.zeros(getattr(self._sizes, side), np.int32)
                )
                np.maximum.at(counts, owners[side], numbers + 1)
                self.append(name, numbers, length)
        if part == "train" and len(values):
            self._column_counts += np.bincount(indices, minlength=self._sizes.cols)
            self._minimum = min(self._minimum, float(values.min()))
            self._maximum = max(self._maximum, float(values.max()))
            # `finish` adds the row sums exactly, so that the mean does not depend on the division
            # into slabs
            starts = indptr[:-1][np.diff(indptr) > 0]
            self._row_sums.append(np.add.reduceat(values.astype(np.float64), starts))

    def finish(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Write the number of ratings of each column, of places and of pages, and the attributes;
        return these.
        """
        sizes = self._sizes
        self.append("train/column_counts", self._column_counts, sizes.cols, hashed=False)
        for name, counts in self._time_counts.items():
            self.append(name, counts, len(counts), hashed=False)
        attributes |= {
            "format": FORMAT,
            "version": VERSION,
            "min": self._minimum,
            "max": self._maximum,
        }
        attributes |= {"I": sizes.rows, "J": sizes.cols, "nnz": sizes.train, "nnz_test": sizes.test}
        attributes["mean"] = math.fsum(itertools.chain.from_iterable(self._row_sums)) / sizes.train
        attributes["content_sha256"] = self._hash.hexdigest(
            sizes.rows, sizes.cols, attributes["transposed"]
        )
        for name, expected in ATTRIBUTES.items():
            value, kind = expected(attributes[name]), None
            if isinstance(
                value, str
            ):  # text of fixed length: HDF5 hangs on damaged files with text of variable length
                value = value.encode()
                kind = h5py.string_dtype("utf-8", max(1, len(value)))
            self._file.attrs.create(name, value, dtype=kind)
        return attributes
