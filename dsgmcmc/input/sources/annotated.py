"""Objects of the sciences in memory: AnnData, also from its zarr stores, and datasets of xarray.

They are known by their attributes, so that their libraries need not be loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.formats import refuse_size
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_table,
    as_texts,
    cells_of_array,
    known_cells,
    refuse_filling,
    refuse_limit,
    refuse_variable,
    select,
    table_of_columns,
)
from dsgmcmc.input.sources.limits import (
    annotated_names,
    find_limits,
    refuse_roles,
    without_limits,
)
from dsgmcmc.input.sources.matrix import stored_cells
from dsgmcmc.parallel.machine import memory_for_data
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.frames import is_data_array, texts_of
from dsgmcmc.types import Array, Float64


def is_annotated(X: object) -> bool:
    """Whether this is an AnnData object."""
    return all(hasattr(X, name) for name in ("obs_names", "var_names", "layers"))


def is_dataset(X: object) -> bool:
    """Whether this is a Dataset of xarray."""
    return hasattr(X, "data_vars") and hasattr(X, "dims")


def is_labelled(X: object) -> bool:
    """Whether this is a matrix whose rows and columns have names, other than a data frame."""
    return is_data_array(X) or is_annotated(X) or is_dataset(X)


def refuse_modalities(X: Any) -> None:
    """Raise InputError for a MuData object, which has several matrices of its own."""
    if hasattr(X, "mod") and hasattr(X, "obsmap"):
        raise InputError(f"X has the modalities {', '.join(X.mod)}: give one of them, X['NAME']")


def data_array_of(X: Any, choice: Reading) -> Any:
    """Return the variable of a Dataset that is read; other objects are returned unchanged.

    Raises InputError if xarray made its zeros missing.
    """
    if is_dataset(X):
        variables = {str(name): variable for name, variable in X.data_vars.items()}
        candidates = [name for name, variable in variables.items() if len(variable.dims) == 2]
        X = variables[select("X", candidates, choice)]
    if is_data_array(X):
        _refuse_lost_zeros(X)
    return X


def _refuse_lost_zeros(X: Any) -> None:
    """Raise InputError if stored zeros are missing: 0 is zarr's fill value of whole numbers."""
    of_file = X.encoding
    stored = np.dtype(of_file.get("dtype") or float)
    if stored.kind in "iu" and of_file.get("_FillValue") == 0 and X.isnull().any():
        raise InputError(
            "xarray made the zeros of X missing, as 0 is the fill value of its file: open it with"
            " mask_and_scale=False, or give X.drop_encoding() if 0 means missing"
        )


def is_annotated_store(path: Path) -> bool:
    """Whether a folder is a zarr store of AnnData, of format 2 or 3."""
    for name, member in ((".zattrs", None), ("zarr.json", "attributes")):
        if (path / name).is_file():
            with refusing(f"{path / name} cannot be read", OSError, ValueError):
                found = json.loads((path / name).read_text("utf-8"))
            if member is not None:
                found = found.get(member, {})
            return bool(found.get("encoding-type") == "anndata")
    return False


def read_store(path: Path, choice: Reading, limit: int) -> Source:
    """Return what a file of AnnData has, from its zarr store: ratings, or features.

    Raises InputError if anndata is not installed.
    """
    refuse_size(path, sum(file.stat().st_size for file in path.rglob("*") if file.is_file()), limit)
    try:
        anndata = import_module("anndata")
    except ModuleNotFoundError as error:
        raise InputError(
            f"{path} is a zarr store of AnnData, which anndata reads: pip install anndata zarr"
        ) from error
    with refusing(f"{path} cannot be read", Exception):
        X = anndata.read_zarr(path)
    if choice.entity is None:
        matrix = annotated_matrix(X, choice, path)
        return as_table(path, matrix, choice._replace(columns={}), limit)
    refuse_variable(path, choice)
    return table_of_columns(path, _features_of(X, choice.entity))


def _features_of(X: Any, entity: str) -> dict[str, Array]:
    """Return the columns of obs or var, names first: numbers, or texts and None."""
    axis = "var"
    if entity == "user":
        axis = "obs"
    columns = {entity: as_texts(getattr(X, f"{axis}_names"))}
    for name, read in _columns_of(X, axis).items():
        values = read()
        if values.dtype == object:
            values = texts_of(values)
        columns[name] = values
    return columns


