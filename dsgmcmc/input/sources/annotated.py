"""Objects of the sciences in memory: AnnData, and datasets of xarray.

They are known by their attributes, so that their libraries need not be loaded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_texts,
    cells_of_array,
    known_cells,
    refuse_filling,
    select,
)
from dsgmcmc.input.sources.matrix import stored_cells
from dsgmcmc.parallel.machine import memory_for_data
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.frames import is_data_array
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


def annotated_matrix(X: Any, choice: Reading) -> LabelledMatrix:
    """Return X or a layer of an AnnData object: users are observations, items are variables.

    Raises InputError if there are several, and none is chosen.
    """
    layers = [str(name) for name in X.layers if name is not None]  # AnnData 0.13 lists X as None
    candidates = layers
    if X.X is not None:
        candidates = ["X", *layers]
    name = select("the AnnData object", candidates, choice)
    if name in layers:
        values = X.layers[name]
    else:
        values = X.X
    if not hasattr(values, "tocoo"):
        values = np.asarray(values)
    about = f"users are observations (obs), items are variables (var), ratings are {name}"
    return LabelledMatrix(as_texts(X.obs_names), as_texts(X.var_names), values, about)


class MatrixCells(NamedTuple):
    """Cells of a matrix that are ratings.

    Attributes
    ----------
    shape : (int, int)
    row, col, values : (q,) array
    users, items : (n,) and (J,) array, or None
        Names of the rows and columns; None if they are numbered.
    about : str
        What rows, columns and values are.
    """

    shape: tuple[int, int]
    row: Array
    col: Array
    values: Array
    users: Array | None = None
    items: Array | None = None
    about: str = ""

    def filled(self) -> Float64:
        """Return all cells, with NaN in those that are not known."""
        cells = np.full(self.shape, np.nan)
        cells[self.row, self.col] = self.values
        return cells


def cells_of(X: Any, choice: Reading) -> MatrixCells:
    """Return the known cells of an AnnData object, or of a SciPy sparse matrix.

    Raises InputError if it cannot be read, or too little memory is left for its zeros.
    """
    limit = memory_for_data()
    if is_annotated(X):
        matrix = annotated_matrix(X, choice)
        row, col, values = known_cells("the AnnData object", matrix, choice, limit)
        shape = matrix.values.shape
        return MatrixCells(shape, row, col, values, matrix.users, matrix.items, matrix.about)
    if choice.unstored == "zero":
        refuse_filling("the sparse matrix", X.shape, limit)
        return MatrixCells(X.shape, *cells_of_array(X.toarray()))
    entries = stored_cells(X)
    row = entries.row.astype(np.int64)
    return MatrixCells(X.shape, row, entries.col.astype(np.int64), entries.data)
