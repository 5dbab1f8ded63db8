"""Reads ratings, pairs, names and features from matrices, data frames and arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.bounds import is_bound
from dsgmcmc.input.form import ANY_FORM, InputForm
from dsgmcmc.input.load import RatingsTable, create_raw, fetch_ratings, load
from dsgmcmc.input.matrices import (
    are_cells,
    are_words,
    has_holes,
    is_missing,
    read_matrix,
    read_numbers,
    refuse_infinite,
)
from dsgmcmc.input.odd_columns import OddColumns, find_odd_columns
from dsgmcmc.input.roles import (
    CONTEXT,
    MEASURES,
    NAMED_ROLES,
    OF_BOUNDS,
    Heading,
    assign_columns,
    expand_parts,
    locate,
    parse_columns,
    refuse_rounded,
)
from dsgmcmc.input.sources.annotated import (
    cells_of,
    data_array_of,
    is_annotated,
    is_labelled,
    refuse_modalities,
)
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.input.sources.labelled import Choice, refuse_filling
from dsgmcmc.input.sources.matrix import stored_cells
from dsgmcmc.input.values import Missing, MissingValuesError, advising_missing
from dsgmcmc.input.wide import counts_cells, describe_matrix, refuse_names
from dsgmcmc.parallel.machine import memory_for_data
from dsgmcmc.ratings.names import main_role, names_of, part_role
from dsgmcmc.settings import in_python, short_repr
from dsgmcmc.tables.frames import as_frame, plain_values, unmasked
from dsgmcmc.tables.session import open_small_session
from dsgmcmc.tables.usual import ROLES, Columns, find_column, joined, shortened
from dsgmcmc.types import Array, Mask

_MATRIX_ADVICE = (
    "; if it has a row for each user and a column for each item, give BPMF(matrix=True)"
)
_OTHERS = ("weight", "timestamp")  # roles that say nothing of bounds
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


class RatingArrays(NamedTuple):
    """Ratings in memory.

    Attributes
    ----------
    columns : dict of str to (n,) array
        By role: "user" and "item" of integers or str, "rating" of float64, left out for clicks
        (`assign_columns`), and, if asked for, "timestamp", of numbers or text (`_times`), and
        "weight" of float64. If ratings are known only by bounds, "lower" and "upper", of float64,
        infinite on an open side and NaN for exact ratings. Further parts of names have roles of
        their own (`dsgmcmc.ratings.names`).
    labels : dict of str to str
        Labels of columns of a data frame by role.
    about : str
        How a matrix was read.
    left_out : int
        Number of ratings that were left out, because they are not known.
    unrated : dict of str to list of str
        Names of the rows and columns of a matrix that have no ratings, by "user" and "item".
    are_rows_numbered : bool
        Whether the rows of a matrix have no labels, so that their names are their positions.
    odd : OddColumns
        Columns of a matrix that may be no items.
    weightless : int
        Number of ratings that were left out because their weight is 0.
    """

    columns: dict[str, Array]
    labels: dict[str, str]
    about: str = ""
    left_out: int = 0
    unrated: Mapping[str, list[str]] = MappingProxyType({})
    are_rows_numbered: bool = False
    odd: OddColumns = OddColumns([])
    weightless: int = 0

    def names(self, role: str) -> Array:
        """Return the names of users or items, (n,); those of several parts are tuples."""
        return names_of(self.columns, role)

    def select(self, kept: Mask) -> RatingArrays:
        """Return the ratings in a mask; the number of others is counted in `left_out`."""
        columns = {role: column[kept] for role, column in self.columns.items()}
        n_left_out = int(len(kept) - np.count_nonzero(kept))
        return self._replace(columns=columns, left_out=self.left_out + n_left_out)


def read_ratings(
    X: Any,
    y: Any = None,
    form: InputForm = ANY_FORM,
    *,
    timed: bool = False,
    ordered: bool = False,
) -> RatingArrays:
    """Read ratings from a matrix, a data frame or arrays.

    Raises InputError if `X` or `y` has another form, or if a value is missing or not finite.

    Parameters
    ----------
    X
        SciPy sparse matrix; AnnData; DataArray or Dataset; data frame or array (n, 3) or, as a
        matrix, (I, J); with `y`, data frame or array (n, 2).
    y : (n,) array, optional
        The ratings, if `X` has only users and items.
    timed : bool
        Whether `X` has one more column: times.
    ordered : bool
        Whether to read the times of a data frame that has them.
    """
    import scipy.sparse  # slow to import

    missing = Missing.parse(form.missing)
    wide = is_wide(X, y, form)
    X = as_frame(data_array_of(X, form.choice))
    if wide or scipy.sparse.issparse(X):
        if timed:
            raise InputError(
                "time levels need timestamps, which a matrix cannot have: give a data frame or an"
                " array"
            )
        if y is not None:
            raise InputError("X is a matrix of ratings, so y must be left out")
    if is_annotated(X):
        found = _read_annotated(X, form.choice)
    elif wide:
        found = _read_wide(X, form.columns, missing, form.ignored)
    elif scipy.sparse.issparse(X):
        found = _read_sparse(X, form.choice)
    else:
        found = _read_long(X, y, parse_columns(form.columns), timed=timed, ordered=ordered)
        found = _leave_out(found, missing.words, timed=timed)
        found = _without_weightless(found)
    columns = found.columns
    with advising_missing(MissingValuesError):
        _convert_names(columns)
    _convert_measures(columns, wide=wide)
    if "rating" not in columns:
        return found
    with advising_missing(InputError):
        ratings = read_numbers(columns["rating"], "ratings must be numbers")
    if wide or scipy.sparse.issparse(X) or is_annotated(X):
        refuse_infinite(~np.isfinite(ratings), columns)
    with advising_missing(InputError):
        _refuse_rows(~np.isfinite(ratings), "rating")
    columns["rating"] = ratings
    rated = ~np.isin(ratings.astype(np.float32), missing.codes)
    if not rated.any():
        raise InputError("there are no ratings")
    return found.select(rated)


def _without_weightless(found: RatingArrays) -> RatingArrays:
    """Leave out rows of weight 0, which say nothing; their ratings may be missing."""
    if "weight" not in found.columns:
        return found
    weights = read_numbers(found.columns["weight"], "weights must be numbers")
    kept = weights != 0
    return found.select(kept)._replace(weightless=int(np.count_nonzero(~kept)))


def _convert_measures(columns: dict[str, Array], *, wide: bool) -> None:
    """Convert times and weights to numbers, and all that says of bounds to columns of bounds.

    Times may also become text. A matrix that is `wide` has its bounds already.
    """
    if not wide:
        _read_bounds(columns)
    if "timestamp" in columns:
        columns["timestamp"] = _times(columns["timestamp"])
    if "weight" in columns:
        columns["weight"] = read_numbers(columns["weight"], "weights must be numbers")
        with np.errstate(over="ignore", under="ignore"):
            stored = columns["weight"].astype(np.float32)
        is_positive = (stored > 0) & np.isfinite(stored)
        _refuse_rows(~is_positive, "weight", "missing or not a number above 0 in float32")


def _read_bounds(columns: dict[str, Array]) -> None:
    """Read ratings such as ``<0.1``, relations and columns of bounds, if there are any.

    They become columns "lower" and "upper", which are NaN for exact ratings, and "rating" has a
    value between the bounds of others.
    """
    if set(OF_BOUNDS).isdisjoint(columns) and not _has_bounds(columns.get("rating")):
        return
    known = {role: column for role, column in columns.items() if role not in _OTHERS}
    for role, column in known.items():
        if column.dtype.kind in "OU":
            known[role] = _as_words(column)
    table = _table_of(known)
    with open_small_session() as db:
        create_raw(db, [table])
        load(db, table, timed=False)
        columns |= fetch_ratings(db, {"rating": "rating"})
    columns.pop("relation", None)


def _has_bounds(ratings: Array | None) -> bool:
    """Whether some ratings are texts of bounds."""
    if ratings is None or ratings.dtype.kind not in "OU":
        return False
    return any(isinstance(value, str) and is_bound(value) for value in ratings.tolist())


def _table_of(columns: Mapping[str, Array]) -> RatingsTable:
    """Return a table of columns in memory, by role."""
    file = replace(MemoryTable.of(Path("ratings"), columns), first_row=0)
    return RatingsTable(file, {role: k for k, role in enumerate(columns)})


def _as_words(column: Array) -> Array:
    """Return the values of a column as texts, (n,) object; None for what is missing."""
    words = np.array([None] * len(column), object)
    known = np.array([not is_missing(value) for value in column.tolist()], bool)
    words[known] = [str(value) for value in column[known].tolist()]
    return words


def _leave_out(found: RatingArrays, words: Sequence[str], *, timed: bool) -> RatingArrays:
    """Leave out rows that have a word in place of a user, an item, a rating or, if `timed`, a time.

    Values that are missing have any of the words for an empty field.
    """
    if not words:
        return found
    is_known = np.ones(len(found.columns["user"]), bool)
    for role, column in found.columns.items():
        if role not in OF_BOUNDS and (role != "timestamp" or timed):
            is_known &= ~are_words(column, words)
    return found.select(is_known)


def _read_annotated(X: Any, choice: Choice) -> RatingArrays:
    """Return user, item and rating of the known cells of an AnnData object."""
    matrix, (row, col, values) = cells_of(X, choice)
    columns = {"user": matrix.users[row], "item": matrix.items[col], "rating": values}
    return RatingArrays(columns, labels={}, about=matrix.about)


def _read_sparse(X: Any, choice: Choice) -> RatingArrays:
    """Return user, item and rating of the entries of a sparse matrix, or of all its cells."""
    if choice.unstored == "zero":
        refuse_filling("the sparse matrix", X.shape, memory_for_data())
        dense = X.toarray()
        row, col = np.nonzero(~np.isnan(dense))
        columns = {"user": row, "item": col, "rating": dense[row, col]}
        return RatingArrays(columns, labels={})
    entries = stored_cells(X)
    columns = {
        "user": entries.row.astype(np.int64),
        "item": entries.col.astype(np.int64),
        "rating": entries.data,
    }
    return RatingArrays(columns, labels={})


def _read_long(X: Any, y: Any, columns: Columns, *, timed: bool, ordered: bool) -> RatingArrays:
    """Return the columns of an array or a data frame with a row for each rating, by role."""
    roles = ["user", "item"]
    if y is None:
        roles.append("rating")
    optional = [role for role in MEASURES if role in columns]
    if timed:
        roles.append("timestamp")
    elif ordered:
        optional.append("timestamp")
    found = _columns(X, roles, columns, optional)
    if y is not None:
        n = len(found.columns["user"])
        ratings = np.asarray(unmasked(y))
        if ratings.shape != (n,):
            raise InputError(f"there are {n} pairs, but the ratings have the shape {ratings.shape}")
        found.columns["rating"] = ratings
    return found


def _read_wide(
    X: Any, columns: str | Columns | None, missing: Missing, ignored: Sequence[str]
) -> RatingArrays:
    """Return user, item and rating of the cells of a matrix; arguments as for `read_matrix`."""
    matrix = read_matrix(X, columns, missing, ignored)
    values = matrix.values
    users = matrix.names
    if users is None:
        if counts_cells(values):
            raise InputError("the first column has the number of ratings of each row: leave it out")
        if hasattr(X, "columns"):
            first = str(matrix.labels[0])
            refuse_names(values, f"column {first}", f'BPMF(columns="user={first}")')
        advice = 'give a data frame and BPMF(columns="user=NAME")'
        refuse_names(values, "the first column", advice)
        users = np.arange(len(values))
    items = np.array(matrix.labels)
    row, column = np.nonzero(~np.isnan(values))
    cells = {"user": users[row], "item": items[column], "rating": values[row, column]}
    if matrix.bounds is not None:
        cells["lower"], cells["upper"] = matrix.bounds[:, row, column]
    is_empty = np.isnan(values)
    unrated = {
        "user": _written_names(users[is_empty.all(axis=1)]),
        "item": _written_names(items[is_empty.all(axis=0)]),
    }
    return RatingArrays(
        cells,
        labels={},
        about=describe_matrix(matrix.labels, matrix.named_by),
        unrated=unrated,
        are_rows_numbered=matrix.names is None,
        odd=find_odd_columns(values, matrix.labels, ignored),
    )


def _written_names(names: Array) -> list[str]:
    """Return names as texts, as `typed_names` does, without missing ones."""
    texts = []
    for name in plain_values(names):
        if is_missing(name):
            continue
        if isinstance(name, float) and name.is_integer():
            name = int(name)
        texts.append(str(name))
    return texts


def is_wide(X: Any, y: Any, form: InputForm) -> bool:
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
        if form.columns or any(find_column(labels, role) is not None for role in ROLES):
            return False
        values = [np.asarray(X[label]) for label in labels]
    if X.shape[1] == 3 or not are_cells(values):
        return False
    return X.shape[1] > 4 or any(map(has_holes, values))


def has_time_column(X: Any, y: Any, form: InputForm) -> bool:
    """Whether the input of `BPMF.fit` is an array with a column of times."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or is_wide(X, y, form):
        return False
    return bool(X.shape[1] == (4 if y is None else 3))


