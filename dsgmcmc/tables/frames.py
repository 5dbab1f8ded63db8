"""Tables in memory become data frames.

They are of Arrow, DuckDB or xarray, structured arrays, or what pandas has in an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from fractions import Fraction
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.tables.usual import find_column
from dsgmcmc.types import Array

#: Types of numbers in columns of objects.
_NUMBERS = (int, float, np.integer, np.floating)


class Frame:
    """A data frame: columns by label."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self.columns = list(arrays)

    def __getitem__(self, label: str) -> Array:
        return self._arrays[label]

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values()), ()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        columns = [np.asarray(column, object) for column in self._arrays.values()]
        return np.column_stack(columns).astype(dtype or object)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self), len(self.columns)


def collected(table: object) -> Any:
    """Return the rows of a LazyFrame of polars, and any other object unchanged."""
    if hasattr(table, "collect") and hasattr(table, "lazy") and not hasattr(table, "__len__"):
        return table.collect()
    return table


def as_frame(table: Any) -> Any:
    """Return a table of Arrow, DuckDB or xarray, or a lazy frame, as a data frame.

    So are structured arrays, dicts of columns, as `recommend` returns them, and objects of pandas
    whose index has the names (`_with_index`).
    Masked arrays become arrays with missing values. Others are returned unchanged.

    A single column, such as a Series of pandas or polars, is no table.

    Raises InputError if the library pyarrow is needed and not installed.
    """
    if hasattr(table, "tocoo"):
        return table  # of the sparse matrices, those of keys are Mappings
    table = collected(table)
    if is_data_array(table):
        return _frame_of_data_array(table)
    if getattr(getattr(table, "dtype", None), "names", None):
        return Frame({name: unmasked(table[name]) for name in table.dtype.names})
    if isinstance(table, Mapping) and table and all(map(_is_column, table.values())):
        return Frame({str(name): _column_of(column) for name, column in table.items()})
    table = _with_index(unmasked(table))
    is_table = any(hasattr(table, name) for name in ("columns", "column_names", "schema"))
    if not hasattr(table, "__arrow_c_stream__") or not is_table:
        return table
    is_frame = hasattr(table, "columns") and hasattr(table, "__array__")
    if is_frame and not _is_arrow(table):
        return table
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise InputError(
            f"a {type(table).__name__} is read by pyarrow, which is not installed: give a data"
            " frame, as to_pandas() or df() return it"
        ) from error
    arrow = table if _is_arrow(table) else pyarrow.table(table)
    names = [str(name) for name in arrow.column_names]
    return Frame({name: _as_array(arrow.column(k)) for k, name in enumerate(names)})


def _is_column(values: object) -> bool:
    """Whether a value of a dict is a column: an array or a list, and no name."""
    return isinstance(values, np.ndarray | list) and _column_of(values).ndim == 1


def _column_of(values: Any) -> Array:
    """Return a column as an array; as objects, numbers in a list stay numbers beside text."""
    if isinstance(values, np.ndarray):
        return np.asarray(unmasked(values))
    if all(isinstance(value, int | float) for value in values):
        return np.asarray(values)
    return np.array(values, object)


def _with_index(table: Any) -> Any:
    """Return a data frame of what pandas has in an index of several levels; others unchanged.

    Such an index is the table, names the ratings of a series, or has the names of users and items
    of a data frame. Without names of levels, the columns of a series are numbered.
    """
    if hasattr(table, "to_frame") and getattr(table, "nlevels", 1) > 1:
        return table.to_frame(index=False)
    index: Any = getattr(table, "index", None)
    if getattr(index, "nlevels", 1) == 1:
        return table
    if hasattr(table, "columns"):
        levels = [name for name in index.names if name is not None and name not in table.columns]
        if any(find_column(levels, role) is None for role in ("user", "item")):
            return table
        return table.reset_index(levels)
    frame = table.rename("rating" if table.name is None else table.name).reset_index()
    if all(name is None for name in index.names):
        frame.columns = range(frame.shape[1])
    return frame


