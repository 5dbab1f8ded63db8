"""Matrices in memory, with a row for each user and a column for each item: read, and filled in.

A matrix is an array, a data frame of pandas, polars or Arrow, or a DataArray of xarray with two
dimensions. NaN and missing cells are not rated. A filled matrix has the type, the labels and the
known cells of the matrix that was read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.bounds import cell_bound, is_bound, stand_in
from dsgmcmc.input.odd_columns import NOTHING
from dsgmcmc.input.roles import Heading, locate, parse_columns
from dsgmcmc.input.sources.annotated import is_annotated
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.input.values import TRUTH, Missing, are_truth
from dsgmcmc.tables.frames import Frame, as_frame, is_data_array, is_missing
from dsgmcmc.tables.usual import EMPTY, Columns, joined, shortened
from dsgmcmc.types import Array, Float64, Mask


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
    ignored : tuple of int
        Positions, in a data frame, of further columns that are no items.
    named_by : str
        Where the names of the rows come from, for messages.
    """

    names: Array | None
    labels: list[Any]
    values: Float64
    position: int | None
    named_by: str
    ignored: tuple[int, ...] = ()
    bounds: Float64 | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """Positions, in a data frame, of all columns that are no items."""
        if self.position is None:
            return self.ignored
        return (self.position, *self.ignored)


def read_matrix(
    X: Any, columns: str | Columns | None, missing: Missing, ignored: Sequence[str] = ()
) -> Matrix:
    """Read a matrix, given the column of names and the values that mean *not rated* (`BPMF`).

    Users are named by the column in `columns`, or that has a usual name, or by the first column if
    it has text, or else by the index. Raises InputError if the matrix has another form, or cells
    are not numbers.
    """
    X = as_frame(X)
    table = np.asarray(X)
    if missing.words or table.dtype.kind not in "iuf":
        table = np.array(X, object)
    if table.ndim != 2:
        raise InputError(f"expected a matrix of shape (users, items); found {table.shape}")
    labels = list(range(table.shape[1]))
    names = None
    position = None
    named_by = "numbered"
    if hasattr(X, "columns"):
        labels = _plain_labels(X.columns)
        names = _index_names(X)
        if names is not None:
            named_by = "named by the index"
        position = _position_of_names(table, labels, parse_columns(columns, ("user",)))
        if position is not None:
            named_by = f"named by {labels[position]}"
            names = _column_of_names(X, table, position)
            table = np.delete(table, position, axis=1)
            del labels[position]
    table, labels, others = _without_ignored(table, labels, ignored, position)
    bounds = None
    if table.dtype == object:
        table[are_words(table.flat, missing.words).reshape(table.shape)] = np.nan
        bounds = _take_bounds(table)
        values = _matrix_values(table, labels)
    else:
        values = table.astype(np.float64)
    if len(missing.codes):
        values[np.isin(values.astype(np.float32), missing.codes)] = np.nan
    if names is not None and missing.words:
        values[are_words(names, missing.words)] = np.nan
    if bounds is not None:
        bounds[:, np.isnan(values)] = np.nan
    return Matrix(names, labels, values, position, named_by, others, bounds)


def _without_ignored(
    table: Array, labels: list[Any], ignored: Sequence[str], position: int | None
) -> tuple[Array, list[Any], tuple[int, ...]]:
    """Return a table and its labels without ignored columns, and the positions of these in X.

    `position` is that of a column that was taken from X before. Raises InputError for a column that
    X does not have.
    """
    texts = [str(label) for label in labels]
    lacking = [name for name in ignored if name not in (*texts, NOTHING)]
    if lacking:
        raise InputError(f"ignore: there is no column {joined(lacking)} ({shortened(texts)})")
    at = [k for k, text in enumerate(texts) if text in ignored]
    others = tuple(k if position is None or k < position else k + 1 for k in at)
    kept = [label for k, label in enumerate(labels) if k not in at]
    return np.delete(table, at, axis=1), kept, others


def _plain_labels(labels: Any) -> list[Any]:
    """Return the labels of columns; those of several levels are joined, without constant levels."""
    plain: list[Any] = list(labels)
    if not plain or not all(isinstance(label, tuple) for label in plain):
        return plain
    levels = list(zip(*plain, strict=True))
    varying = [level for level in levels if len(set(level)) > 1]
    if len(varying) == 1:
        return list(varying[0])
    return [", ".join(map(str, label)) for label in zip(*(varying or levels), strict=True)]


def _matrix_values(table: Array, labels: Sequence[Any]) -> Float64:
    """Return the numbers in a table of objects, with NaN for missing ones."""
    missing = np.fromiter(map(is_missing, table.flat), bool).reshape(table.shape)
    table[missing] = np.nan
    _refuse_words(table, labels)
    columns = [
        read_numbers(column, f"a matrix has numbers alone, unlike its column {label}")
        for label, column in zip(labels, table.T, strict=True)
    ]
    return np.column_stack(columns)