def _times(times: Array) -> Array:
    """Convert times to numbers, of seconds if they are NumPy dates, or to text, as in a file.

    Missing times become None, or NaN among numbers.
    """
    if times.dtype.kind == "M":
        microseconds = times.astype("datetime64[us]").astype(np.float64)
        return np.where(np.isnat(times), np.nan, microseconds / 1e6)
    if times.dtype.kind in "iufb":
        return times.astype(np.float64)
    texts = [None if is_missing(value) else str(value) for value in times.tolist()]
    return np.array(texts, dtype=object)


def _refuse_rows(bad: Mask, what: str, fault: str = "missing, NaN or infinite") -> None:
    """Raise InputError if there are `bad` rows; the error says `what` has the fault, and where."""
    rows = np.flatnonzero(bad)
    if not len(rows):
        return
    if len(rows) == 1:
        found = f"one {what} is {fault}: row {rows[0]}"
    else:
        shown = [str(row) for row in rows[:5]]
        if len(rows) > 5:
            shown.append("...")
        found = f"{len(rows):,} {what}s are {fault}: rows {', '.join(shown)}"
    raise MissingValuesError(f"{found} (the first is row 0)")


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
    found = _columns(X, roles, known)
    _convert_names(found.columns)
    return [found.names(role) for role in NAMED_ROLES]


