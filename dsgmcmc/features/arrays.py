"""Reads features of users or items from data frames, arrays and matrices in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.features.described import Description, described_by_names, is_of_names
from dsgmcmc.features.encoding import Kind
from dsgmcmc.input.arrays import name_column, typed_names
from dsgmcmc.input.roles import expand_parts, parse_columns, refuse_repeated
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.tables.frames import as_frame, is_missing, plain_values, unmasked
from dsgmcmc.tables.usual import Columns, find_column, shortened
from dsgmcmc.types import Array

_LISTS = (list, tuple, np.ndarray)  # types of a list in a cell


def read_features(
    features: Any,
    entity: str,
    separator: str = "|",
    *,
    columns: str | Columns | None = None,
    parts: Sequence[str] = (),
) -> Description:
    """Make a description of users or items from features in any form.

    `features` may be the word ``names``; the path of a file for ``prepare --user-features``; a
    SciPy sparse matrix, whose row numbers are the names; names and a matrix; a data frame
    (`_feature_columns`); or an array (n, 1 + F), names first. `entity` is "user" or "item";
    `separator` joins the values of a list; `columns` are the columns of the ratings, as in `BPMF`;
    `parts` are the columns of the names, if these have several parts. Raises InputError if features
    have another form.
    """
    import scipy.sparse  # slow to import

    features = as_frame(features)
    if is_of_names(features):
        return described_by_names(entity)
    own = parts or _columns_of_names(features, entity, columns)
    label = own[0] if len(own) == 1 else ""
    if isinstance(features, str | os.PathLike):
        return Description(Path(features), label=label)
    if scipy.sparse.issparse(features):
        return Description(features, label=label)
    if isinstance(features, tuple) and len(features) == 2 and scipy.sparse.issparse(features[1]):
        names, matrix = features
        return Description(matrix, label=label, names=typed_names(np.asarray(names), entity))
    described = _feature_columns(features, entity, own=own[0] if own else "")
    further_parts = {part: described.columns.pop(part) for part in own[1:]}
    kinds: dict[str, Kind] = {}
    lists: dict[str, Kind] = {}
    texts = {described.label: name_column(described.names, entity)}
    for part, column in further_parts.items():
        texts[part] = name_column(column, entity)
    for name, column in described.columns.items():
        texts[name] = _texts(column, separator)
        filled = [text for text in texts[name] if text is not None]
        if any(isinstance(value, _LISTS) for value in column.tolist()):
            lists[name] = "list"
        elif column.dtype.kind not in "iufb" and all(map(is_number, filled)):
            kinds[name] = "category"  # numbers written as text are codes
    table = MemoryTable.of(Path(f"{entity}_features"), texts)
    return Description(
        table,
        kinds,
        separator,
        described.label,
        known=lists,
        parts=tuple(own) if further_parts else (),
    )


def _columns_of_names(features: Any, entity: str, columns: str | Columns | None) -> tuple[str, ...]:
    """Return the columns of names, one a part; none if `columns` does not have the entity.

    Raises InputError if a data frame lacks a part.
    """
    own = parse_columns(columns).get(entity, ())
    labels = [str(label) for label in getattr(features, "columns", ())]
    if isinstance(own, str):
        own = tuple(expand_parts({entity: own}, labels).values())
    if len(own) > 1 and labels and not set(own) <= set(labels):
        raise InputError(
            f"{entity}_features has the columns {shortened(labels)}: names of {entity}s are in the"
            f" columns {shortened(own)}"
        )
    return own


class FeatureColumns(NamedTuple):
    """Names of users or items, a label for them, and columns of features by label."""

    label: str
    names: Array
    columns: dict[str, Array]


def sparse_matrix(matrix: Any) -> Any:
    """Return a matrix as a SciPy sparse one. Raises InputError if it has no numbers."""
    from scipy.sparse import csr_matrix  # slow to import

    with refusing("features are a matrix of numbers", TypeError, ValueError):
        return csr_matrix(matrix)


def _named_matrix(entity: str, names: Any, matrix: Any) -> FeatureColumns:
    """Return names and the columns of an array (n, F)."""
    values = np.asarray(unmasked(matrix))
    if values.ndim != 2 or len(values) != len(names):
        raise InputError(
            f"{entity}_features: expected n names and a matrix (n, F), but found {len(names)} and"
            f" {values.shape}"
        )
    columns = {f"feature_{k + 1}": values[:, k] for k in range(values.shape[1])}
    return FeatureColumns(entity, np.asarray(names), columns)


def _feature_columns(features: Any, entity: str, own: str) -> FeatureColumns:
    """Return names and features in a data frame or an array.

    The column, or index, of names is called `own`, as in the ratings; else it has a usual name;
    else it is an index with a name or of text; else it is the first column, unless no column can be
    names: integers or text, all different.
    """
    if isinstance(features, tuple) and len(features) == 2:
        return _named_matrix(entity, *features)
    labels = getattr(features, "columns", None)
    if labels is None:
        array = np.asarray(features)
        if array.ndim != 2 or array.shape[1] < 2:
            raise InputError(
                f"{entity}_features: expected an array (n, 1 + F), names first, but found"
                f" {array.shape}"
            )
        return _named_matrix(entity, array[:, 0], array[:, 1:])
    columns = {str(label): np.asarray(features[label]) for label in labels}
    index_name = str(getattr(getattr(features, "index", None), "name", None) or "")
    names_of_all = [str(label) for label in labels]
    if index_name:
        names_of_all.append(index_name)
    refuse_repeated(f"{entity}_features", names_of_all)
    index = np.arange(len(features))
    if hasattr(features, "index"):
        index = np.asarray(features.index)
    label = _label_of_names(columns, index, index_name, own=own, entity=entity)
    return FeatureColumns(label or entity, columns.pop(label, index), columns)


def _label_of_names(
    columns: Mapping[str, Array], index: Array, index_name: str, *, own: str, entity: str
) -> str:
    """Return the label of the column of names, or of the index."""
    known = [*columns, index_name]
    if own and own in known:
        return own
    position = find_column(known, entity)
    if position is not None:
        return known[position]
    counts_rows = not index_name and index.dtype.kind in "iu"
    if counts_rows and any(map(_can_name, columns.values())):
        return known[0]
    return index_name


def _can_name(column: Array) -> bool:
    """Whether the values of a column are integers or text, and all different."""
    if len({*map(str, column)}) < len(column):
        return False
    return all(isinstance(value, int | str) for value in column.tolist())


def _texts(column: Array, separator: str) -> Array:
    """Convert values to text, lists to text with a separator, and missing values to None."""
    values = plain_values(column)
    return np.array([_text(value, separator) for value in values], dtype=object)


def _text(value: Any, separator: str) -> str | None:
    if isinstance(value, _LISTS):
        return separator.join(map(str, value))
    if is_missing(value):
        return None
    if isinstance(value, bool):
        return str(int(value))
    return str(value)
