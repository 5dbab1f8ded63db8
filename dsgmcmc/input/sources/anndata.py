"""Reads matrices in HDF5: AnnData's .h5ad files, and MATLAB's of version 7.3.

Formats: https://anndata.readthedocs.io/en/stable/fileformat-prose.html, and for files before
AnnData 0.7 https://anndata.readthedocs.io/en/0.6.22/. In MATLAB's files axes are reversed, and
sparse matrices are groups (``data``, ``ir``, ``jc``, and the number of rows in an attribute).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.sources.annotated import is_annotated_store
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_table,
    as_texts,
    count_from_1,
    refuse_cells,
    refuse_type,
    refuse_unstored,
    refuse_variable,
    select,
    table_of_columns,
    table_without_names,
)
from dsgmcmc.input.sources.limits import (
    annotated_names,
    find_limits,
    refuse_roles,
    without_limits,
)
from dsgmcmc.input.sources.unwritten import read_written, unwritten_cells, with_meaning
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.types import Array

#: Classes of MATLAB that are numbers.
NUMBERS = (
    *("double", "single", "logical"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
#: What else HDF5 files of this field hold: a name that the root has, and who reads it.
_OTHERS = {
    "mod": "is a MuData file: read it by mudata, and give one of its modalities",
    "row_attrs": "is a loom file: read it by loompy (anndata rounds it to float32)",
    "observation": "is a BIOM file: read it by biom-format, and give its to_dataframe()",
}


def is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5, which may begin with other bytes."""
    return bool(h5py.is_hdf5(path))


def is_annotated_file(path: Path) -> bool:
    """Whether a file, or a folder, is one of AnnData."""
    if path.is_dir():
        return is_annotated_store(path)
    if not path.is_file() or not is_hdf5(path):
        return False
    with refusing(f"{path} cannot be read", OSError), h5py.File(path, "r") as file:
        return "obs" in file and "var" in file


def read_hdf5(path: Path, choice: Reading, limit: int) -> Source | None:
    """Return the table of ratings, or of features, in an HDF5 file; None for netCDF.

    Raises InputError for HDF5 files of other programs.
    """
    errors = (OSError, KeyError, RuntimeError, TypeError, ValueError)
    with refusing(f"{path} cannot be read", *errors), h5py.File(path, "r") as file:
        reader = _reader_of(path, file)
        if reader is None:
            return None
        return reader(path, file, choice, limit)


def _reader_of(path: Path, file: Any) -> Callable[[Path, Any, Reading, int], Source] | None:
    """Return the function that reads a file; None for netCDF."""
    for name, advice in _OTHERS.items():
        if name in file:
            raise InputError(f"{path} {advice}")
    if isinstance(file.get("matrix"), h5py.Group) and "barcodes" in file["matrix"]:
        raise InputError(
            f"{path} is an HDF5 file of 10x: read it by scanpy.read_10x_h5, or give the folder with"
            " matrix.mtx.gz"
        )
    if "format" in file.attrs and "dsgmcmc" in str(file.attrs["format"]):
        raise InputError(f"{path} is a ratings file already: give it to dsgmcmc sample")
    if "obs" in file and "var" in file:
        return _read_anndata
    with path.open("rb") as raw:
        if raw.read(10) == b"MATLAB 7.3" or any(
            "MATLAB_class" in node.attrs for node in file.values()
        ):
            return _read_matlab
    return None


# ------------------------------------------------------------------------------------------ AnnData


def _read_anndata(path: Path, file: Any, choice: Reading, limit: int) -> Source:
    """Return X or a layer: users are observations, items are variables; or the features of one."""
    if choice.entity is not None:
        refuse_variable(path, choice)
        return table_of_columns(path, _annotations(file, _axis_of(choice.entity)))
    refuse_roles(path, choice.columns)
    layers = list(file.get("layers", ()))
    candidates = layers
    if "X" in file and file["X"].attrs.get("encoding-type") != "null":
        candidates = ["X", *layers]
    name = select(path, without_limits(candidates, choice.columns), choice, others=layers)
    node = _node_of(file, name)
    users = _names(file, "obs")
    items = _names(file, "var")
    what = "X"
    if name != "X":
        what = f"layer {name}"
    about = f"users are observations (obs), items are variables (var), ratings are {what}"
    values = _matrix(path, node, limit)
    known = annotated_names(
        (len(users), len(items)),
        layers={
            layer: partial(_limits_of, path, file["layers"][layer], limit)
            for layer in layers
            if layer != name
        },
        obs=_columns_of(file, "obs"),
        var=_columns_of(file, "var"),
    )
    limits = find_limits(path, choice.columns, (len(users), len(items)), known)
    if isinstance(node, h5py.Dataset) and values.dtype != object:
        unwritten = unwritten_cells(node)
        said = choice
        values, note, choice = with_meaning(f"{path}, {what}", values, unwritten, choice)
        if limits is not None and said.unstored != "zero":
            choice = said  # of cells without a number, too
        if note:
            about += f"; {note}"
    matrix = LabelledMatrix(users, items, values, about, limits)
    return as_table(path, matrix, choice._replace(columns={}), limit)


