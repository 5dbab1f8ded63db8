"""Writes ratings files atomically, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from dsgmcmc.data.ratings.format import (
    ATTRIBUTES,
    CHUNK,
    FORMAT,
    MAX_SIDE,
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


class RatingsWriter:
    """Writes a ratings file slab by slab, in bounded memory. Use as a context manager.

    The content goes to a temporary file in the folder of `path`. At the normal end of the ``with`` block the file is
    synced and renamed to `path`; after an error it is removed. Raises InputError if `path` exists without `force`, and
    WriteError if the file cannot be written.

    Parameters
    ----------
    n_rows, n_cols : int
        I >= J.
    nnz, nnz_test : int
        Number of training and test ratings that will be appended.
    features : dict of side to Features
        Features of rows, columns, or both.
    seed, transposed, source, source_sha256
        Attributes of the file, as in `Ratings`.
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
        features: Mapping[Side, Features] | None = None,
        seed: int = 0,
        transposed: bool = False,
        source: str = "",
        source_sha256: str = "",
        force: bool = False,
    ) -> None:
        if not 0 < n_cols <= n_rows <= MAX_SIDE or nnz < 1 or nnz_test < 0:
            raise ValueError(f"I={n_rows}, J={n_cols}, nnz={nnz}, nnz_test={nnz_test}")
        self.path = Path(path)
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
        self._lengths: dict[str, int] = {"rows": n_rows, "cols": n_cols, "train": nnz, "test": nnz_test}
        self._column_counts = np.zeros(n_cols, dtype=np.int64)
        self._row_sums: list[Float64] = []
        self._time_counts: dict[str, Int32] = {}
        self._minimum, self._maximum = np.inf, -np.inf
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.tmp")
        self._open = contextlib.ExitStack()
        try:
            with writing(self.path):
                self._file, self._check = self._open.enter_context(new_hdf5(self._temporary))
                for side, described in (features or {}).items():
                    for name, array in described.datasets(side).items():
                        self._append(name, array, len(array), identity=not name.endswith("/encoding"))
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

    def ids(self, side: Side, names: Array) -> None:
        """Append original names: (n,) int64, or ``S<n>`` with UTF-8, in the order of the rows or columns."""
        self._append(f"{side}/ids", names, self._lengths[side])

    def append(
        self,
        part: Split,
        indptr: Int64,
        indices: Int32,
        values: Float32,
        times: Mapping[Side, Times] | None = None,
        ages: UInt8 | None = None,
    ) -> None:
        """Append the ratings of the next rows.

        Parameters
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
        indices, values = indices.astype(np.int32, copy=False), values.astype(np.float32, copy=False)
        bad = find_bad_cells(indptr, indices, values, self._lengths["cols"])
        if bad:
            raise ValueError(bad)
        length, n_rows = self._lengths[part], self._lengths["rows"]
        offset = self._filled.get(f"{part}/indices", 0)
        row = self._filled.get(f"{part}/indptr", 1) - 1
        if row == 0:
            self._append(f"{part}/indptr", np.zeros(1, dtype=np.int64), n_rows + 1)
        self._append(f"{part}/indptr", offset + indptr[1:], n_rows + 1)
        self._append(f"{part}/indices", indices, length)
        self._append(f"{part}/values", values, length)
        if ages is not None:
            self._append(f"{part}/age", ages, length)
        if times is not None:
            rows = np.repeat(np.arange(row, row + len(indptr) - 1), np.diff(indptr))
            self._append_times(part, "rows", rows, times["rows"])
            self._append_times(part, "cols", indices, times["cols"])
        if part == "train" and len(values):
            self._column_counts += np.bincount(indices, minlength=self._lengths["cols"])
            self._minimum = min(self._minimum, float(values.min()))
            self._maximum = max(self._maximum, float(values.max()))
            # exact sum of the row sums: the mean does not depend on the division into slabs
            starts = indptr[:-1][np.diff(indptr) > 0]
            self._row_sums.append(np.add.reduceat(values.astype(np.float64), starts))

    def _append_times(self, part: Split, side: Side, owners: Array, times: Times) -> None:
        """Append places and pages, and update the numbers of both for their owners, rows or columns."""
        for name, total, numbers in zip(Times.datasets(side, part), Times.datasets(side), times, strict=True):
            counts = self._time_counts.setdefault(total, np.zeros(self._lengths[side], np.int32))
            np.maximum.at(counts, owners, numbers + 1)
            self._append(name, numbers, self._lengths[part])

    def _append(self, name: str, array: Array, length: int, identity: bool = True) -> None:
        """Append to a data set of final length `length`; bytes are UTF-8. `identity`: include it in the hash."""
        start = self._filled.get(name, 0)
        if start + len(array) > length:
            raise ValueError(f"/{name} has more than the {length} entries that were announced")
        if name not in self._file:
            stored = h5py.string_dtype("utf-8", array.dtype.itemsize) if array.dtype.kind == "S" else array.dtype
            chunks = (min(length, CHUNK),) if length else None  # an empty data set has no chunks
            self._file.create_dataset(name, (length,), stored, chunks=chunks, fletcher32=bool(chunks))
        array = array.astype(self._file[name].dtype)  # also tells h5py that bytes are UTF-8
        if len(array):
            self._file[name][start : start + len(array)] = array
            with writing(self.path):
                self._check()
        if identity:
            self._content.update(name, array)
        self._filled[name] = start + len(array)

    def _commit(self) -> None:
        self._append("train/column_counts", self._column_counts, len(self._column_counts), identity=False)
        for name, counts in self._time_counts.items():
            self._append(name, counts, len(counts), identity=False)
        for name in ("train/indptr", "train/indices", "test/indptr", "test/indices", "rows/ids", "cols/ids"):
            if name not in self._filled or self._filled[name] != len(self._file[name]):
                raise ValueError(f"/{name} has fewer entries than were announced")
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
        """Raise InputError if `path` cannot be written, or exists and must not be replaced."""
        if not os.access(path.parent, os.W_OK):
            reason = "may not be written" if path.parent.exists() else "does not exist"
            raise InputError(f"{path} cannot be written: the folder {path.parent} {reason}")
        if path.is_dir():
            raise InputError(f"{path} is a directory; give the name of a file to write")
        if path.exists() and not force:
            raise InputError(f"{path} exists; give another name, or --force to replace it")

    def _abandon(self) -> None:
        """Remove the temporary file, if it still exists."""
        with contextlib.suppress(OSError):  # reported before
            self._open.close()
        self._temporary.unlink(missing_ok=True)


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
    `attributes` may be ``features``, ``seed``, ``transposed``, ``source``, ``source_sha256`` and ``force`` of
    `RatingsWriter`.
    """
    with RatingsWriter(
        path,
        n_rows=len(row_ids),
        n_cols=len(col_ids),
        nnz=len(train[1]),
        nnz_test=len(test[1]),
        **attributes,
    ) as writer:
        writer.ids("rows", row_ids)
        writer.ids("cols", col_ids)
        for k, (part, ratings) in enumerate(zip(SPLITS, (train, test), strict=True)):
            writer.append(part, *ratings, times[k] if times else None)