def unmasked(array: object) -> Any:
    """Return a masked array with NaN, or None among texts, in place of what it masks."""
    if type(array) is np.ndarray or not isinstance(array, np.ndarray):
        return array  # NumPy imports its masked arrays when they are first named
    if not isinstance(array, np.ma.MaskedArray):
        return array
    if not np.ma.is_masked(array):
        return np.asarray(array.data)
    mask = np.ma.getmaskarray(array)
    if array.dtype.kind in "iufb":
        return np.where(mask, np.nan, array.data.astype(np.float64))
    values = array.data.astype(object)
    values[mask] = None
    return values


def is_data_array(X: object) -> bool:
    """Whether this is a DataArray of xarray."""
    return hasattr(X, "dims") and hasattr(X, "coords") and hasattr(X, "to_pandas")


def coordinate(X: Any, dimension: Any) -> Any:
    """Return the names along a dimension of a DataArray, (n,); numbers from 0 if it has none."""
    if dimension in X.coords:
        return np.asarray(X.coords[dimension].values)
    return np.arange(X.sizes[dimension])


def frame_of_cube(X: Any, value: str) -> Frame:
    """Return the known cells of a DataArray as a data frame with a column for each dimension."""
    values = np.asarray(X.values, np.float64)
    known = np.nonzero(~np.isnan(values))
    columns = {
        str(dimension): coordinate(X, dimension)[codes]
        for dimension, codes in zip(X.dims, known, strict=True)
    }
    return Frame({**columns, value: values[known]})


def is_cube(X: Any) -> bool:
    """Whether this is a DataArray of three dimensions."""
    return is_data_array(X) and len(X.dims) == 3


def _frame_of_data_array(X: Any) -> Any:
    """Return a DataArray of two dimensions as a data frame; the coordinates name rows and columns.

    Raises InputError if it has another number of dimensions.
    """
    if len(X.dims) != 2:
        raise InputError(f"expected a DataArray of two dimensions; found {X.dims}")
    frame = X.to_pandas()
    if X.dims[0] not in X.coords:
        return frame.rename_axis(index=None)
    return frame


def _is_arrow(table: object) -> bool:
    return hasattr(table, "column_names") and hasattr(table, "num_rows")


def _as_array(column: Any) -> Array:
    """Return a column of Arrow as an array: of objects with None, if values are missing."""
    if hasattr(column.type, "value_type") and hasattr(column.type, "index_type"):
        column = column.cast(column.type.value_type)  # categories
    if column.null_count:
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN or pandas.NA.

    NaN is not itself, and comparisons of pandas.NA are neither true nor false.
    """
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def plain_column(column: Array) -> Array:
    """Return a column as DuckDB reads it: of numbers, or of texts with None for missing values."""
    if column.dtype.kind == "S":
        column = np.char.decode(column)
    if column.dtype == object:
        types = set(map(type, column.tolist()))
        if bool not in types and all(issubclass(found, _NUMBERS) for found in types):
            column = _numbers(column, types)
    if column.dtype.kind in "iufb":
        return column
    return texts_of(column)


def texts_of(values: Array) -> Array:
    """Return values as texts, (n,) object, with None for missing ones."""
    return np.array([_text(value) for value in plain_values(values)], object)


def _text(value: object) -> str | None:
    if is_missing(value):
        return None
    if isinstance(value, Fraction):
        value = float(value)
    return str(value)


def _numbers(column: Array, types: Set[type]) -> Array:
    """Return a column of objects that are numbers as numbers; unchanged if int64 is too small."""
    if any(issubclass(found, float | np.floating) for found in types):
        return column.astype(np.float64)
    try:
        return column.astype(np.int64)
    except OverflowError:
        return column


def plain_values(column: Array) -> list[Any]:
    """List the values of a column: dates of NumPy as objects whose text is ISO; NaT becomes None.

    Dates of NumPy in nanoseconds would be listed as integers.
    """
    if column.dtype.kind != "M":
        listed: list[Any] = column.tolist()
        return listed
    if np.datetime_data(column.dtype)[0] in ("ns", "ps", "fs", "as"):
        column = column.astype("datetime64[us]")
    dates: list[Any] = column.tolist()
    return dates