def _are_in(labels: Sequence[str], columns: Columns) -> bool:
    """Whether a data frame with these labels has all columns."""
    return set(expand_parts(columns, labels).values()) <= set(labels)


@in_python()
def _columns(
    X: Any, roles: Sequence[str], columns: Columns, optional: Sequence[str] = ()
) -> RatingArrays:
    """Return columns by role.

    `columns` maps roles to labels of a data frame, which may have columns of `optional` roles, too.
    An array, or a data frame whose labels are numbers, has one column for each role, in the order
    of roles.
    """
    if hasattr(X, "columns"):
        return _frame_columns(X, roles, columns, optional)
    return RatingArrays(array_columns(X, roles, advice=_advice_on_matrices(roles)), labels={})


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
) -> RatingArrays:
    """Return the columns of a data frame by role."""
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
    return RatingArrays(
        {role: np.asarray(X[label]) for role, label in found.items()},
        labels={role: str(label) for role, label in found.items()},
    )


@contextmanager
def _advising_index(X: Any) -> Iterator[None]:
    """Context in which errors about columns say how the index of a data frame becomes columns."""
    try:
        yield
    except InputError as error:
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


def _convert_names(columns: dict[str, Array]) -> None:
    """Convert the names in columns by role, as `typed_names` does."""
    for role, column in columns.items():
        if main_role(role) in NAMED_ROLES:
            columns[role] = typed_names(column, main_role(role))