def annotated_matrix(
    X: Any, choice: Reading, where: object = "the AnnData object"
) -> LabelledMatrix:
    """Return X or a layer of an AnnData object: users are observations, items are variables.

    Raises InputError if there are several, and none is chosen, or as `find_limits` does.
    """
    refuse_roles(where, choice.columns)
    layers = [str(name) for name in X.layers if name is not None]  # AnnData 0.13 lists X as None
    candidates = layers
    if X.X is not None:
        candidates = ["X", *layers]
    name = select(where, without_limits(candidates, choice.columns), choice, others=layers)
    values = _matrix_of(X, name)
    shape = (len(X.obs_names), len(X.var_names))
    known = annotated_names(
        shape,
        layers={layer: partial(_matrix_of, X, layer) for layer in layers if layer != name},
        obs=_columns_of(X, "obs"),
        var=_columns_of(X, "var"),
    )
    limits = find_limits(where, choice.columns, shape, known)
    about = f"users are observations (obs), items are variables (var), ratings are {name}"
    return LabelledMatrix(as_texts(X.obs_names), as_texts(X.var_names), values, about, limits)


def _matrix_of(X: Any, name: str) -> Any:
    """Return X or a layer: a sparse matrix, or an array of numbers or objects."""
    if name in X.layers:
        values = X.layers[name]
    else:
        values = X.X
    if hasattr(values, "tocoo"):
        return values
    values = np.asarray(values)
    if values.dtype.kind in "UT":
        return values.astype(object)
    return values


def _columns_of(X: Any, axis: str) -> dict[str, Callable[[], Array]]:
    """Return what reads the columns of obs or var, by name."""
    frame = getattr(X, axis, None)
    names = [str(name) for name in getattr(frame, "columns", ())]
    return {name: partial(_column_of, frame, name) for name in names}


def _column_of(frame: Any, name: str) -> Array:
    """Return a column of numbers, with NaN where they are missing, or of something else."""
    column = frame[name]
    array = np.asarray(column)
    if array.dtype == object and getattr(column.dtype, "kind", "O") in "iuf":  # masked numbers
        array = column.to_numpy(np.float64, na_value=np.nan)
    return array


class MatrixCells(NamedTuple):
    """Cells of a matrix that are ratings.

    Attributes
    ----------
    shape : (int, int)
    row, col, values : (q,) array
    bounds : (2, q) float64 or None
        Lower and upper bounds of cells that are known only by bounds; NaN in others.
    users, items : (n,) and (J,) array, or None
        Names of the rows and columns; None if they are numbered.
    limits : dict of str to str
        Names of what has limits, by side.
    about : str
        What rows, columns and values are.
    """

    shape: tuple[int, int]
    row: Array
    col: Array
    values: Array
    bounds: Float64 | None = None
    users: Array | None = None
    items: Array | None = None
    limits: Mapping[str, str] = MappingProxyType({})
    about: str = ""

    def filled(self) -> Float64:
        """Return all cells, with NaN in those that are not known."""
        cells = np.full(self.shape, np.nan)
        cells[self.row, self.col] = self.values
        return cells

    def filled_bounds(self) -> Float64 | None:
        """Return the bounds of all cells, (2, n, J), with NaN in those that have none."""
        if self.bounds is None:
            return None
        bounds = np.full((2, *self.shape), np.nan)
        bounds[:, self.row, self.col] = self.bounds
        return bounds


def cells_of(X: Any, choice: Reading) -> MatrixCells:
    """Return the known cells of an AnnData object, or of a SciPy sparse matrix.

    Raises InputError if it cannot be read, or too little memory is left for its zeros.
    """
    limit = memory_for_data()
    if is_annotated(X):
        matrix = annotated_matrix(X, choice)
        cells = known_cells("the AnnData object", matrix, choice, limit)
        found = MatrixCells(
            matrix.values.shape, *cells, matrix.users, matrix.items, about=matrix.about
        )
        if matrix.limits is None:
            return found
        about = f"{matrix.about}; {matrix.limits.describe()}"
        return found._replace(limits=matrix.limits.names, about=about)
    refuse_limit("the sparse matrix", choice)
    if choice.unstored == "zero":
        refuse_filling("the sparse matrix", X.shape, limit)
        return MatrixCells(X.shape, *cells_of_array(X.toarray()))
    entries = stored_cells(X)
    row = entries.row.astype(np.int64)
    return MatrixCells(X.shape, row, entries.col.astype(np.int64), entries.data)
