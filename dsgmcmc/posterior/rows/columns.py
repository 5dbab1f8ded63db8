"""How new ratings are read for a run: by which columns, in the arrangement of its ratings."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import array_columns, is_wide
from dsgmcmc.input.roles import CONTEXT, NO_COLUMN, names_pairs
from dsgmcmc.input.sources.limits import limits_in, limits_of_annotated
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.frames import Frame, as_frame
from dsgmcmc.tables.usual import Columns

#: Column of the weights that `BPMF.fit` is given beside the ratings.
SAMPLE_WEIGHT = "sample_weight"


def form_of_run(run: Run, form: Reading, X: Any = None, y: Any = None) -> Reading:
    """Return how ratings in memory are read: as the form says, or else as those of the run.

    A data frame X is a matrix, as the ratings of the run were, unless it has the usual columns of
    users and items.
    """
    said = run.reading
    labels = getattr(as_frame(X), "columns", None)
    if form.matrix is None and said.matrix and labels is not None and y is None:
        form = form._replace(matrix=not names_pairs(labels))
    if form.matrix and not form.columns and labels is not None:
        form = form._replace(columns=column_of_users(run, set(map(str, labels))))
    return form._replace(
        missing=form.missing or said.missing,
        variable=form.variable or said.variable,
        unstored=form.unstored or said.unstored,
        ignore=form.ignore or said.ignore,
        decimal=form.decimal or said.decimal,
        duplicates=form.duplicates or said.duplicates,
        remembered=True,
    )


def form_of_new(run: Run, form: Reading, X: Any, y: Any = None) -> Reading:
    """Return how new ratings X in memory are read, given the form of the model.

    Those of a table of three directions have its columns, in the arrangement of the run. A data
    frame may have other columns of the run's ratings, too, unless the form says otherwise.
    """
    form = form_of_run(run, form, X, y)
    if X is None or is_wide(X, y, form):
        return form
    if run.directions:
        form = form._replace(columns=_arranged_columns(run, form.columns))
    found_in = {str(label) for label in getattr(as_frame(X), "columns", ())}
    return form._replace(columns=_with_named_columns(run, form.columns, found_in))


def with_limits(run: Run, form: Reading) -> Reading:
    """Return how AnnData is read: with the limits of the form, or else those of the run's AnnData.

    What has them is named alike in both.
    """
    limits = limits_of_annotated(run.columns) | limits_in(form.columns)
    return form._replace(columns=limits)


def column_of_users(run: Run, names: Set[str]) -> Columns:
    """Return the column that names the rows of a matrix with these columns, by role.

    It is that of the run's ratings, if users have said so and the matrix has it; else none.
    """
    column = run.reading.columns.get("user")
    if isinstance(column, str) and (column in names or (column.isdecimal() and not names)):
        return {"user": column}
    return {}


def columns_of_file(run: Run, columns: Columns, names: Set[str]) -> Columns:
    """Return columns of new ratings in a file with these columns by role, as `form_of_new` does.

    Without a header they are at the positions that users have said of the run's ratings.
    """
    if run.directions:
        columns = _arranged_columns(run, columns)
    if not columns and not names:
        return run.reading.columns
    return _with_named_columns(run, columns, names)


def _arranged_columns(run: Run, columns: Columns) -> Columns:
    """Return columns of new ratings by role, in the arrangement of a run."""
    others = {role: column for role, column in columns.items() if role != CONTEXT}
    return others | run.labels


def _with_named_columns(run: Run, columns: Columns, found_in: Set[str]) -> Columns:
    """Return columns of new ratings by role, with those of the run's ratings that a table has."""
    found = dict(columns)
    if run.reading.columns.get("rating") == NO_COLUMN:
        found.setdefault("rating", NO_COLUMN)
    for role, name in run.columns.items():
        if role not in (*ENTITIES, *columns) and name in found_in:
            found[role] = name
    for entity, labels in run.labels.items():
        if entity not in columns and labels and set(labels) <= found_in:
            found[entity] = labels
    return found


def frame_of_parts(run: Run, X: Any, y: Any = None) -> Any:
    """Return an array of new ratings as a data frame, if names of the run have several parts.

    The array has a column for each part of users and items, or for each direction of a table of
    three directions, and then the ratings, unless they are in `y`. Other objects are returned
    unchanged. Raises InputError if the array has another number of columns.
    """
    if not isinstance(X, np.ndarray | list | tuple):
        return X
    if not any(run.vocabulary(entity).parts for entity in ENTITIES):
        return X
    labels = list(run.directions)
    if not labels:
        labels = [label for of_entity in run.labels.values() for label in of_entity]
    if y is None:
        labels.append(run.columns.get("rating", "rating"))
    return Frame(array_columns(X, labels))


def frame_with_weights(X: Any, y: Any, sample_weight: Any, form: Reading) -> Frame:
    """Return ratings, one a row, as a data frame with a column of weights.

    Raises InputError if they are in another form, or the weights have another shape.
    """
    frame = as_frame(X)
    labels = getattr(frame, "columns", None)
    is_table = labels is not None or getattr(frame, "ndim", 0) == 2
    if not is_table or hasattr(X, "tocoo") or is_wide(X, y, form):
        raise InputError(
            "sample_weight has the weights of ratings, one a row: give pairs and ratings, or a data"
            " frame with a row for each rating; elsewhere, columns='weight=W'"
        )
    if "weight" in form.columns:
        raise InputError("columns names a column of weights: leave out sample_weight")
    if labels is None:
        roles = ["user", "item", "timestamp"]
        if y is None:
            roles.insert(2, "rating")
        columns = array_columns(np.asarray(X), roles[: np.shape(X)[1]])
    else:
        columns = {str(label): np.asarray(frame[label]) for label in labels}
    if y is not None:
        columns["rating"] = np.asarray(y)
    weights = np.asarray(sample_weight, np.float64)
    n_ratings = len(next(iter(columns.values())))
    if weights.shape != (n_ratings,):
        raise InputError(
            f"there are {n_ratings} ratings, but the weights have the shape {weights.shape}"
        )
    return Frame({**columns, SAMPLE_WEIGHT: weights})


def form_with_weights(form: Reading, X: Any) -> Reading:
    """Return how ratings are read that may be those of `frame_with_weights`."""
    if not isinstance(X, Frame) or SAMPLE_WEIGHT not in X.columns:
        return form
    return form._replace(columns={**form.columns, "weight": SAMPLE_WEIGHT})


def refuse_columns(X: Any, y: Any, form: Reading) -> None:
    """Raise InputError if an object in memory has columns, or dimensions, that cannot be found."""
    columns = form.columns
    dimensions = [str(dimension) for dimension in getattr(X, "dims", ())]
    user = columns.get("user")
    if len(dimensions) == 2 and user in dimensions:
        order = ", ".join(map(repr, sorted(dimensions, key=lambda name: name != user)))
        raise InputError(
            f"columns: {user} is a dimension of X, whose first dimension has the users: leave it"
            f" out, and give X.transpose({order})"
        )
    labels = list(map(str, getattr(X, "columns", ())))
    if (labels or dimensions) and is_wide(X, y, form):
        others = [role for role in columns if role != "user"]
        if others:
            raise InputError(
                f"columns: a matrix has a column for each item, and none for {others[0]}: give"
                " user=NAME alone, or a data frame with a row for each rating"
            )
        return
    repeated = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if repeated:
        raise InputError(
            f"X has {labels.count(repeated[0])} columns {repeated[0]!r}: rename all but one, or"
            " leave them out"
        )
