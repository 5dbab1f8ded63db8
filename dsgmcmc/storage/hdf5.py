"""Data sets of files that nobody vouches for: those alone that lie in the file itself, plainly and in one piece.

HDF5 can point from one file into others, and promise terabytes that no file holds; a reader that followed would read
what the file's author chose.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import h5py


def plain_dataset(file: Any, name: str) -> Any:
    """Return a data set of an open file; what it says of its size is not checked, see `check_size`.

    Parameters
    ----------
    file : h5py.File
    name : str
        Path from the root, without a leading slash.

    Raises
    ------
    ValueError
        If there is none, or it is a link, virtual, external, chunked or filtered.
    """
    for where in accumulate(name.split("/"), "{}/{}".format):
        if not _lies_here(file, where):
            raise ValueError(f"/{where} is missing, or a link elsewhere")
    data = file[name]
    if not isinstance(data, h5py.Dataset):
        raise ValueError(f"/{name} is not a dataset")
    if data.is_virtual or data.external or data.chunks or data.id.get_create_plist().get_nfilters():
        raise ValueError(f"/{name} is not stored in this file, plainly and in one piece")
    return data


def _lies_here(file: Any, name: str) -> bool:
    """Whether a name of a file is there, and no link: 30 times as fast as h5py's `get`, which opens what it names."""
    try:
        return bool(file.id.links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD)
    except (KeyError, RuntimeError):  # nothing of that name, or what is above it has no names
        return False


def check_size(data: Any, file_bytes: int) -> None:
    """Refuse a data set that a file of so many bytes cannot hold, before anything is allocated for it.

    Raises
    ------
    ValueError
        If it is not wholly in the file.
    """
    offset, stored = data.id.get_offset(), data.id.get_storage_size()
    if data.nbytes and (offset is None or stored != data.nbytes or offset + stored > file_bytes):
        raise ValueError(f"{data.name} declares {data.nbytes} bytes, the file has {file_bytes}: cut short?")
