"""HDF5 files: writing without overlooked errors, reading without opening any other file.

**Writing.** HDF5 writes small data sets when they are closed, and h5py hides errors at this point.
A file that cannot be flushed stays open, and crashes the program at exit. HDF5 therefore writes to
a Python file object, which stores the first error and lets HDF5 continue and close.

**Reading.** An HDF5 file can refer to other files, and can declare terabytes that it does not
contain. A reader that followed such references would open any file that the author of the HDF5 file
chose. Therefore only data sets in the file itself are read, stored either contiguously without
filters or in chunks with checksums.
"""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from dsgmcmc.errors import is_of_disk, naming
from dsgmcmc.types import Array


@contextmanager
def new_hdf5(path: Path) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """Context with a new HDF5 file that is open for writing; the file is not synced.

    Raises OSError at the end of the context if HDF5 could not write the file.

    Yields
    ------
    file : h5py.File
    check : callable
        Raises the first error so far, to be called between writes.
    """
    disk = _Disk(path)
    try:
        # the format of HDF5 1.10 has checksums of all metadata
        with h5py.File(path, "w", libver="v110", driver="fileobj", fileobj=disk) as file:
            yield file, disk.check
    except Exception:
        disk.check()  # a failed write may have caused a later error in HDF5
        raise
    finally:
        disk.close()
    disk.check()


def add_dataset(file: h5py.File, name: str, array: Array) -> None:
    """Write a C-contiguous array to a new data set, in one plain piece; make missing groups.

    h5py's `create_dataset` takes most of the time of a snapshot, which has hundreds of small data
    sets.
    """
    dtype = h5py.h5t.py_create(array.dtype, logical=True)
    space = h5py.h5s.create_simple(array.shape)
    data = h5py.h5d.create(file.id, name.encode(), dtype, space, _WITHOUT_TIMES, _WITH_GROUPS)
    data.write(h5py.h5s.ALL, h5py.h5s.ALL, array)


_WITHOUT_TIMES = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
_WITHOUT_TIMES.set_obj_track_times(False)
_WITH_GROUPS = h5py.h5p.create(h5py.h5p.LINK_CREATE)
_WITH_GROUPS.set_create_intermediate_group(True)