def _node_of(file: Any, name: str) -> Any:
    """Return the node of X or a layer."""
    if name in file.get("layers", ()):
        return file["layers"][name]
    return file["X"]


def _limits_of(path: Path, node: Any, limit: int) -> Any:
    """Return the limits in a layer, all of which must have been written."""
    if not isinstance(node, h5py.Dataset):
        return _matrix(path, node, limit)
    refuse_cells(path, node.shape, limit)
    return read_written(node)


def _columns_of(file: Any, axis: str) -> dict[str, Callable[[], Array]]:
    """Return what reads the columns of obs or var, by name."""
    node = file[axis]
    if isinstance(node, h5py.Dataset):  # before AnnData 0.7
        return {name: partial(_field, node, name) for name in node.dtype.names[1:]}
    names = set(node) - {node.attrs["_index"], "__categories"}
    return {name: partial(_column, node[name], node) for name in sorted(names)}


def copy_annotated(path: Path, target: Any, names: Mapping[str, tuple[str, list[str]]]) -> None:
    """Copy the content of an AnnData file to another one that is open for writing.

    Raises InputError if it has other `names`, by "obs" and "var", each with a heading; or if it is
    no AnnData file of today.
    """
    errors = (OSError, KeyError, RuntimeError, TypeError, ValueError)
    with refusing(f"{path} cannot be read", *errors), h5py.File(path, "r") as file:
        if file.attrs.get("encoding-type") != "anndata" or "layers" not in file:
            raise InputError(f"{path} exists and has no layers of AnnData: give another name")
        for axis, (_, expected) in names.items():
            if _names(file, axis).tolist() != expected:
                raise InputError(
                    f"{path} exists, and its {axis}_names are not those of the matrix of the run,"
                    " in this order: give another name"
                )
        for name, node in file.items():
            file.copy(node, target, name)
        for name, value in file.attrs.items():
            target.attrs[name] = value


def _axis_of(entity: str) -> str:
    if entity == "user":
        return "obs"
    return "var"


def _matrix(path: Path, node: Any, limit: int) -> Any:
    """Return an array of numbers or texts, or a sparse matrix as its attributes name it."""
    import scipy.sparse  # slow to import

    if isinstance(node, h5py.Dataset):
        if node.ndim == 2 and h5py.check_string_dtype(node.dtype) is not None:
            refuse_cells(path, node.shape, limit)
            return node.asstr()[()]
        refuse_type(path, node.dtype)
        refuse_cells(path, node.shape, limit)
        return node[()]
    words = str(node.attrs.get("encoding-type") or node.attrs.get("h5sparse_format"))
    shape = node.attrs.get("shape")
    if shape is None:
        shape = node.attrs["h5sparse_shape"]
    make = scipy.sparse.csr_matrix
    if words.startswith("csc"):
        make = scipy.sparse.csc_matrix
    parts = _compressed(path, node, ("indices", "indptr"), limit)
    return _checked(make(parts, shape=tuple(int(n) for n in shape)))


def _compressed(path: Path, node: Any, positions: Sequence[str], limit: int) -> tuple[Array, ...]:
    """Return the values of a sparse matrix, and its data sets of positions."""
    refuse_type(path, node["data"].dtype)
    refuse_cells(path, node["data"].shape, limit)
    found = [read_written(node[name]).astype(np.int64) for name in positions]
    return read_written(node["data"]), *found


def _checked(matrix: Any) -> Any:
    """Return a sparse matrix; raise ValueError if its positions are wrong."""
    matrix.check_format(full_check=True)
    return matrix


def _names(file: Any, axis: str) -> Array:
    """Return the names of observations or variables."""
    node = file[axis]
    if isinstance(node, h5py.Dataset):  # before AnnData 0.7
        return as_texts(_column(_field(node, node.dtype.names[0])))
    return as_texts(_column(node[node.attrs["_index"]]))


def _annotations(file: Any, axis: str) -> dict[str, Array]:
    """Return the columns of obs or var, names first."""
    node = file[axis]
    columns = {_entity_of(axis): _names(file, axis)}
    if isinstance(node, h5py.Dataset):
        for name in node.dtype.names[1:]:
            columns[name] = _column(_field(node, name))
            categories = file.get(f"uns/{name}_categories")
            if categories is not None:
                columns[name] = _of_codes(columns[name], _column(categories))
        return columns
    index = node.attrs["_index"]
    for name, column in node.items():
        if name not in (index, "__categories"):
            columns[name] = _column(column, node)
    return columns


