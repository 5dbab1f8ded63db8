"""Reads ratings, pairs, names and features from sparse matrices, data frames or arrays; `Table`
holds results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.data.columns import (
    ROLES,
    assign_columns,
    find_column,
    locate,
    parse_columns,
    refuse_rounded,
)
from dsgmcmc.data.descriptions import Description
from dsgmcmc.data.encoding import Kind
from dsgmcmc.data.tables import TableFile, is_number
from dsgmcmc.data.wide import counts_cells, parse_missing, refuse_names
from dsgmcmc.errors import InputError, refusing
from dsgmcmc.settings import in_python
from dsgmcmc.types import Array, Float64, Mask

_MATRIX_ADVICE = (
    "; if it has a row for each user and a column for each item, give BPMF(matrix=True)"
)
_PRINTED = 10  # rows of a table that are printed


class Table(dict[str, Array]):
    """Columns of a table by name, as NumPy arrays with one value per row."""

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame."""
        return self.frame_of("pandas")

    def to_polars(self) -> Any:
        """Return a polars.DataFrame."""
        return self.frame_of("polars")

    def frame_of(self, library: str) -> Any:
        """Return a data frame of a library such as pandas, whose ``DataFrame`` takes columns by
        name.
        """
        columns = {
            name: column.tolist() if column.dtype == object else column
            for name, column in self.items()
        }
        return import_module(library).DataFrame(columns)

    def __repr__(self) -> str:
        length = len(next(iter(self.values()), ()))
        lines = [
            list(self),
            *([_format_cell(c[k]) for c in self.values()] for k in range(min(length, _PRINTED))),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = [
            "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join(
            [
                *rows,
                *(["..."] if length > _PRINTED else []),
                f"[{length:,} rows x {len(self)} columns]",
            ]
        )


def _format_cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def as_given(given: Any, table: Table) -> Any:
    """Return the table as a data frame of the library to which `given` belongs; unchanged if the
    library has none.
    """
    library = type(given).__module__.partition(".")[0]
    return table.frame_of(library) if hasattr(import_module(library), "DataFrame") else table


def list_names(given: Any, role: str) -> list[Any]:
    """List names of users or items: a single name, a sequence or set of them, or a column of a data
    frame.

    `role` is "user" or "item". Raises InputError if `given` is anything else, or a data frame
    without such a column.
    """
    labels = getattr(given, "columns", None)
    if labels is not None:
        position = 0 if len(labels) == 1 else find_column(labels, role)
        if position is None:
            raise InputError(
                f"the data frame has no column {role}; its columns are"
                f" {', '.join(map(str, labels))}"
            )
        given = given[labels[position]]
    if isinstance(given, Iterator | Set):
        given = list(given)
    if np.ndim(given) == 0:
        return [given.item() if isinstance(given, np.generic | np.ndarray) else given]
    if np.ndim(given) != 1:
        raise InputError(f"expected names of {role}s; found an array of shape {np.shape(given)}")
    return list(given)


def read_ratings(
    X: Any,
    y: Any = None,
    timed: bool = False,
    columns: str | None = None,
    matrix: Any = None,
    missing: Any = None,
) -> dict[str, Array]:
    """Read ratings from a matrix, a data frame or arrays.

    Returns arrays (n,) by role: "user" and "item" of integers or str, "rating" of float64, left out
    if a data frame has clicks (`assign_columns`), and, if `timed`, "timestamp", of numbers or in
    seconds. Raises InputError if `X` or `y` has another form, or if a value is missing or not
    finite.

    Parameters
    ----------
    X : SciPy sparse matrix; data frame or array (n, 3) or, as a matrix, (I, J); with `y`, data frame or array (n, 2)
    y : (n,) array, optional
        The ratings, if `X` has only users and items.
    timed : bool
        Whether `X` has one more column: times as numbers, or NumPy dates.
    columns : str, optional
        Columns of a data frame by role, such as ``user=U,item=I`` (as in `BPMF`).
    matrix, missing : optional
        As in `BPMF`.
    """
    import scipy.sparse  # slow to import

    codes = np.array([float(text) for text in parse_missing(missing, False)], np.float32)
    wide = is_wide(X, y, columns, matrix)
    if scipy.sparse.issparse(X) or wide:
        if timed:
            raise InputError(
                "time levels need timestamps, which a matrix cannot have: give a data frame or an"
                " array"
            )
        if y is not None:
            raise InputError("X is a matrix of ratings, so y must be left out")
        if wide:
            given = _read_wide(X, parse_columns(columns, ("user",)), codes)
        else:
            cells = X.tocoo()
            given = {
                "user": cells.row.astype(np.int64),
                "item": cells.col.astype(np.int64),
                "rating": cells.data,
            }
    else:
        roles = ["user", "item", *["rating"] * (y is None), *["timestamp"] * timed]
        given = _columns(X, roles, parse_columns(columns))
        if y is not None:
            given["rating"] = np.asarray(y)
        if timed:
            given["timestamp"] = _seconds(given["timestamp"])
    if "rating" not in given:
        return given
    ratings = _floats(given["rating"], "ratings must be numbers")
    if ratings.shape != given["user"].shape:
        raise InputError(
            f"there are {len(given['user'])} pairs, but the ratings have the shape {ratings.shape}"
        )
    _refuse_rows(~np.isfinite(ratings), "rating")
    rated = ~np.isin(ratings.astype(np.float32), codes)
    if not rated.any():
        raise InputError("there are no ratings")
    return {role: column[rated] for role, column in (given | {"rating": ratings}).items()}


def is_wide(X: Any, y: Any, columns: str | None, matrix: bool | None) -> bool:
    """Whether the input of `BPMF.fit` is a matrix with a row for each user, in an array or a data
    frame.

    By default it is one if it has five columns or more, or NaN and one, two or four columns; a data
    frame also needs columns that are all numbers, and none of them may have a usual name of a user,
    an item, a rating or a time.
    """
    if y is not None or isinstance(X, str | os.PathLike) or hasattr(X, "tocoo"):
        return False
    labels = getattr(X, "columns", None)
    if matrix is not None or (labels is None and not (isinstance(X, np.ndarray) and X.ndim == 2)):
        return bool(matrix)
    if labels is not None and (
        columns or any(find_column(labels, role) is not None for role in ROLES)
    ):
        return False
    values = [X] if labels is None else [np.asarray(X[label]) for label in labels]
    if X.shape[1] == 3 or not all(column.dtype.kind in "iufb" for column in values):
        return False
    return X.shape[1] > 4 or any(bool(np.isnan(column).any()) for column in values)


def _read_wide(X: Any, given: Mapping[str, str], codes: Array) -> dict[str, Array]:
    """Return user, item and rating of the cells of a matrix that are neither NaN nor among `codes`.

    Users are named by the column that `given` names, or that has a usual name, or by the first
    column if it has text, or else by the index. Raises InputError if the matrix has another form,
    or cells are not numbers.
    """
    table = np.array(X, object)
    if table.ndim != 2:
        raise InputError(f"expected a matrix of shape (users, items); found {table.shape}")
    labels, names = list(getattr(X, "columns", range(table.shape[1]))), None
    if hasattr(X, "columns"):
        index = getattr(X, "index", range(0))
        # a range without a name is what a data frame has by itself; pandas 3 makes ranges of other
        # indices, too
        names = (
            None
            if hasattr(index, "step") and not getattr(index, "name", None)
            else np.asarray(index)
        )
        place = locate(
            "the data frame", list(map(str, labels)), len(labels), given, ("user",), "", "user"
        ).get("user")
        if place is None and any(
            isinstance(value, str) and not is_number(value) for value in table[:, 0]
        ):
            place = 0
        if place is not None:
            names, table = np.array(table[:, place].tolist()), np.delete(table, place, axis=1)
            del labels[place]
    table[np.fromiter(map(_is_missing, table.flat), bool).reshape(table.shape)] = np.nan
    rule = "a matrix has numbers alone, unlike its column {}"
    values = np.column_stack(
        [_floats(c, rule.format(k)) for k, c in zip(labels, table.T, strict=True)]
    )
    values[np.isin(values.astype(np.float32), codes)] = np.nan
    if names is None:
        if counts_cells(values):
            raise InputError("the first column has the number of ratings of each row: leave it out")
        refuse_names(values, "the first column", 'give a data frame and BPMF(columns="user=NAME")')
        names = np.arange(len(values))
    row, column = np.nonzero(~np.isnan(values))
    users, items = _names(names, "user"), _names(np.array(labels), "item")
    return {"user": users[row], "item": items[column], "rating": values[row, column]}


def has_times(X: Any, y: Any, columns: str | None = None, matrix: bool | None = None) -> bool:
    """Whether the input of `BPMF.fit` has a column of timestamps; False for files, which are not
    opened.
    """
    if is_wide(X, y, columns, matrix):
        return False
    names = getattr(X, "columns", None)
    if names is not None:
        return "timestamp" in parse_columns(columns) or find_column(names, "timestamp") is not None
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == (4 if y is None else 3)


def _seconds(times: Array) -> Float64:
    """Convert seconds or NumPy dates to (n,) seconds."""
    if times.dtype.kind == "M":
        times = np.where(
            np.isnat(times), np.nan, times.astype("datetime64[us]").astype(np.float64) / 1e6
        )
    seconds = _floats(times, "timestamps must be seconds, or NumPy dates")
    _refuse_rows(~np.isfinite(seconds), "timestamp")
    return seconds


def _floats(column: Array, rule: str) -> Float64:
    """Convert numbers, which may be written as text, to float64; an error begins with the rule."""
    with refusing(rule, TypeError, ValueError):
        if column.dtype.kind in "cmM":
            raise TypeError(f"found {column.dtype}")
        for value in column if column.dtype.kind in "OU" else ():
            if isinstance(value, str) and not is_number(value):
                raise ValueError(f"found {str(value)!r}")
        return column.astype(np.float64)


def _refuse_rows(bad: Mask, kind: str) -> None:
    """Raise InputError if there are `bad` rows; the error names the `kind` of value and the first
    rows, from 0.
    """
    rows = np.flatnonzero(bad)
    if len(rows):
        subject = f"{len(rows):,} {kind}s are" if len(rows) > 1 else f"one {kind} is"
        shown = (
            f"row{'s' * (len(rows) > 1)}"
            f" {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}"
        )
        raise InputError(f"{subject} missing, NaN or infinite: {shown} (the first is row 0)")


def read_pairs(X: Any, columns: str | None = None) -> list[Array]:
    """Read users and items, (n,) each, from an (n, 2) array or a data frame.

    `columns` is the argument of `BPMF`. If the data frame lacks a column of `columns`, as a data
    frame of recommendations does, the column is found by its usual names. Raises InputError if `X`
    has another form, or if a name is missing.
    """
    labels = {str(label) for label in getattr(X, "columns", ())}
    given = {role: name for role, name in parse_columns(columns).items() if name in labels}
    return list(_columns(X, ("user", "item"), given).values())


@in_python()
def _columns(X: Any, roles: Sequence[str], given: Mapping[str, str]) -> dict[str, Array]:
    """Return columns by role, with names converted by `_names`; `given` maps roles to labels of a
    data frame.

    An array, or a data frame whose labels are numbers, has one column for each role, in the order
    of roles.
    """
    labels = getattr(X, "columns", None)
    expected, advice = ", ".join(roles), _MATRIX_ADVICE * ("rating" in roles)
    if labels is None:
        array = (
            X if isinstance(X, np.ndarray) else np.array(X, object)
        )  # object: numbers stay numbers
        if array.ndim != 2 or array.shape[1] != len(roles):
            raise InputError(
                f"expected an array of shape (n, {len(roles)}): {expected}; found"
                f" {array.shape}{advice}"
            )
        columns = dict(zip(roles, array.T, strict=True))
    else:
        given = {role: name for role, name in given.items() if role in roles}
        numbered, width = (
            not given and all(isinstance(label, int | np.integer) for label in labels),
            len(labels),
        )
        if numbered and width != len(roles):
            raise InputError(
                f"expected a column for each of {expected}; the data frame has {width}"
                f" columns{advice}"
            )
        names = None if numbered else [str(label) for label in labels]
        if "rating" in roles:
            places = assign_columns("the data frame", names, width, given, "timestamp" in roles)
        else:
            rename = (
                f'rename them, or give BPMF(columns="{",".join(f"{role}=NAME" for role in roles)}")'
            )
            places = locate("the data frame", names, width, given, roles, rename)
        columns = {role: np.asarray(X[labels[places[role]]]) for role in roles if role in places}
    return columns | {role: _names(columns[role], role) for role in ("user", "item")}


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, which is not itself, or pandas.NA, whose comparisons are
    neither true nor false.
    """
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _names(column: Array, role: str) -> Array:
    """Convert a column of names to an int64 array or to an object array of str."""
    if column.dtype == object:
        missing = [_is_missing(value) or value == "" for value in column]
        _refuse_rows(np.array(missing, bool), f"{role} name")
        inferred = np.array(column.tolist())
        column = inferred if inferred.dtype.kind in "iuf" else column
    if column.dtype.kind == "f":
        _refuse_rows(~np.isfinite(column), f"{role} name")
        refuse_rounded(column, role)
        if len(rows := np.flatnonzero(column % 1)):
            raise InputError(
                f"names of {role}s must be integers or text; row {rows[0]} has {column[rows[0]]}"
            )
    if column.dtype.kind in "if" or (column.dtype.kind == "u" and (column < 2**63).all()):
        return column.astype(np.int64)
    return np.array([str(value) for value in column.tolist()], dtype=object)


def ratings_source(
    X: Any, y: Any, timed: bool, columns: str | None, has_features: bool, *form: Any
) -> Path | TableFile:
    """Return the input of `BPMF.fit` as an input of `prepare_ratings`: the path of a file, or a
    table of arrays.

    Parameters are as for `read_ratings`; `has_features` says whether features are given. Raises
    InputError as `read_ratings` does, and if `X` cannot be combined with the other parameters.
    """
    if isinstance(X, str | os.PathLike):
        if y is not None or (has_features and Path(X).suffix == ".h5"):
            raise InputError(
                f"{X} has the ratings (a ratings file also has the features): leave out y and"
                " features"
            )
        return Path(X)
    if columns is not None and not hasattr(X, "columns"):
        raise InputError(
            f"columns={columns!r} is for files and data frames; columns of arrays are user, item,"
            " rating"
        )
    return TableFile.of_arrays(Path("ratings"), read_ratings(X, y, timed, columns, *form))


def read_features(
    given: Any, entity: str, separator: str = "|", columns: str | None = None
) -> Description:
    """Make a description of users or items from features in any form.

    `given` may be the path of a file for ``prepare --user-features``; a SciPy sparse matrix, whose
    row numbers are the names; a data frame (`_feature_columns`); or an array (n, 1 + F), names
    first. `entity` is "user" or "item"; `separator` joins the values of a list; `columns` are the
    columns of the ratings, as in `BPMF`. Raises InputError if features have another form.
    """
    import scipy.sparse  # slow to import

    own = parse_columns(columns).get(entity, "")
    if isinstance(given, str | os.PathLike) or scipy.sparse.issparse(given):
        return Description(
            Path(given) if isinstance(given, str | os.PathLike) else given, label=own
        )
    name_label, names, described = _feature_columns(given, entity, own)
    kinds: dict[str, Kind] = {}
    texts = {name_label: np.array([str(name) for name in names.tolist()], dtype=object)}
    for label, column in described.items():
        texts[label] = _texts(column, separator)
        if column.dtype.kind not in "iufb" and all(
            is_number(text) for text in texts[label] if text is not None
        ):
            kinds[label] = "category"  # numbers written as text are codes
    return Description(
        TableFile.of_arrays(Path(f"{entity}_features"), texts), kinds, separator, name_label
    )


def _feature_columns(given: Any, entity: str, own: str) -> tuple[str, Array, dict[str, Array]]:
    """Return a label for the names of users or items, the names, and the feature columns by label.

    The column, or index, of names is called `own`, as in the ratings; else it has a usual name;
    else it is an index with a name or of text; else it is the first column, unless no column can be
    names: integers or text, all different.
    """
    labels = getattr(given, "columns", None)
    if labels is None:
        array = np.asarray(given)
        if array.ndim != 2 or array.shape[1] < 2:
            raise InputError(
                f"{entity}_features: expected an array (n, 1 + F), names first, but found"
                f" {array.shape}"
            )
        return (
            entity,
            _names(array[:, 0], entity),
            {f"feature_{k}": array[:, k] for k in range(1, array.shape[1])},
        )
    columns = {str(label): np.asarray(given[label]) for label in labels}
    index_name = str(getattr(getattr(given, "index", None), "name", None) or "")
    if len(columns) < len(labels) or (index_name and index_name in columns):
        raise InputError(
            f"{entity}_features: two columns have the same name ({', '.join(map(str, labels))})"
        )
    index = np.asarray(given.index) if hasattr(given, "index") else np.arange(len(given))
    known = [*columns, index_name]
    place = known.index(own) if own and own in known else find_column(known, entity)
    if (
        place is None
        and not index_name
        and index.dtype.kind in "iu"
        and any(map(_can_name, columns.values()))
    ):
        place = 0
    label = index_name if place is None else known[place]
    return label or entity, _names(columns.pop(label, index), entity), columns


def _can_name(column: Array) -> bool:
    """Whether the values of a column are integers or text, and all different."""
    return len({*map(str, column)}) == len(column) and all(
        isinstance(value, int | str) for value in column.tolist()
    )


def _texts(column: Array, separator: str) -> Array:
    """Convert values to text, lists to text with a separator, and missing values to None."""
    texts: list[str | None] = []
    for value in column.tolist():
        if isinstance(value, list | tuple | np.ndarray):
            texts.append(separator.join(map(str, value)))
        else:
            texts.append(
                None
                if _is_missing(value)
                else str(int(value) if isinstance(value, bool) else value)
            )
    return np.array(texts, dtype=object)
