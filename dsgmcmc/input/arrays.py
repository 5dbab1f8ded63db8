"""Reads ratings, pairs, names and features from matrices, data frames and arrays."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.load import RatingsTable, create_raw, fetch_ratings, load
from dsgmcmc.input.matrices import (
    are_cells,
    count_cells,
    has_holes,
    read_matrix,
    refuse_first_column,
)
from dsgmcmc.input.repeated import merge_repeated
from dsgmcmc.input.roles import (
    CONTEXT,
    MEASURES,
    NAMED_ROLES,
    Heading,
    assign_columns,
    expand_parts,
    locate,
    parse_columns,
    refuse_rounded,
)
from dsgmcmc.input.sources.annotated import (
    MatrixCells,
    cells_of,
    data_array_of,
    is_annotated,
    is_labelled,
    refuse_modalities,
)
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.input.sources.limits import SIDES
from dsgmcmc.input.values import not_rated_sql
from dsgmcmc.input.wide import ENTRIES, Block, Cells, WideMatrix, describe_matrix
from dsgmcmc.ratings.names import main_role, names_of, part_role, part_sql
from dsgmcmc.ratings.reading import NOTHING_SAID, Reading
from dsgmcmc.settings import in_python, short_repr
from dsgmcmc.tables.frames import as_frame, is_missing, plain_column, unmasked
from dsgmcmc.tables.session import Session, open_small_session
from dsgmcmc.tables.usual import Columns, find_column, joined, shortened, usual_roles
from dsgmcmc.types import Array

_MATRIX_ADVICE = (
    "; if it has a row for each user and a column for each item, give BPMF(matrix=True)"
)
#: Texts that neither begin nor end with blanks, and are no numbers with a point or an exponent.
_PLAIN_NAME = re.compile(r"[^\s\0.+](?:[^\0.+]*[^\s\0.+])?")
_SAMPLE = 10  # rows of a data frame whose cells are looked at


def list_names(names: Any, role: str, parts: Sequence[str] = ()) -> list[Any]:
    """List names of users or items: a single name, a sequence or set, or a column of a data frame.

    `role` is "user" or "item". Names of several `parts` are tuples or dicts, or rows of an array or
    of these columns of a data frame. Raises InputError if `names` is anything else, or a data frame
    without such a column.
    """
    names = as_frame(names)
    if parts:
        return _list_tuples(names, role, parts)
    labels = getattr(names, "columns", None)
    if labels is not None:
        position = 0 if len(labels) == 1 else find_column(labels, role)
        if position is None:
            raise InputError(
                f"the data frame has no column {role}; its columns are"
                f" {shortened(list(map(str, labels)))}"
            )
        names = names[labels[position]]
    if isinstance(names, Iterator | Set):
        names = list(names)
    if np.ndim(names) == 0:
        return [names.item() if isinstance(names, np.generic | np.ndarray) else names]
    if np.ndim(names) != 1:
        raise InputError(f"expected names of {role}s; found an array of shape {np.shape(names)}")
    return list(names)


def _list_tuples(names: Any, role: str, parts: Sequence[str]) -> list[Any]:
    """List names of several parts, as tuples, or as texts such as ``station=s3,day=d4``."""
    labels = getattr(names, "columns", None)
    if labels is not None:
        lacking = [part for part in parts if part not in list(labels)]
        if lacking:
            raise InputError(
                f"the data frame has no column {shortened(lacking)} for {role}s; its columns are"
                f" {shortened(list(map(str, labels)))}"
            )
        columns = [np.asarray(names[part]).tolist() for part in parts]
        return list(zip(*columns, strict=True))
    is_one = isinstance(names, str | dict) or (
        isinstance(names, tuple) and not any(isinstance(part, tuple | list) for part in names)
    )
    listed = [names] if is_one else list(names)
    return [_as_tuple(name, role, parts) for name in listed]


def _as_tuple(name: Any, role: str, parts: Sequence[str]) -> Any:
    """Return a name of several parts as a tuple; a text stays one."""
    if isinstance(name, str):
        return name
    if isinstance(name, dict) and name.keys() == set(parts):
        return tuple(name[part] for part in parts)
    if isinstance(name, tuple | list | np.ndarray) and len(name) == len(parts):
        return tuple(name.tolist() if isinstance(name, np.ndarray) else name)
    raise InputError(f"names of {role}s have the parts {', '.join(parts)}; found {name!r}")


def read_ratings(X: Any, y: Any = None, form: Reading = NOTHING_SAID) -> dict[str, Array]:
    """Return new ratings in a matrix, a data frame or arrays, as `read_table` does.

    They are checked as those of a file are, unless there is nothing to check. Parameters are as for
    `memory_table`.
    """
    table = memory_table(X, y, form, timed=False)
    if isinstance(table.file, MemoryTable) and table.matrix is None and not form.missing:
        columns = dict(zip(table.columns, table.file.arrays, strict=True))
        columns.pop("timestamp", None)
        is_merged = form.duplicates not in (None, "keep") and _recur(columns)
        if _are_plain(columns) and not is_merged:
            if "rating" in columns:
                columns["rating"] = columns["rating"].astype(np.float64)
            return columns
    with open_small_session() as db:
        return read_table(db, table, form)


def read_table(
    db: Session,
    table: RatingsTable,
    form: Reading,
    integers: Mapping[str, Sequence[bool]] = MappingProxyType({}),
) -> dict[str, Array]:
    """Return the columns of a table by role, in its order, without values that mean "not rated".

    Ratings of the same user and item are left out, or merged, as `form` says; by default none are.

    Users and items are integers or str. Ratings, weights and bounds are float64; lower and upper
    bounds are infinite on an open side, and NaN for exact ratings. Clicks have no ratings. Further
    parts of names have roles of their own (`dsgmcmc.ratings.names`).
    `integers` says by role which parts of names are integers: zeros after their decimal point do
    not count.
    """
    create_raw(db, [table])
    load(db, table, timed=False, missing=form.missing)
    is_rated = f"NOT {not_rated_sql(form.missing)}"
    merge_repeated(db, form.duplicates, is_rated)
    selected = {}
    for role in NAMED_ROLES:
        n_parts = table.n_parts(role)
        for k in range(n_parts):
            name = part_sql(f"{role}_id", k, n_parts)
            if any(integers.get(role, ())[k : k + 1]) and not table.has_integers(role):
                name = f"regexp_replace(trim({name}), '[.]0+$', '')"
            selected[part_role(role, k)] = name
    if table.has_ratings:
        selected["rating"] = "rating"
    columns = fetch_ratings(db, selected, is_rated)
    if not len(columns["user"]):
        raise InputError("there are no ratings")
    return columns


def _recur(columns: Mapping[str, Array]) -> bool:
    """Whether a pair of a user and an item recurs, given columns by role."""
    names = [column.tolist() for role, column in columns.items() if main_role(role) in NAMED_ROLES]
    pairs = list(zip(*names, strict=True))
    return len(set(pairs)) < len(pairs)


def _are_plain(columns: Mapping[str, Array]) -> bool:
    """Whether columns by role need no reading: integers, usual texts and finite ratings alone.

    A session of DuckDB takes much longer than to read a few ratings.
    """
    for role, column in columns.items():
        if main_role(role) in NAMED_ROLES:
            is_plain = column.dtype.kind == "i" or all(map(_is_plain_name, column.tolist()))
        elif role == "rating":
            is_plain = column.dtype.kind in "iuf" and bool(np.isfinite(column).all())
        else:
            is_plain = False
        if not is_plain or not len(column):
            return False
    return True


def _is_plain_name(name: object) -> bool:
    """Whether a name is a text that neither ends in blanks nor may be a number with a point."""
    return type(name) is str and _PLAIN_NAME.fullmatch(name) is not None


def memory_table(X: Any, y: Any, form: Reading, *, timed: bool) -> RatingsTable:
    """Return a table of the ratings in a matrix, a data frame or arrays.

    Raises InputError if `X` or `y` has another form.

    Parameters
    ----------
    X
        SciPy sparse matrix; AnnData; DataArray or Dataset; data frame or array (n, 3) or, as a
        matrix, (I, J); with `y`, data frame or array (n, 2).
    y : (n,) array, optional
        The ratings, if `X` has only users and items.
    timed : bool
        Whether `X` has one more column: times.
    """
    import scipy.sparse  # slow to import

    wide = is_wide(X, y, form)
    X = as_frame(data_array_of(X, form))
    if wide or scipy.sparse.issparse(X):
        if timed:
            raise InputError(
                "time levels need timestamps, which a matrix cannot have: give a data frame or an"
                " array"
            )
        if y is not None:
            raise InputError("X is a matrix of ratings, so y must be left out")
    if is_annotated(X) or scipy.sparse.issparse(X):
        table = _table_of_cells(cells_of(X, form))
    elif wide:
        table = _wide_table(X, form)
    else:
        table = _long_table(X, y, form.columns, timed=timed).marked(form)
    return table._replace(reading=form._replace(matrix=bool(table.about)))


def _table_of(
    columns: Mapping[str, Array],
    labels: Mapping[str, str] = MappingProxyType({}),
    *,
    cells: bool = False,
) -> RatingsTable:
    """Return a table of columns in memory, by role, given their labels.

    Rows may be `cells` of a matrix.
    """
    arrays = {}
    for role, column in columns.items():
        if main_role(role) in NAMED_ROLES:
            arrays[role] = name_column(column, main_role(role))
        elif role == "timestamp":
            arrays[role] = _times(column)
        else:
            arrays[role] = plain_column(column)
    names = [labels.get(role, role) for role in columns]
    file = MemoryTable.of(Path("ratings"), arrays)
    texts = [array[:_SAMPLE].astype(str).tolist() for array in arrays.values()]
    sample = [list(row) for row in zip(*texts, strict=True)]
    file = replace(file, names=names, first_row=0, cells=cells, sample=sample)
    return RatingsTable(file, {role: k for k, role in enumerate(columns)}, labels=labels)


def _table_of_cells(cells: MatrixCells) -> RatingsTable:
    """Return the known cells of a matrix."""
    columns = {"user": cells.row, "item": cells.col, "rating": cells.values}
    if cells.users is not None and cells.items is not None:
        columns |= {"user": cells.users[cells.row], "item": cells.items[cells.col]}
    if cells.bounds is not None:
        columns |= dict(zip(SIDES, cells.bounds, strict=True))
    return _table_of(columns, cells.limits, cells=True)._replace(about=cells.about)


def _long_table(X: Any, y: Any, columns: Columns, *, timed: bool) -> RatingsTable:
    """Return a table with a row for each rating, in an array or a data frame."""
    roles = ["user", "item"]
    if y is None:
        roles.append("rating")
    optional = [role for role in MEASURES if role in columns]
    if timed:
        roles.append("timestamp")
    else:
        optional.append("timestamp")
    found, labels = _columns(X, roles, columns, optional)
    if y is not None:
        n = len(found["user"])
        ratings = np.asarray(unmasked(y))
        if ratings.shape != (n,):
            raise InputError(f"there are {n} pairs, but the ratings have the shape {ratings.shape}")
        found["rating"] = ratings
    return _table_of(found, labels)


def _wide_table(X: Any, form: Reading) -> RatingsTable:
    """Return the known cells of a matrix."""
    matrix = read_matrix(X, form)
    refuse_first_column(X, matrix)
    users = matrix.names
    if users is None:
        users = np.arange(len(matrix.values))
    names = {
        "user": name_column(users, "user"),
        "item": name_column(np.array(matrix.labels), "item"),
    }
    block = Block(names["user"], Cells(matrix.values, matrix.bounds))
    return RatingsTable(
        MemoryTable.of(Path("ratings"), names),
        ENTRIES,
        about=describe_matrix(matrix.labels, matrix.named_by, matrix.mark),
        matrix=WideMatrix(names["item"], matrix.labels, [block]),
    )


def is_wide(X: Any, y: Any, form: Reading) -> bool:
    """Whether the input of `BPMF.fit` is a matrix, in an array or a data frame.

    A DataArray or Dataset of xarray is one, and AnnData. By default others are if they have five
    columns or more, or NaN and one, two or four columns; a data frame also needs columns that are
    all numbers, or numbers and bounds, and none of them may have a usual name of a user, an item, a
    rating or a time.
    """
    if y is not None or isinstance(X, str | os.PathLike) or hasattr(X, "tocoo"):
        return False
    refuse_modalities(X)
    if is_labelled(X):
        return True
    X = as_frame(X)
    if form.matrix is not None:
        return bool(form.matrix)
    labels = getattr(X, "columns", None)
    if labels is None:
        if not isinstance(X, np.ndarray) or X.ndim != 2:
            return False
        values = [X]
    else:
        if form.columns or usual_roles(labels):
            return False
        values = [np.asarray(X[label]) for label in labels]
    if X.shape[1] == 3 or not are_cells(values):
        return False
    return X.shape[1] > 4 or any(map(has_holes, values))


def has_time_column(X: Any, y: Any, form: Reading) -> bool:
    """Whether the input of `BPMF.fit` is an array with a column of times."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or is_wide(X, y, form):
        return False
    return bool(X.shape[1] == (4 if y is None else 3))


