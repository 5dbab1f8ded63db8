"""Writes ratings files: whole or not at all, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import h5py
import numpy as np
import numpy.typing as npt

from dsgmcmc.data.ratings.features import Features, Side
from dsgmcmc.data.ratings.format import (
    ATTRIBUTES,
    CHUNK,
    FORMAT,
    MAX_SIDE,
    SPLITS,
    VERSION,
    ContentHash,
    Split,
    find_bad_cells,
)
from dsgmcmc.data.ratings.times import Times, TimesToWrite
from dsgmcmc.errors import InputError, writing
from dsgmcmc.storage.files import sync
from dsgmcmc.storage.hdf5 import new_hdf5
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, UInt8

_METADATA_BYTES = 1 << 16  # more than names, types and attributes take


class RatingsWriter:
    """Write a ratings file slab by slab, in bounded memory. Use as a context manager.

    Everything goes to a temporary file beside `path`, whose space is reserved before the first byte. Leaving the
    ``with`` block normally syncs it and renames it to `path`; any error removes it. Raises InputError if
    `path` exists without `force`; a `WriteError` if it cannot be written, or there is no space.

    Parameters
    ----------
    n_rows, n_cols : int
        I >= J.
    nnz, nnz_test : int
        How many training and test ratings will be appended.
    id_types : pair of numpy dtypes
        Of the row and column names: int64, or ``S<n>`` for UTF-8 of at most n bytes.
    features : dict of side to Features
        Of the rows, the columns, or both.
    times : bool
        Whether it is told where ratings stand in the order of time.
    ages : bool
        Whether it is told which training ratings are the latest, as it is where test ratings are later than all.
    seed, transposed, source, source_sha256
        Attributes, see `Ratings`.
    force : bool
        Replace an existing file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_rows: int,
        n_cols: int,
        nnz: int,
        nnz_test: int,
        id_types: tuple[npt.DTypeLike, npt.DTypeLike] = (np.int64, np.int64),
        features: Mapping[Side, Features] | None = None,
        times: bool = False,
        ages: bool = False,
        seed: int = 0,
        transposed: bool = False,
        source: str = "",
        source_sha256: str = "",
        force: bool = False,
    ) -> None:
        if not 0 < n_cols <= n_rows <= MAX_SIDE or nnz < 1 or nnz_test < 0:
            raise ValueError(f"I={n_rows}, J={n_cols}, nnz={nnz}, nnz_test={nnz_test}")
        self.path = Path(path)
        self._n_cols = n_cols
        self._force = force
        self.check_target(self.path, force)
        self._attributes: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "I": n_rows,
            "J": n_cols,
            "nnz": nnz,
            "nnz_test": nnz_test,
            "seed": seed,
            "transposed": transposed,
            "source": source,
            "source_sha256": source_sha256,
        }
        self._content = ContentHash()
        self._filled: dict[str, int] = {}
        self._column_counts = np.zeros(n_cols, dtype=np.int64)
        self._row_sums: list[Float64] = []
        self._times = TimesToWrite(n_rows, n_cols) if times else None
        self._ages = ages
        self._minimum, self._maximum = np.inf, -np.inf
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.tmp")
        self._open = contextlib.ExitStack()
        try:
            with writing(self.path):
                self._file, self._check = self._open.enter_context(new_hdf5(self._temporary))
                more = dict[str, Array]()
                for side, each in (features or {}).items():
                    more |= each.datasets(side)
                self._create(n_rows, nnz, nnz_test, id_types, more)
                for name, array in more.items():
                    self._append(name, array, identity=not name.endswith("/encoding"))
        except BaseException:
            self._abandon()
            raise

    def __enter__(self) -> RatingsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                with writing(self.path):
                    self._commit()
        finally:
            self._abandon()

    def ids(self, side: Literal["rows", "cols"], names: Array) -> None:
        """Append original names: (n,) int64, or ``S`` with UTF-8, in the order of the rows or columns."""
        self._append(f"{side}/ids", names)

    def append(
        self,
        part: Split,
        indptr: Int64,
        indices: Int32,
        values: Float32,
        times: Mapping[Side, Times] | None = None,
        ages: UInt8 | None = None,
    ) -> None:
        """Append the ratings of the next rows, with `times` and `ages` if these are kept.

        Parameters
        ----------
        part : {"train", "test"}
        indptr : (n+1,) int64, starting at 0
        indices : (m,) int32, ascending in each row
        values : (m,) float32, finite
        """
        bad = find_bad_cells(indptr, indices, values, self._n_cols)
        if bad:
            raise ValueError(bad)
        offset = self._filled.get(f"{part}/indices", 0)
        if f"{part}/indptr" not in self._filled:
            self._append(f"{part}/indptr", np.zeros(1, dtype=np.int64))
        self._append(f"{part}/indptr", offset + indptr[1:])
        self._append(f"{part}/indices", indices)
        self._append(f"{part}/values", values)
        if self._times and times:
            last = self._filled[f"{part}/indptr"] - 1
            rows = np.repeat(np.arange(last - len(indptr) + 1, last), np.diff(indptr))
            for name, numbers in self._times.of(part, {"rows": rows, "cols": indices}, times):
                self._append(name, numbers)
        if self._ages and part == "train" and ages is not None:
            self._append("train/age", ages)
        if part == "train" and len(values):
            self._column_counts += np.bincount(indices, minlength=self._n_cols)
            self._minimum = min(self._minimum, float(values.min()))
            self._maximum = max(self._maximum, float(values.max()))
            # by row, then exactly: the mean does not depend on how the rows were cut into slabs
            starts = indptr[:-1][np.diff(indptr) > 0]
            self._row_sums.append(np.add.reduceat(values.astype(np.float64), starts))

    def _create(
        self,
        n_rows: int,
        nnz: int,
        nnz_test: int,
        id_types: tuple[npt.DTypeLike, npt.DTypeLike],
        more: Mapping[str, Array],
    ) -> None:
        """Create every data set and reserve the space of all, so that a full disk shows now."""

        def make(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
            chunks = (min(shape[0], CHUNK),) if shape[0] else None  # there are no chunks of nothing
            self._file.create_dataset(name, shape, dtype, chunks=chunks, fletcher32=bool(chunks))

        for part, n in zip(SPLITS, (nnz, nnz_test), strict=True):
            make(f"{part}/indptr", (n_rows + 1,), np.int64)
            make(f"{part}/indices", (n,), np.int32)
            make(f"{part}/values", (n,), np.float32)
        make("train/column_counts", (self._n_cols,), np.int64)
        if self._ages:
            make("train/age", (nnz,), np.uint8)
        for name, n in self._times.sizes((nnz, nnz_test)).items() if self._times else ():
            make(name, (n,), np.int32)
        for side, n, dtype in zip(("rows", "cols"), (n_rows, self._n_cols), id_types, strict=True):
            make(f"{side}/ids", (n,), _stored(np.dtype(dtype)))
        for name, array in more.items():
            make(name, array.shape, _stored(array.dtype))
        self._file.flush()
        bytes_of_arrays: list[int] = []
        self._file.visititems(lambda _, item: bytes_of_arrays.append(getattr(item, "nbytes", 0)))
        with self._temporary.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, sum(bytes_of_arrays) + _METADATA_BYTES)

    def _append(self, name: str, array: Array, identity: bool = True) -> None:
        start = self._filled.get(name, 0)
        data = self._file[name]
        if start + len(array) > len(data):
            raise ValueError(f"/{name} was declared with {len(data)} entries")
        array = array.astype(data.dtype)  # also tells h5py that bytes are UTF-8
        if len(array):
            data[start : start + len(array)] = array
            with writing(self.path):
                self._check()
        if identity:
            self._content.update(name, array)
        self._filled[name] = start + len(array)

    def _commit(self) -> None:
        for name in ("train/indptr", "train/indices", "test/indptr", "test/indices", "rows/ids", "cols/ids"):
            if self._filled.get(name, 0) != len(self._file[name]):
                raise ValueError(f"/{name} was declared with {len(self._file[name])} entries")
        counts: dict[str, Array] = {"train/column_counts": self._column_counts}
        counts |= dict(self._times.counts()) if self._times else {}
        for name, numbers in counts.items():
            self._file[name][:] = numbers
        a = self._attributes
        a["mean"] = math.fsum(itertools.chain.from_iterable(self._row_sums)) / a["nnz"]
        a["min"], a["max"] = self._minimum, self._maximum
        a["content_sha256"] = self._content.hexdigest(a["I"], a["J"], a["transposed"])
        for name, expected in ATTRIBUTES.items():
            value = expected(a[name])
            text = value.encode() if isinstance(value, str) else None
            # text of fixed length: HDF5 hangs on some damaged files with text of variable length
            kind = None if text is None else h5py.string_dtype("utf-8", max(1, len(text)))
            self._file.attrs.create(name, value if text is None else text, dtype=kind)
        self._open.close()
        sync(self._temporary)
        self.check_target(self.path, self._force)
        self._temporary.replace(self.path)
        sync(self.path.parent)

    @staticmethod
    def check_target(path: Path, force: bool) -> None:
        """Raise `InputError` if `path` cannot be written, or is there and must not be replaced."""
        if not os.access(path.parent, os.W_OK):
            reason = "may not be written" if path.parent.exists() else "does not exist"
            raise InputError(f"{path} cannot be written: the folder {path.parent} {reason}")
        if path.is_dir():
            raise InputError(f"{path} is a directory; give the name of a file to write")
        if path.exists() and not force:
            raise InputError(f"{path} exists; give another name, or --force to replace it")

    def _abandon(self) -> None:
        """Remove the temporary file, if it is still there."""
        with contextlib.suppress(OSError):  # which was said before
            self._open.close()
        self._temporary.unlink(missing_ok=True)


def _stored(dtype: np.dtype[Any]) -> Any:
    """Type of a data set; bytes are UTF-8."""
    return h5py.string_dtype("utf-8", dtype.itemsize) if dtype.kind == "S" else dtype


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

    `train` and `test` are compressed sparse rows (indptr, indices, values) in the order in which they are to lie in the
    file, `row_ids` and `col_ids` int64 or ``S`` arrays, and `times` where the training and the test ratings stand in
    the order of time. The others are ``features``, ``seed``, ``transposed``, ``source``, ``source_sha256`` and
    ``force`` of `RatingsWriter`.
    """
    with RatingsWriter(
        path,
        n_rows=len(row_ids),
        n_cols=len(col_ids),
        nnz=len(train[1]),
        nnz_test=len(test[1]),
        id_types=(row_ids.dtype, col_ids.dtype),
        times=times is not None,
        **attributes,
    ) as writer:
        writer.ids("rows", row_ids)
        writer.ids("cols", col_ids)
        for k, (part, ratings) in enumerate(zip(SPLITS, (train, test), strict=True)):
            writer.append(part, *ratings, times[k] if times else None)