def _entity_of(axis: str) -> str:
    if axis == "obs":
        return "user"
    return "item"


def _field(node: Any, name: str) -> Array:
    """Return a field of a compound data set."""
    return np.asarray(node[name])


def _column(node: Any, frame: Any = None) -> Array:
    """Return a column: numbers, with NaN where they are missing, or texts and None.

    `frame` has the categories of files before AnnData 0.8.
    """
    if isinstance(node, h5py.Group):
        if "codes" in node:
            return _of_codes(read_written(node["codes"]), _column(node["categories"]))
        values = _column(node["values"])
        missing = read_written(node["mask"])
        if values.dtype.kind in "OSU":
            values = values.astype(object)
            values[missing] = None
        else:
            values = values.astype(np.float64)
            values[missing] = np.nan
        return values
    if isinstance(node, h5py.Dataset) and h5py.check_string_dtype(node.dtype) is not None:
        values = node.asstr()[()]
    elif isinstance(node, h5py.Dataset):
        values = read_written(node)
    else:
        values = np.asarray(node)
    if "categories" in getattr(node, "attrs", ()):
        where = node.attrs["categories"]
        group = frame
        if not isinstance(where, str):  # a reference, from the root of the file
            group = frame.file
        return _of_codes(values, _column(group[where]))
    if values.dtype.kind in "SO":
        return np.array(
            [value.decode() if isinstance(value, bytes) else value for value in values], object
        )
    return values


def _of_codes(codes: Array, categories: Array) -> Array:
    """Return the categories of codes; -1 is a missing one."""
    found = np.array([None] * len(codes), object)
    known = codes >= 0
    found[known] = categories.astype(object)[codes[known]]
    return found


# ------------------------------------------------------------------------------------------- MATLAB


def _read_matlab(path: Path, file: Any, choice: Reading, limit: int) -> Source:
    """Return a matrix of a MATLAB file of version 7.3."""
    shapes = {}
    for name, node in file.items():
        if name.startswith("#") or not _is_matrix(node):
            continue
        shapes[name] = _shape(node)
    name = select_variable(path, shapes, choice)
    node = file[name]
    if "MATLAB_sparse" in node.attrs:
        return matlab_table(path, _sparse_of_matlab(path, node, limit), choice, limit)
    if "MATLAB_empty" in node.attrs:
        raise InputError(f"{path}: {name} is empty")
    refuse_type(path, node.dtype)
    refuse_cells(path, node.shape, limit)
    unwritten = unwritten_cells(node)
    values, note, choice = with_meaning(f"{path}, {name}", node[()], unwritten, choice)
    return replace(matlab_table(path, values.T, choice, limit), about=note)


def _is_matrix(node: Any) -> bool:
    """Whether a variable is a matrix of numbers, and no cell, struct, text or object."""
    name = node.attrs.get("MATLAB_class", b"")
    if isinstance(name, bytes):
        name = name.decode()
    return str(name) in NUMBERS and len(_shape(node)) == 2


def _shape(node: Any) -> tuple[int, ...]:
    """Return rows and columns of a variable, as MATLAB has them."""
    if "MATLAB_sparse" in node.attrs:
        return int(node.attrs["MATLAB_sparse"]), node["jc"].size - 1
    if isinstance(node, h5py.Group):
        return ()
    if "MATLAB_empty" in node.attrs:
        return 0, 0
    shape: tuple[int, ...] = node.shape[::-1]
    return shape


def _sparse_of_matlab(path: Path, node: Any, limit: int) -> Any:
    """Return a sparse matrix; one without entries has no row numbers."""
    import scipy.sparse  # slow to import

    shape = _shape(node)
    if "data" not in node:
        return scipy.sparse.csc_matrix(shape)
    parts = _compressed(path, node, ("ir", "jc"), limit)
    return _checked(scipy.sparse.csc_matrix(parts, shape=shape))


def select_variable(path: Path, shapes: Mapping[str, Sequence[int]], choice: Reading) -> str:
    """Return the variable of MATLAB that is read, given shapes of matrices; vectors are no default.

    Raises InputError as `select` does.
    """
    candidates = [name for name, shape in shapes.items() if min(shape) > 1]
    others = [name for name in shapes if name not in candidates]
    return select(path, candidates, choice, others=others)


def matlab_table(path: Path, values: Any, choice: Reading, limit: int) -> Source:
    """Return a matrix of MATLAB as a table: sparse as entries, full as columns without names."""
    if hasattr(values, "tocoo"):
        users, items = (count_from_1(n) for n in values.shape)
        about = "users are rows, items are columns, both numbered from 1"
        return as_table(path, LabelledMatrix(users, items, values, about), choice, limit)
    refuse_unstored(path, choice)
    return table_without_names(path, values)