def _times(times: Array) -> Array:
    """Convert times to numbers, of seconds if they are NumPy dates, or to text, as in a file."""
    if times.dtype.kind != "M":
        return plain_column(times)
    microseconds = times.astype("datetime64[us]").astype(np.float64)
    return np.where(np.isnat(times), np.nan, microseconds / 1e6)


def read_pairs(
    X: Any,
    columns: str | Columns | None = None,
    labels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    directions: Sequence[str] = (),
) -> list[Array]:
    """Read users and items, (n,) each, from an (n, 2) array or a data frame.

    `columns` is the argument of `BPMF`. If the data frame lacks a column of `columns`, as a data
    frame of recommendations does, the column is found by its usual names. `labels` are the columns
    of the run's names by role, if known: names of several parts are tuples, and an array has a
    column for each part. An array of a table of three directions has these columns, in whatever
    arrangement the run has them. Raises InputError if `X` has another form, or if a name is
    missing.
    """
    X = as_frame(X)
    found_in = [str(label) for label in getattr(X, "columns", ())]
    asked = parse_columns(columns)
    known: dict[str, str | tuple[str, ...]] = {}
    roles = list(NAMED_ROLES)
    for role in NAMED_ROLES:
        of_role = tuple(labels.get(role, ()))
        if role in asked and _are_in(found_in, {role: asked[role]}):
            known[role] = asked[role]
        elif found_in and (len(of_role) > 1 or set(of_role) & set(found_in)):
            known[role] = of_role
    if not found_in:
        roles = [
            part_role(role, k) for role in roles for k in range(len(labels.get(role, ())) or 1)
        ]
    if directions and not found_in:
        parts = [label for role in NAMED_ROLES for label in labels[role]]
        role_of = dict(zip(parts, roles, strict=True))
        roles = [role_of[column] for column in directions]
    found, _ = _columns(X, roles, known)
    typed = {role: typed_names(found[role], main_role(role)) for role in found}
    return [names_of(typed, role) for role in NAMED_ROLES]


