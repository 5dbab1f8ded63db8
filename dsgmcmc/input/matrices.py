"""Matrices in memory, with a row for each user and a column for each item: read, and filled in.

A matrix is an array, a data frame of pandas, polars or Arrow, or a DataArray of xarray with two
dimensions. NaN and missing cells are not rated. A filled matrix has the type, the labels and the
known cells of the matrix that was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.roles import Heading, locate
from dsgmcmc.input.sources.annotated import is_annotated
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.input.sources.marks import mark_of, may_be_number
from dsgmcmc.input.sources.numbers import are_codes, cell_bound, missing_words, numbers_of
from dsgmcmc.input.wide import (
    CellReader,
    are_names,
    counts_cells,
    ignored_columns,
    refuse_names,
)
from dsgmcmc.ratings.names import array_of
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.frames import Frame, as_frame, is_data_array, is_missing, texts_of
from dsgmcmc.types import Array, Float64

_SAMPLE = 50  # rows that show whether decimals follow a comma
_MATRIX = 5  # columns of numbers that are no table with a row for each rating


class Matrix(NamedTuple):
    """A matrix that was read.

    Attributes
    ----------
    names : (n,) array or None
        Names of the rows; None if the matrix has none, so that they are numbers.
    labels : list
        Labels of the J columns; numbers if the matrix has none.
    values : (n, J) float64
        NaN where a cell is not rated.
    bounds : (2, n, J) float64 or None
        Lower and upper bounds of cells that are known only by bounds, infinite on an open side; NaN
        in others. None if there are no bounds. `values` are between them.
    position : int or None
        Position, in a data frame, of the column with the names of rows.
    others : tuple of int
        Positions, in a data frame, of all columns that are no items.
    named_by : str
        Where the names of the rows come from, for messages.
    mark : str
        The mark before decimals in texts; "" for a point.
    """

    names: Array | None
    labels: list[Any]
    values: Float64
    position: int | None
    named_by: str
    others: tuple[int, ...] = ()
    bounds: Float64 | None = None
    mark: str = ""


def read_matrix(X: Any, form: Reading) -> Matrix:
    """Read a matrix as `form` says.

    Users are named by the column that it names, or that has a usual name, or by the index if it has
    labels, or by the first column if it has names, or else by the numbers of the index. Raises
    InputError if the matrix has another form, or cells are not numbers.
    """
    X = as_frame(X)
    table = np.asarray(X)
    if table.dtype.kind not in "iuf":
        table = np.array(X, object)
    if table.ndim != 2:
        raise InputError(f"expected a matrix of shape (users, items); found {table.shape}")
    labels = list(range(table.shape[1]))
    names = None
    position = None
    named_by = "numbered"
    where = "the matrix"
    if hasattr(X, "columns"):
        where = "the data frame"
        labels = _plain_labels(X.columns)
        names = _index_names(X)
        if names is not None:
            named_by = "named by the index"
    heading = Heading(where, [str(label) for label in labels], len(labels))
    others = list(ignored_columns(heading, form.ignore).values())
    if hasattr(X, "columns"):
        position = _position_of_names(X, table, heading, form)
        if position is not None:
            named_by = f"named by {labels[position]}"
            names = _column_of_names(X, table, position)
            others.append(position)
    items = [k for k in range(len(labels)) if k not in others]
    if not items:
        raise InputError(f"{where} has no column of an item")
    labels = [labels[k] for k in items]
    users = np.arange(len(table)) if names is None else names
    mark = mark_of(form.decimal, filter(_is_text, table[:_SAMPLE].flat))
    source = replace(MemoryTable.of(Path("the matrix"), {}), first_row=0, mark=mark)
    reader = CellReader(
        source, texts_of(array_of(labels)), missing_words(form.missing), columns=items
    )
    cells = reader.read_all(table, texts_of(users))
    is_code = are_codes(cells.values, form.missing)
    cells.values[is_code] = np.nan
    if cells.bounds is not None:
        cells.bounds[:, is_code] = np.nan
    return Matrix(
        names,
        labels,
        cells.values,
        position,
        named_by,
        others=tuple(others),
        bounds=cells.bounds,
        mark=mark,
    )


def _is_text(cell: object) -> bool:
    """Whether a cell is a text, which may have a number."""
    return isinstance(cell, str)


def refuse_first_column(X: Any, matrix: Matrix) -> None:
    """Raise InputError if a matrix has no names, and its first column may have names or counts."""
    if matrix.names is not None:
        return
    if counts_cells(matrix.values):
        raise InputError("the first column has the number of ratings of each row: leave it out")
    what = "the first column"
    advice = 'give a data frame and BPMF(columns="user=NAME")'
    if hasattr(as_frame(X), "columns"):
        what = f"column {matrix.labels[0]}"
        advice = f'BPMF(columns="user={matrix.labels[0]}")'
    refuse_names(matrix.values, what, advice)


def _plain_labels(labels: Any) -> list[Any]:
    """Return the labels of columns; those of several levels are joined, without constant levels.

    Floats become texts, unless all are whole numbers.
    """
    plain: list[Any] = list(labels)
    if any(isinstance(label, float) and label % 1 for label in plain):
        return [str(label) for label in plain]
    if not plain or not all(isinstance(label, tuple) for label in plain):
        return plain
    levels = list(zip(*plain, strict=True))
    varying = [level for level in levels if len(set(level)) > 1]
    if len(varying) == 1:
        return list(varying[0])
    return [", ".join(map(str, label)) for label in zip(*(varying or levels), strict=True)]


def count_cells(columns: Sequence[Array]) -> Counter[str] | None:
    """Count cells of columns that are written as text: "number" and "bound"; None if some are none.

    Others must be numbers, of any type, or missing.
    """
    counts: Counter[str] = Counter()
    for column in columns:
        if column.dtype.kind in "iufb":
            continue
        for value in column.ravel().tolist():
            if isinstance(value, str) and cell_bound(value) is not None:
                counts["bound"] += 1
            elif isinstance(value, str) and may_be_number(value):
                counts["number"] += 1
            elif not (is_missing(value) or isinstance(value, Real | Decimal)):
                return None
    return counts


def are_cells(columns: Sequence[Array]) -> bool:
    """Whether columns have numbers alone, or numbers and texts of bounds.

    Texts may be names, and a few columns of objects those of a table with a row for each rating.
    """
    counts = count_cells(columns)
    if counts is None or counts["bound"]:
        return counts is not None
    has_objects = any(column.dtype.kind not in "iufb" for column in columns)
    width = sum(column.shape[-1] if column.ndim > 1 else 1 for column in columns)
    return not counts["number"] and (width >= _MATRIX or not has_objects)


def has_holes(column: Array) -> bool:
    """Whether a value of a column is missing."""
    if column.dtype.kind in "iufb":
        return bool(np.isnan(column).any())
    return any(map(is_missing, column.flat))


def _index_names(frame: object) -> Array | None:
    """Return the names of rows in the index of a data frame; None if it has no labels.

    The numbers 0, 1, ... without a name are what a data frame has by itself; they are positions.
    """
    index = getattr(frame, "index", None)
    if index is None:
        return None
    names = np.asarray(index)
    is_unnamed = getattr(index, "name", None) is None and names.dtype.kind in "iu"
    if is_unnamed and np.array_equal(names, np.arange(len(names))):
        return None
    if getattr(index, "nlevels", 1) > 1:
        # tuples would be names of several parts, which rows of a matrix do not have
        return np.array([str(name) for name in names], object)
    return names


def _has_labels(frame: object) -> bool:
    """Whether the index of a data frame has names: texts, or anything below a name of its own."""
    index = getattr(frame, "index", None)
    if index is None:
        return False
    return getattr(index, "name", None) is not None or np.asarray(index).dtype.kind not in "iu"


def _position_of_names(X: Any, table: Array, heading: Heading, form: Reading) -> int | None:
    """Return the position of the column of a data frame that names its rows, or None."""
    positions = locate(heading, form.columns, ("user",), optional=("user",))
    if len(positions) > 1:
        raise InputError(
            "a matrix has one column of names; for names of several parts, give a data frame with a"
            " row for each rating"
        )
    if positions:
        return positions["user"]
    if table.dtype != object or not table.size or _has_labels(X):
        return None
    first = texts_of(table[:, 0])
    mark = mark_of(form.decimal, filter(_is_text, first))
    if are_names(numbers_of(first, form.missing, mark)):
        return 0
    return None


def _column_of_names(X: Any, table: Array, position: int) -> Array:
    """Return the column of a data frame that names its rows."""
    if table.dtype == object:
        column = table[:, position]
        return column if has_holes(column) else np.array(column.tolist())
    # as numbers of one type, large names would be rounded
    return np.asarray(X[X.columns[position]])


# ---------------------------------------------------------------------------------- filled matrices


def fill_in(X: Any, others: Container[int], values: Float64) -> Any:
    """Return a matrix like `X` with other values.

    Parameters
    ----------
    others : container of int
        Positions, in a data frame, of columns that are no items, which stay.
    values : (n, J) float64
        The values. Columns with the values of X keep their type.
    """
    if is_annotated(X):
        pandas = import_module("pandas")
        return pandas.DataFrame(values, index=X.obs_names, columns=X.var_names)
    if is_data_array(X):
        return X.copy(data=values.astype(_float_type(X.dtype)))
    frame = as_frame(X)
    if not hasattr(frame, "columns"):
        if isinstance(X, np.ndarray):
            return values.astype(_float_type(X.dtype), copy=False)
        return values
    filled = iter(values.T)
    columns = []
    for k, label in enumerate(frame.columns):
        column = frame.iloc[:, k] if hasattr(frame, "iloc") else frame[label]
        if k not in others:
            column = _filled_column(column, next(filled))
        columns.append(column)
    if isinstance(X, Mapping):
        return dict(zip(frame.columns, columns, strict=True))
    if isinstance(X, np.ndarray):  # a structured one
        types = [column.dtype for column in columns]
        return np.rec.fromarrays(columns, dtype=list(zip(frame.columns, types, strict=True)))
    return _frame_of(frame, columns)


def _filled_column(column: Any, values: Float64) -> Any:
    """Return the values of a column; the column itself, if it has these values."""
    array = np.asarray(column)
    if array.dtype.kind in "iufb" and np.array_equal(array, values):
        return column
    return values.astype(_float_type(array.dtype))


def _float_type(dtype: Any) -> Any:
    """Return the type of a filled column: that of a column of floats, else float64."""
    if np.dtype(dtype).kind == "f":
        return dtype
    return np.float64


def _frame_of(frame: Any, columns: list[Any]) -> Any:
    """Return a data frame of the library of `frame`, with its labels."""
    labels = list(frame.columns)
    if isinstance(frame, Frame):
        return import_module("pyarrow").table(dict(zip(labels, columns, strict=True)))
    library = import_module(type(frame).__module__.partition(".")[0])
    if not hasattr(frame, "iloc"):
        return library.DataFrame(dict(zip(labels, columns, strict=True)))
    filled = library.DataFrame(dict(enumerate(columns)), index=frame.index)
    filled.columns = frame.columns
    return filled
