"""Checks of attributes and cells of a ratings file, which may come from an untrusted source."""

from __future__ import annotations

import json
from typing import Any

import h5py
import numpy as np

from dsgmcmc.ratings.format import COLUMNS, GROUPED_BY, NAMED, READING, STORED_TYPES
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.types import Float32, Int32, Int64


def read_attribute(attributes: h5py.AttributeManager, name: str, expected: type) -> Any:
    """Read an attribute that must be a scalar of a type; text has a fixed length and is UTF-8.

    Raises ValueError if the attribute is missing, or of another type.
    """
    if name not in attributes:
        raise ValueError(f"it has no attribute {name!r}")
    attribute = attributes.get_id(name)
    if attribute.shape != () or not np.issubdtype(attribute.dtype, STORED_TYPES[expected]):
        raise ValueError(f"attribute {name!r} is not one {expected.__name__}")
    value = attributes[name]
    if expected is str:
        return value.decode()
    return expected(value)


def find_bad_cells(
    indptr: Int64, indices: Int32, values: Float32, *, n_cols: int, may_recur: bool
) -> str | None:
    """Return a description of the first fault in a slab, or None.

    `indptr` starts at 0; `may_recur` allows equal indices in a row.
    """
    if len(indices) == 0:
        return None
    if int(indices.min()) < 0 or int(indices.max()) >= n_cols:
        return f"indices outside 0..{n_cols - 1}"
    follows: np.ufunc = np.greater
    if may_recur:
        follows = np.greater_equal
    ascends = np.ones(len(indices) + 1, bool)  # the last one is for empty rows at the end
    follows(indices[1:], indices[:-1], out=ascends[1:-1])
    ascends[indptr] = True  # the first index of a row may have any value
    if not ascends.all():
        return "indices that do not ascend in their row"
    if not np.isfinite(values).all():
        return "values that are not finite"
    return None


def read_columns(attributes: h5py.AttributeManager) -> dict[str, str]:
    """Return columns by role (`NAMED`) from their attribute; none if a file does not have it.

    Raises ValueError if the attribute has something else.
    """
    text = read_optional(attributes, COLUMNS, str)
    if text is None:
        return {}
    columns = json.loads(text)
    are_texts = isinstance(columns, dict) and all(
        isinstance(column, str) for column in columns.values()
    )
    if not are_texts or not columns.keys() <= set(NAMED):
        raise ValueError(f"its columns are {text[:80]!r}")
    return dict(columns)


def read_optional(attributes: h5py.AttributeManager, name: str, expected: type) -> Any:
    """Return an attribute as `read_attribute` does; None if a file does not have it."""
    if name not in attributes:
        return None
    return read_attribute(attributes, name, expected)


def read_grouped_by(attributes: h5py.AttributeManager) -> tuple[str, ...]:
    """Return the columns of groups from their attribute; none if a file does not have it.

    Raises ValueError if the attribute has something else.
    """
    text = read_optional(attributes, GROUPED_BY, str)
    if text is None:
        return ()
    columns = json.loads(text)
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise ValueError(f"its groups are by {text[:80]!r}")
    return tuple(columns)


def read_reading(attributes: h5py.AttributeManager) -> Reading:
    """Return what users have said of the input, from its attribute; nothing if a file has none.

    Raises ValueError if the attribute has something else.
    """
    text = read_optional(attributes, READING, str)
    if text is None:
        return Reading()
    stored = json.loads(text)
    if not isinstance(stored, dict):
        raise ValueError("it does not say how it was read")
    return Reading.parse(stored)
