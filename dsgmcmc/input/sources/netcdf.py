"""Reads variables of two dimensions of netCDF files, by xarray.

What is missing follows the conventions [NUG, appendix A]: ``_FillValue``, ``missing_value``, the
valid range, and the default fill value of a variable that has no ``_FillValue``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_table,
    as_texts,
    library,
    refuse_cells,
    select,
)
from dsgmcmc.input.sources.unwritten import unwritten_in, with_meaning
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import Columns, find_column, joined
from dsgmcmc.types import Array, Float64, Mask

#: What netCDF's libraries write where nothing was written, by type.
_FILL = {
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
}
_FILL_OF_BYTES = {"i1": -127, "u1": 255}  # which may as well be values
_NA_OF_R = -2147483648  # ncdf4 writes R's NA so


class Variable(NamedTuple):
    """A variable of two dimensions.

    Attributes
    ----------
    name, user, item : str
        Its name, and its dimensions of users and items.
    values : (n, m) float64
        Its values by user and item; NaN where they are missing.
    is_transposed : bool
        Whether the file has a row for each item.
    """

    name: str
    user: str
    item: str
    values: Float64
    is_transposed: bool


def read_netcdf(path: Path, choice: Reading, limit: int, *, classic: bool) -> Source:
    """Return a variable; its dimensions of users and items are named by the user, or usual."""
    open_dataset = _opener(path, classic=classic)
    # xarray's backends raise errors of many types
    with refusing(f"{path} cannot be read", Exception):
        data = open_dataset(mask_and_scale=False, decode_times=False)
    with data:
        variables = {str(name): variable for name, variable in data.data_vars.items()}
        variable = _read_variable(path, variables, choice, limit)
    with (
        refusing(f"{path} cannot be read", Exception),
        open_dataset(drop_variables=list(variables)) as axes,
    ):
        users = _names(axes, variable.user, variable.values.shape[0])
        items = _names(axes, variable.item, variable.values.shape[1])
    unwritten = None
    if not classic:
        unwritten = _unwritten(path, variable)
    values, note, choice = with_meaning(
        f"{path}, {variable.name}", variable.values, unwritten, choice
    )
    about = f"users are {variable.user}, items are {variable.item}, ratings are {variable.name}"
    if note:
        about += f"; {note}"
    matrix = LabelledMatrix(users, items, values, about)
    return as_table(path, matrix, choice._replace(columns={}), limit)


def _opener(path: Path, *, classic: bool) -> Callable[..., Any]:
    """Return what opens a file by xarray; raise InputError if a library is not installed."""
    xarray = library("xarray", path)
    engine = "scipy"
    if not classic:
        library("h5netcdf", path)
        engine = "h5netcdf"
    return partial(xarray.open_dataset, path, engine=engine)


def _read_variable(
    path: Path, variables: Mapping[str, Any], choice: Reading, limit: int
) -> Variable:
    """Read the variable that the user has chosen, or the only one of two dimensions."""
    name = _select(path, variables, choice)
    variable = variables[name]
    user, item = _roles(path, name, [str(dim) for dim in variable.dims], choice.columns)
    refuse_cells(path, variable.shape, limit)
    with refusing(f"{path} cannot be read", Exception):
        stored = np.asarray(variable.transpose(user, item).values)
    return Variable(
        name=name,
        user=user,
        item=item,
        values=unpack(f"{path}, {name}", stored, {**variable.attrs, **variable.encoding}),
        is_transposed=variable.dims != (user, item),
    )


def _select(path: Path, variables: Mapping[str, Any], choice: Reading) -> str:
    """Return the name of the variable that is read.

    Raises InputError if there are none of two dimensions, or several and no choice.
    """
    candidates = [
        name
        for name, variable in variables.items()
        if len(variable.dims) == 2 and variable.dtype.kind in "fiu"
    ]
    if not candidates and choice.variable is None:
        shapes = [f"{name}{variable.dims}" for name, variable in variables.items()]
        raise InputError(
            f"{path} has no variable of two dimensions (it has {', '.join(shapes) or 'none'}):"
            " select one by xarray, and give the DataArray to BPMF"
        )
    return select(path, candidates, choice)


def _unwritten(path: Path, variable: Variable) -> Mask | None:
    """Return the cells of a variable that nobody wrote, by user and item; None without any."""
    with refusing(f"{path} cannot be read", Exception):
        unwritten = unwritten_in(path, variable.name)
    if unwritten is None or not variable.is_transposed:
        return unwritten
    return unwritten.T


def _names(data: Any, dim: str, n: int) -> Array:
    """Return the coordinates of a dimension as texts; its positions from 0 without coordinates."""
    if dim not in data.coords:
        return as_texts(range(n))
    values = data[dim].values
    if values.dtype.kind == "S":
        return np.array([value.decode() for value in values.tolist()], object)
    return as_texts(data.indexes[dim].astype(str))


def _roles(path: Path, name: str, dims: list[str], columns: Columns) -> tuple[str, str]:
    """Return the dimensions of users and items.

    Raises InputError if neither the user nor usual names tell them apart.
    """
    advice = f"give {named('columns')} user={dims[0]} or {named('columns')} user={dims[1]}"
    chosen = {role: str(dim) for role, dim in columns.items()}
    unknown = [dim for dim in chosen.values() if dim not in dims]
    if unknown or not set(chosen) <= {"user", "item"}:
        raise InputError(f"{path}: {name} has the dimensions {joined(dims)}: {advice}")
    for role in ("user", "item"):
        usual = [dim for dim in dims if find_column([dim], role) is not None]
        if len(usual) == 1 and not chosen:
            chosen[role] = usual[0]
    if not chosen:
        raise InputError(
            f"{path}: {name} has the dimensions {joined(dims)}; which are the users, and which the"
            f" items? {advice}"
        )
    user = chosen.get("user")
    if user is None:
        user = dims[1 - dims.index(chosen["item"])]
    item = dims[1 - dims.index(user)]
    if chosen.get("item", item) != item:
        raise InputError(f"{path}: users and items are in one dimension, {item}: {advice}")
    return user, item


def unpack(where: str, values: Array, attributes: Any) -> Float64:
    """Return the numbers that a variable means, with NaN where they are missing.

    Raises InputError if bytes may be missing or not.
    """
    if attributes.get("_Unsigned") == "true" and values.dtype.kind == "i":
        values = values.view(values.dtype.str.replace("i", "u"))
    missing = _is_missing(where, values, attributes)
    numbers = values.astype(np.float64)
    numbers[missing] = np.nan
    factor = float(np.ravel(attributes.get("scale_factor", 1))[0])
    offset = float(np.ravel(attributes.get("add_offset", 0))[0])
    return numbers * factor + offset


def _is_missing(where: str, values: Array, attributes: Any) -> Mask:
    """Return a mask of values that are missing."""
    missing = np.zeros(values.shape, bool)
    if values.dtype.kind == "f":
        missing |= np.isnan(values)
    for name in ("_FillValue", "missing_value"):
        for code in np.atleast_1d(attributes.get(name, [])).tolist():
            missing |= values == _as_stored(code, values.dtype)
    if "_FillValue" not in attributes:
        missing |= _is_default_fill(where, values, missing)
    low, high = np.atleast_1d(attributes.get("valid_range", [None, None])).tolist()
    low = attributes.get("valid_min", low)
    high = attributes.get("valid_max", high)
    if low is not None:
        missing |= values < _as_stored(np.ravel(low)[0], values.dtype)
    if high is not None:
        missing |= values > _as_stored(np.ravel(high)[0], values.dtype)
    return missing


def _as_stored(code: Any, dtype: Any) -> Any:
    """Return a code as the variable stores it: rounded to its type; a text may be a number."""
    if dtype.kind != "f":
        return float(code)
    with np.errstate(over="ignore"):
        return np.asarray(float(code)).astype(dtype)


def _is_default_fill(where: str, values: Array, known: Mask) -> Mask:
    """Return a mask of values that libraries write where nothing was written."""
    kind = values.dtype.str[1:]
    if kind in _FILL_OF_BYTES:
        code = _FILL_OF_BYTES[kind]
        if np.any((values == code) & ~known):
            raise InputError(
                f"{where} has bytes of {code}, which some readers take for missing and others for"
                " values: give the variable an attribute _FillValue"
            )
        return np.zeros(values.shape, bool)
    found: Mask = np.zeros(values.shape, bool)
    if kind in _FILL:
        found = values == np.asarray(_FILL[kind]).astype(values.dtype)
    if kind == "i4":
        found = found | (values == _NA_OF_R)
    return found
