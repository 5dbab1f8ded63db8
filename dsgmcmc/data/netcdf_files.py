"""Reads variables of two dimensions of netCDF files, by xarray.

What is missing follows the conventions [NUG, appendix A]: ``_FillValue``, ``missing_value``, the
valid range, and the default fill value of a variable that has no ``_FillValue``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.data.columns import Columns, find_column, joined
from dsgmcmc.data.labelled import (
    Choice,
    LabelledMatrix,
    as_table,
    as_texts,
    library,
    refuse_cells,
    select,
)
from dsgmcmc.data.tables import TableFile
from dsgmcmc.data.unwritten import unwritten_in, with_meaning
from dsgmcmc.errors import InputError, refusing
from dsgmcmc.settings import named
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


def read_netcdf(path: Path, choice: Choice, limit: int, *, classic: bool) -> TableFile:
    """Return a variable; its dimensions of users and items are named by the user, or usual."""
    xarray = library("xarray", path)
    engine = "scipy"
    if not classic:
        library("h5netcdf", path)
        engine = "h5netcdf"
    # xarray's backends raise errors of many types
    with refusing(f"{path} cannot be read", Exception):
        data = xarray.open_dataset(path, engine=engine, mask_and_scale=False, decode_times=False)
    with data:
        variables = {str(name): variable for name, variable in data.data_vars.items()}
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
        name = select(path, candidates, choice)
        variable = variables[name]
        user, item = _roles(path, name, [str(dim) for dim in variable.dims], choice.columns)
        refuse_cells(path, variable.shape, limit)
        with refusing(f"{path} cannot be read", Exception):
            values = np.asarray(variable.transpose(user, item).values)
        values = unpack(f"{path}, {name}", values, {**variable.attrs, **variable.encoding})
    with refusing(f"{path} cannot be read", Exception):
        drop = list(variables)
        with xarray.open_dataset(path, engine=engine, drop_variables=drop) as axes:
            users, items = (
                _names(axes, dim, n) for dim, n in zip((user, item), values.shape, strict=True)
            )
    unwritten = None
    if not classic:
        unwritten = _unwritten(path, name, variable.dims == (user, item))
    values, note, choice = with_meaning(f"{path}, {name}", values, unwritten, choice)
    about = f"users are {user}, items are {item}, ratings are {name}"
    if note:
        about += f"; {note}"
    matrix = LabelledMatrix(users, items, values, about)
    return as_table(path, matrix, choice._replace(columns={}), limit)


def _unwritten(path: Path, name: str, in_order: bool) -> Mask | None:
    """Return the cells of a variable that nobody wrote; its axes are swapped if not `in_order`."""
    with refusing(f"{path} cannot be read", Exception):
        unwritten = unwritten_in(path, name)
    if unwritten is None or in_order:
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
