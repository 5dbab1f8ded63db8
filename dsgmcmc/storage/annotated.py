"""The layout of AnnData's files: https://anndata.readthedocs.io/en/stable/fileformat-prose.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import h5py
import numpy as np

#: Versions of the encodings, by type.
VERSIONS = {"dict": "0.1.0", "anndata": "0.1.0"}
VERSION = "0.2.0"  # of the others
#: Groups that every file has.
GROUPS = ("layers", "obsm", "varm", "obsp", "varp", "uns")


def start_annotated(file: h5py.File, names: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    """Write what every file has, with ``X`` to be filled in.

    `names` are those of "obs" and of "var", each with the name of their column.
    """
    _mark(file, "anndata")
    add_groups(file)
    for axis, (heading, labels) in names.items():
        frame = file.create_group(axis)
        _mark(frame, "dataframe")
        frame.attrs["_index"] = heading
        frame.attrs.create("column-order", [], dtype=h5py.string_dtype())
        index = frame.create_dataset(heading, data=labels, dtype=h5py.string_dtype())
        _mark(index, "string-array")
    add_array(file, "X", [len(labels) for _, labels in names.values()])


def add_groups(file: h5py.File) -> None:
    """Add the groups that every file has, and other programs may leave out if they are empty."""
    for group in GROUPS:
        if group not in file:
            _mark(file.create_group(group), "dict")


def add_array(group: h5py.Group, name: str, shape: Sequence[int]) -> h5py.Dataset:
    """Make an array of float32 in a group, in place of one of that name."""
    if name in group:
        del group[name]
    array = group.create_dataset(name, tuple(shape), np.float32)
    _mark(array, "array")
    return array


def _mark(node: h5py.HLObject, encoding: str) -> None:
    """Write the encoding of a group or an array."""
    node.attrs["encoding-type"] = encoding
    node.attrs["encoding-version"] = VERSIONS.get(encoding, VERSION)