def typed_names(column: Array, role: str) -> Array:
    """Convert a column of names to an int64 array or to an object array of str."""
    if column.dtype.kind == "S":
        column = np.char.decode(column)
    if column.dtype == object:
        missing = [is_missing(value) or value == "" for value in column]
        _refuse_rows(np.array(missing, bool), f"{role} name")
        inferred = np.array(column.tolist())
        if inferred.dtype.kind in "iuf":
            column = inferred
    if column.dtype.kind == "f":
        _refuse_rows(~np.isfinite(column), f"{role} name")
        refuse_rounded(column, role)
        rows = np.flatnonzero(column % 1)
        if len(rows):
            raise InputError(
                f"names of {role}s must be integers or text; row {rows[0]} has {column[rows[0]]}"
            )
    if column.dtype.kind in "if" or (column.dtype.kind == "u" and (column < 2**63).all()):
        return column.astype(np.int64)
    if column.dtype.kind == "M":
        _refuse_rows(np.isnat(column), f"{role} name")
    return np.array([str(value) for value in plain_values(column)], dtype=object)


def ratings_source(
    X: Any,
    y: Any = None,
    form: InputForm = ANY_FORM,
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
    if form.columns is not None and not hasattr(as_frame(X), "columns"):
        raise InputError(
            f"columns={form.columns!r} is for files and data frames; columns of arrays are user,"
            " item, rating"
        )
    found = read_ratings(X, y, form, timed=timed, ordered=True)
    table = _table_of(found.columns)
    names = [found.labels.get(role, role) for role in found.columns]
    return table._replace(
        file=replace(table.file, names=names),
        about=found.about,
        left_out=found.left_out,
        unrated=found.unrated,
        labels=found.labels,
        reading=form.reading._replace(matrix=bool(found.about)),
        odd=found.odd,
        weightless=found.weightless,
    )