def _refuse_words(table: Array, labels: Sequence[Any]) -> None:
    """Raise InputError if a word for true or false stands alone in columns of words.

    Words among numbers are refused as other texts are.
    """
    found = {}
    words = set[str]()
    for label, column in zip(labels, table.T, strict=True):
        texts = [str(value) for value in column.tolist() if not is_missing(value)]
        of_column = {text.lower() for text in texts}
        if column.dtype == object and texts and of_column <= TRUTH.keys():
            found[label] = texts[0]
            words |= of_column
    if not found or are_truth(words):
        return
    label, text = next(iter(found.items()))
    raise InputError(
        f"column {label} of the matrix has no word but {text!r}, which is not taken for true"
        " or false: write numbers, such as 1 and 0, or give missing=[WORD]"
    )


def _take_bounds(table: Array) -> Float64 | None:
    """Return the bounds of cells such as ``<0.1``, which become numbers between them.

    None if there are no such cells.
    """
    bounds = None
    for k, value in enumerate(table.flat):
        if not isinstance(value, str):
            continue
        found = cell_bound(value)
        if found is None:
            continue
        if bounds is None:
            bounds = np.full((2, table.size), np.nan)
        bounds[:, k] = found
    if bounds is None:
        return None
    bounds = bounds.reshape(2, *table.shape)
    is_bound = ~np.isnan(bounds[0])
    table[is_bound] = stand_in(bounds[0][is_bound], bounds[1][is_bound])
    return bounds


def _count_bounds(column: Array) -> int | None:
    """Return how many values of a column of objects are bounds.

    None if others are neither numbers, which may be written as text, nor missing.
    """
    number = 0
    for value in column.tolist():
        if is_missing(value) or isinstance(value, int | float | np.number):
            continue
        if not isinstance(value, str):
            return None
        if cell_bound(value) is not None:
            number += 1
        elif not is_number(value):
            return None
    return number


def are_cells(columns: Sequence[Array]) -> bool:
    """Whether columns have numbers alone, or numbers and texts of bounds."""
    others = [column for column in columns if column.dtype.kind not in "iufb"]
    bounds = 0
    for column in others:
        if column.dtype.kind not in "OU":
            return False
        number = _count_bounds(column.ravel())
        if number is None:
            return False
        bounds += number
    return bounds > 0 or not others


def has_holes(column: Array) -> bool:
    """Whether a value of a column is missing."""
    if column.dtype.kind in "iufb":
        return bool(np.isnan(column).any())
    return any(map(is_missing, column.flat))


def _index_names(frame: Any) -> Array | None:
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


def _position_of_names(table: Array, labels: Sequence[Any], columns: Columns) -> int | None:
    """Return the position of the column of a matrix that names its rows, or None."""
    heading = Heading("the data frame", [str(label) for label in labels], len(labels))
    positions = locate(heading, columns, ("user",), optional=("user",))
    if len(positions) > 1:
        raise InputError(
            "a matrix has one column of names; for names of several parts, give a data frame with a"
            " row for each rating"
        )
    if positions:
        return positions["user"]
    if table.dtype != object:
        return None
    texts = {value.lower() for value in table[:, 0] if isinstance(value, str)} - TRUTH.keys()
    if all(is_number(text) or is_bound(text) for text in texts):
        return None
    return 0


def _column_of_names(X: Any, table: Array, position: int) -> Array:
    """Return the column of a data frame that names its rows."""
    if table.dtype == object:
        return np.array(table[:, position].tolist())
    # as numbers of one type, large names would be rounded
    return np.asarray(X[X.columns[position]])


# ---------------------------------------------------------------------------------- cells


def are_words(values: Iterable[Any], words: Sequence[str]) -> Mask:
    """Return a mask of values that are words; missing ones are, if a word is for an empty field."""
    empty = not set(words).isdisjoint(EMPTY)
    return np.array(
        [empty if is_missing(value) else str(value).strip().lower() in words for value in values],
        bool,
    )


def read_numbers(column: Array, rule: str) -> Float64:
    """Convert ratings to float64: numbers, or words for true and false if there are no others."""
    if column.dtype.kind not in "OU":
        return _floats(column, rule)
    words = [None if is_missing(value) else str(value).lower() for value in column.tolist()]
    known = set(words) - {None}
    if not known or not known <= TRUTH.keys():
        return _floats(column, rule)
    return np.array([np.nan if word is None else TRUTH[word] for word in words])


def _floats(column: Array, rule: str) -> Float64:
    """Convert numbers, which may be written as text, to float64; an error begins with the rule."""
    with refusing(rule, TypeError, ValueError):
        if column.dtype.kind in "cmM":
            raise TypeError(f"found {column.dtype}")
        if column.dtype.kind in "OU":
            for row, value in enumerate(column):
                _refuse_other(row, value)
        return column.astype(np.float64)


def _refuse_other(row: int, value: Any) -> None:
    """Raise ValueError if a value, in a row from 0, is no number."""
    if isinstance(value, str):
        is_other = not is_number(value)
    elif isinstance(value, np.generic):  # dates and complex numbers of NumPy have __float__, too
        is_other = value.dtype.kind not in "iufb"
    else:
        is_other = not hasattr(value, "__float__") and not is_missing(value)
    if is_other:
        raise ValueError(f"row {row} has {str(value)[:60]!r} (the first is row 0)")


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