def _are_in(labels: Sequence[str], columns: Columns) -> bool:
    """Whether a data frame with these labels has all columns."""
    return set(expand_parts(columns, labels).values()) <= set(labels)


@in_python()
def _columns(
    X: Any, roles: Sequence[str], columns: Columns, optional: Sequence[str] = ()
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return columns, and their labels in a data frame, by role.

    `columns` maps roles to labels of a data frame, which may have columns of `optional` roles, too.
    An array, or a data frame whose labels are numbers, has one column for each role, in the order
    of roles.
    """
    if hasattr(X, "columns"):
        return _frame_columns(X, roles, columns, optional)
    return array_columns(X, roles, advice=_advice_on_matrices(roles)), {}


def _advice_on_matrices(roles: Sequence[str]) -> str:
    """Return what to add to a message about the number of columns: ratings may be a matrix."""
    if "rating" in roles:
        return _MATRIX_ADVICE
    return ""


def array_columns(X: Any, names: Sequence[str], *, advice: str = "") -> dict[str, Array]:
    """Return the columns of an array, or of a list of rows, by their names, in this order.

    Raises InputError, with `advice`, if the array has another number of columns.
    """
    # as objects, numbers in a list stay numbers beside text
    array = X if isinstance(X, np.ndarray) else np.array(X, object)
    if array.ndim == 0:
        raise InputError(
            f"expected an array or a data frame with the columns {', '.join(names)}; found"
            f" {short_repr(X)}"
        )
    if array.ndim != 2 or array.shape[1] != len(names):
        raise InputError(
            f"expected an array of shape (n, {len(names)}): {', '.join(names)}; found"
            f" {array.shape}{advice}"
        )
    return dict(zip(names, array.T, strict=True))


def _frame_columns(
    X: Any, roles: Sequence[str], columns: Columns, optional: Sequence[str]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the columns of a data frame, and their labels, by role."""
    labels = X.columns
    possible = [*roles, *optional]
    columns = {role: name for role, name in columns.items() if role in (*possible, CONTEXT)}
    names: list[str] | None = [str(label) for label in labels]
    if not columns and all(isinstance(label, int | np.integer) for label in labels):
        names = None
        if len(labels) != len(roles):
            raise InputError(
                f"expected a column for each of {', '.join(roles)}; the data frame has"
                f" {len(labels)} columns{_advice_on_matrices(roles)}"
            )
    sample = []
    if names is not None:
        sample = _first_rows(X)
    heading = Heading("the data frame", names, len(labels), sample)
    with _advising_index(X):
        if "rating" in roles:
            positions = assign_columns(heading, columns, timed="timestamp" in roles)
        else:
            example = ",".join(f"{role}=NAME" for role in roles)
            advice = f'rename them, or give BPMF(columns="{example}")'
            positions = locate(heading, columns, possible, advice=advice, optional=optional)
    found = {role: labels[k] for role, k in positions.items() if main_role(role) in possible}
    arrays = {role: np.asarray(X[label]) for role, label in found.items()}
    return arrays, {role: str(label) for role, label in found.items()}


@contextmanager
def _advising_index(X: Any) -> Iterator[None]:
    """Context in which errors about columns say what else a data frame may be.

    Its index may have columns; and a frame of numbers in texts may be a matrix.
    """
    try:
        yield
    except InputError as error:
        cells = count_cells([np.asarray(X[label]) for label in X.columns])
        if cells and not cells["bound"] and len(X.columns) > 4 and "matrix" not in str(error):
            raise InputError(f"{error}{_MATRIX_ADVICE}") from error
        levels = [
            str(name)
            for name in getattr(getattr(X, "index", None), "names", ())
            if name is not None
        ]
        if not levels:
            raise
        raise InputError(
            f"{error}; {joined(levels)} of its index would be columns in frame.reset_index()"
        ) from error


def _first_rows(X: Any) -> list[list[str]]:
    """Return the first rows of a data frame as text."""
    columns = [np.asarray(X[label])[:_SAMPLE] for label in X.columns]
    cells = [["" if is_missing(value) else str(value) for value in column] for column in columns]
    return [list(row) for row in zip(*cells, strict=True)]


def name_column(column: Array, role: str) -> Array:
    """Return a column of names as `plain_column` does; names that are whole numbers are int64.

    Raises InputError if names are other floats, or may have been rounded.
    """
    column = plain_column(column)
    if column.dtype.kind == "b":
        return column.astype(str).astype(object)
    if column.dtype.kind == "u" and (column < 2**63).all():
        return column.astype(np.int64)
    if column.dtype.kind != "f":
        return column
    column = np.where(np.isfinite(column), column, np.nan)
    refuse_rounded(column, role)
    rows = np.flatnonzero(column % 1 > 0)
    if len(rows):
        raise InputError(
            f"names of {role}s must be integers or text; row {rows[0]} has {column[rows[0]]}"
        )
    if not np.isnan(column).any():
        return column.astype(np.int64)
    texts = [None if is_missing(name) else str(int(name)) for name in column.tolist()]
    return np.array(texts, object)


def typed_names(column: Array, role: str) -> Array:
    """Convert a column of names to an int64 array or to an object array of str.

    Raises InputError if some are missing.
    """
    names = name_column(column, role)
    listed = names.tolist()
    missing = [row for row, name in enumerate(listed) if is_missing(name) or name == ""]
    if missing:
        raise InputError(
            f"names of {role}s are missing: row(s) {shortened(list(map(str, missing)))} (the first"
            " is row 0)"
        )
    if names.dtype.kind == "i":
        return names.astype(np.int64)
    return np.array([str(name) for name in listed], object)


def ratings_source(
    X: Any,
    y: Any = None,
    form: Reading = NOTHING_SAID,
    *,
    timed: bool = False,
    has_features: bool = False,
) -> Path | RatingsTable:
    """Return the input of `BPMF.fit` as an input of `prepare_ratings`: a path, or a table.

    `has_features` says whether features are given; other parameters are as for `read_ratings`.
    Raises InputError as `read_ratings` does, and if `X` cannot be combined with the other
    parameters.
    """
    if isinstance(X, str | os.PathLike):
        if y is not None or (has_features and Path(X).suffix == ".h5"):
            raise InputError(
                f"{X} has the ratings (a ratings file also has the features): leave out y and"
                " features"
            )
        return Path(X)
    if form.columns and not is_annotated(X) and not hasattr(as_frame(X), "columns"):
        raise InputError(
            f"columns={form.columns!r} is for files and data frames; columns of arrays are user,"
            " item, rating"
        )
    return memory_table(X, y, form, timed=timed)