class _Disk(io.FileIO):
    """A new file that HDF5 writes.

    Methods that HDF5 calls raise nothing: they store the first error for `check`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x+")
        self._path = path
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise the stored error or Ctrl-C, if any; no data are written after it."""
        if self._error is not None:
            raise self._error

    @override
    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; bytes beyond the end of the file are zeros."""
        view = memoryview(buffer).cast("B")
        done = 0
        with self._storing_errors():
            while done < len(view) and (count := super().readinto(view[done:])):
                done += count
        view[done:] = bytes(len(view) - done)
        return len(view)

    @override
    def write(self, data: Any) -> int:
        """Write all data, in several system calls if necessary."""
        view = memoryview(data).cast("B")
        done = 0
        with self._storing_errors():
            while done < len(view) and not self._error:
                done += os.pwrite(self.fileno(), view[done:], self.tell() + done)
        return len(view)

    @override
    def truncate(self, size: int | None = None) -> int:
        with self._storing_errors():
            super().truncate(size)
        return size or 0

    @override
    def close(self) -> None:
        with self._storing_errors():
            super().close()

    @contextmanager
    def _storing_errors(self) -> Iterator[None]:
        try:
            with naming(self._path):
                yield
        except BaseException as error:
            self._error = self._error or error


class PlainFile:
    """An HDF5 file of which only data sets in one plain piece of the file itself are read.

    It calls HDF5 as directly as h5py allows: a snapshot has hundreds of small data sets, and h5py's
    own objects take most of the time of reading them. Raises ValueError if it is not a regular
    file.
    """

    def __init__(self, path: Path) -> None:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is a directory, a pipe or a device")
        self._file = h5py.File(path, "r", locking=False)
        self._bytes = status.st_size
        self._inside: set[str] = set()  # names that are known to be no links

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Read a data set; parameters and errors are as in `dataset`."""
        data = self._checked(name, shape, dtype)
        array = np.empty(shape, dtype)
        if array.size:
            data.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
        return array

    def entries(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        targets: Mapping[int, npt.NDArray[Any]],
        *,
        others: npt.NDArray[Any] | None = None,
    ) -> Iterator[npt.NDArray[Any]]:
        """Read entries along the first axis of a data set one by one, and yield them.

        Name, shape, type and errors are as in `dataset`.

        Parameters
        ----------
        targets : mapping of int to array
            C-contiguous arrays into which entries are read, by their numbers.
        others : array, optional
            Array into which all other entries are read, one after another; default: they are left
            out.
        """
        data = self._checked(name, shape, dtype)
        handle = self._file.id.get_vfd_handle()
        entry_bytes = dtype.itemsize * math.prod(shape[1:])
        for number in range(shape[0]):
            entry = targets.get(number, others)
            if entry is None:
                continue
            if entry.size:
                # h5py would lock out other threads, and copy
                _read_at(handle, data.get_offset() + number * entry_bytes, entry)
            yield entry

    def dataset(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> h5py.Dataset:
        """Open a data set, and check it so that memory may be allocated for it.

        Raises ValueError or KeyError if the data set is missing, is a link, has another shape or
        type, or is virtual, external, chunked or compressed.

        Parameters
        ----------
        name : str
            Path from the root, without a leading slash.
        """
        return h5py.Dataset(self._checked(name, shape, dtype))

    def _checked(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> h5py.h5d.DatasetID:
        _check_inside(self._file, name, self._inside)
        data = h5py.h5d.open(self._file.id, name.encode())
        if (data.dtype, data.shape) != (dtype, shape):
            raise ValueError(f"/{name} is {data.dtype.str} {data.shape}, not {dtype.str} {shape}")
        size = dtype.itemsize * math.prod(shape)
        offset = data.get_offset()
        length = data.get_storage_size()
        if size and (offset is None or length != size or offset + length > self._bytes):
            raise ValueError(
                f"/{name} is not stored in this file in one plain piece of {size} bytes"
            )
        return data


def _read_at(handle: int, position: int, array: npt.NDArray[Any]) -> None:
    """Read an array from a position in a file. Raises ValueError if the file is too short."""
    view = array.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        count = os.preadv(handle, [view[done:]], position + done)
        if not count:
            raise ValueError("the file has been cut short")
        done += count


def checked_dataset(file: h5py.File, name: str, longest: int) -> h5py.Dataset:
    """Return a data set that is stored in chunks with checksums.

    HDF5 checks them at every read, and raises OSError. Raises ValueError if the data set is
    missing, a link, virtual, external, incomplete or without checksums, or if its chunks have more
    than `longest` entries. An empty data set needs no chunks.

    Parameters
    ----------
    name : str
        Path from the root, without a leading slash.
    """
    _check_inside(file, name, set())
    data = file[name]
    if not isinstance(data, h5py.Dataset):
        raise ValueError(f"/{name} is not a dataset")
    properties = data.id.get_create_plist()
    is_inside = not properties.get_external_count() and properties.get_layout() in _IN_ONE_PIECE
    if not data.size and is_inside:
        return data
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    if properties.get_layout() != h5py.h5d.CHUNKED or filters != [h5py.h5z.FILTER_FLETCHER32]:
        raise ValueError(f"/{name} is not stored in this file, in chunks with checksums")
    chunk = math.prod(data.chunks)
    if chunk > longest:
        raise ValueError(f"/{name} has chunks of {chunk} entries, more than {longest}")
    count = math.prod(-(-n // part) for n, part in zip(data.shape, data.chunks, strict=True))
    if data.id.get_storage_size() != count * (chunk * data.dtype.itemsize + _CHECKSUM_BYTES):
        raise ValueError(
            f"/{name} declares {data.nbytes} bytes, but some are missing: was the file cut short?"
        )
    return data


def _check_inside(file: h5py.File, name: str, inside: set[str]) -> None:
    """Raise ValueError if a name is missing in an open file, or has a link on its way.

    `inside` are names that are known to be no links; the names on the way are added.
    """
    for ancestor in accumulate(name.split("/"), "{}/{}".format):
        if ancestor not in inside and not _is_hard_link(file, ancestor):
            raise ValueError(f"/{ancestor} is missing, or a link elsewhere")
        inside.add(ancestor)


_IN_ONE_PIECE = (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
_CHECKSUM_BYTES = 4  # per chunk


def _is_hard_link(file: h5py.File, name: str) -> bool:
    """Whether a name in a file is an object of this file.

    This is 30 times as fast as h5py's `get`, which opens the object.
    """
    try:
        return bool(file.id.links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD)
    except (KeyError, RuntimeError) as error:  # there is no such name, or its parent is not a group
        if is_of_disk(error):
            raise
        return False
