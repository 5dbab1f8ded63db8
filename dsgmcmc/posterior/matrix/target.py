"""The matrix that `complete` fills in: that of the training ratings, or another one.

The columns of another matrix are matched by their labels, or by position if it has none; its rows
by their labels (`dsgmcmc.posterior.matrix.labels`). New rows are folded in, as are cells of known
rows that were not in the training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import name_column
from dsgmcmc.input.matrices import Matrix, fill_in, read_matrix, refuse_first_column
from dsgmcmc.input.roles import expand_parts
from dsgmcmc.input.sources.annotated import cells_of, data_array_of, is_annotated
from dsgmcmc.input.sources.numbers import are_codes, stand_in
from dsgmcmc.posterior.index import listed
from dsgmcmc.posterior.matrix.axis import axis_of
from dsgmcmc.posterior.matrix.complete import Completion
from dsgmcmc.posterior.matrix.known import BoundedCells, KnownCells, as_written, since_the_fit
from dsgmcmc.posterior.matrix.labels import RowNames, RowNaming, names_of_training
from dsgmcmc.posterior.rows.columns import with_limits
from dsgmcmc.posterior.rows.new_ratings import NewRatings, warn_without_weights
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.reading import NOTHING_SAID, Reading
from dsgmcmc.tables.result import Table
from dsgmcmc.tables.usual import Columns
from dsgmcmc.types import Array, Float64, Int32


class TrainingData(NamedTuple):
    """What `BPMF.fit` was given, as far as its matrix can be given back.

    Attributes
    ----------
    matrix : optional
        The matrix of ratings; None if the ratings had another form.
    form : Reading
        How the matrix was read.
    library : str or None
        Library of the data frame, if the ratings were one with a row for each rating.
    """

    matrix: Any = None
    form: Reading = NOTHING_SAID
    library: str | None = None

    def read(self) -> Matrix | None:
        """Read the matrix; None without one."""
        if self.matrix is None:
            return None
        return read(self.matrix, self.form)

    def names(self, entity: str) -> Array | None:
        """Return the names of the users (rows) or items of the matrix; None without one."""
        matrix = self.read()
        if matrix is None:
            return None
        names = np.array(matrix.labels)
        if entity == "user":
            names = names_of_training(matrix)
        _, first = np.unique(names, return_index=True)
        ids: Array = names[np.sort(first)]
        return ids


class NamedMatrix(NamedTuple):
    """A matrix that is completed, by names.

    Attributes
    ----------
    names : (n,) array
        Names of the rows.
    labels : (J,) array
        Names of the columns.
    values : (n, J) float64
        Known cells; NaN in the others.
    build : callable
        Returns a matrix of the type and with the labels of this one, given its values.
    bounded : BoundedCells, optional
        Cells that are known only by bounds, among the holes.
    """

    names: Array
    labels: Array
    values: Float64
    build: Callable[[Float64], Any]
    bounded: BoundedCells | None = None

    def complete(
        self,
        completion: Completion,
        users: Int32,
        *,
        draws: int = 0,
        sd: bool = False,
        fitted: bool = False,
        noise: bool = True,
    ) -> tuple[list[Any], Any]:
        """Return matrices with their holes filled, or, if `fitted`, with all cells predicted.

        There is one with expected ratings, or `draws` matrices with draws of new ratings or,
        without `noise`, of expected ratings. The second result are the standard deviations of a new
        rating in each cell, if `sd`: known cells have 0, unless they are `fitted`. `values` become
        those of the first matrix. `users`, (n,), are the indices of the rows.
        """
        if draws:
            completion.need_draws(draws, noise=noise)
        matrices = [self.values, *(self.values.copy() for _ in range(draws - 1))]
        sds = np.empty(self.values.shape if sd else 0)
        bounded = None if fitted else self.bounded
        others = ["sd"] if sd else []
        for block in completion.filled(users, bounded, draws=draws, others=others, noise=noise):
            cells = matrices[block.number][block.rows]
            if not fitted:
                block = block.keeping(cells)
            if sd:
                sds[block.rows] = block.values["sd"]
            cells[:] = block.values["rating"]
        built = [self.build(values) for values in matrices]
        if sd:
            return built, self.build(sds)
        return built, None

    def new_ratings(self, run: Run, known: KnownCells) -> NewRatings | None:
        """Return the cells of items of the run that are not among the known ones; None if none."""
        users = run.users.index_of(self.names)
        items = run.items.index_of(self.labels)
        values, bounds = self._with_bounds()
        is_new = ~np.isnan(values)
        is_new[:, items < 0] = False
        rows = np.flatnonzero(users >= 0)
        if len(rows):
            stored = known.of(users[rows], items)
            is_new[rows] &= values[rows].astype(np.float32) != stored
            same = known.bounded(users, items)
            if same is not None:
                at = (same.row, same.column)
                is_same = (bounds[0][at].astype(np.float32) == same.lower) & (
                    bounds[1][at].astype(np.float32) == same.upper
                )
                is_new[at] &= ~is_same
        row, column = np.nonzero(is_new)
        if not len(row):
            return None
        warn_without_weights(run)
        of_new = None
        if self.bounded is not None:
            of_new = bounds[:, row, column].T
        return NewRatings(
            entity="user",
            names=self.names[row],
            others=self.labels[column],
            values=values[row, column],
            weights=np.ones(len(row)),
            described={},
            bounds=of_new,
        )

    def _with_bounds(self) -> tuple[Float64, Float64]:
        """Return values, between the bounds of cells that have some, and all bounds, (2, n, J)."""
        values = self.values.copy()
        bounds = np.stack([values, values])
        if self.bounded is not None:
            at = (self.bounded.row, self.bounded.column)
            bounds[0][at] = self.bounded.lower
            bounds[1][at] = self.bounded.upper
            values[at] = stand_in(self.bounded.lower, self.bounded.upper)
        return values, bounds


def read(X: Any, form: Reading) -> Matrix:
    """Read a matrix; what a SciPy sparse matrix does not store is a hole.

    Raises InputError if it is no matrix, if two columns have one label or two rows have one name,
    or if a cell is infinite.
    """
    if is_annotated(X) or hasattr(X, "tocoo"):
        cells = cells_of(X, form)
        labels = list(range(cells.shape[1]))
        if cells.items is not None:
            labels = cells.items.tolist()
        bounds = cells.filled_bounds()
        matrix = Matrix(cells.users, labels, cells.filled(), None, cells.about, bounds=bounds)
    else:
        matrix = read_matrix(X, form)
    for names, what in ((matrix.labels, "columns"), (matrix.names, "rows")):
        if names is not None and len(set(map(str, names))) < len(names):
            raise InputError(f"two {what} of the matrix have the same name: rename one of them")
    matrix.values[are_codes(matrix.values, form.missing)] = np.nan
    if np.isinf(matrix.values).any():
        raise InputError("the matrix has infinite cells: only NaN is a hole")
    return matrix


def training_matrix(run: Run, training: TrainingData, known: KnownCells) -> NamedMatrix:
    """Return the training matrix, with the known cells as they were given.

    If the ratings were no matrix in memory, it has all users and items in the order of `axis_of`,
    and becomes a table.
    """
    matrix = training.read()
    if matrix is None:
        return _by_names(run, training.library, known)
    names = names_of_training(matrix)
    labels = np.array(matrix.labels)
    users = run.users.index_of(names)
    items = run.items.index_of(labels)
    stored = known.of(users, items)
    values = since_the_fit(matrix.values, stored)
    build = partial(_build, training.matrix, matrix.others)
    return NamedMatrix(names, labels, values, build, known.bounded(users, items))


def _by_names(run: Run, library: str | None, known: KnownCells) -> NamedMatrix:
    """Return the matrix of all users and items of a run, in the order of `axis_of`.

    Raises InputError if an item has the name of the column of users.
    """
    names, users, heading = axis_of(run, "user")
    labels, items, _ = axis_of(run, "item")
    if heading in labels.tolist():
        raise InputError(
            f"an item is named {heading!r}, as is the column of users: give complete a matrix X"
            " with the users in its index"
        )
    values = as_written(known.of(users, items))
    columns_of = partial(_wide_table, heading)
    if run.users.parts or run.items.parts:
        columns_of = partial(_long_table, run)

    def build(values: Float64) -> Any:
        table = Table(columns_of(names, labels, values))
        if library is None:
            return table
        return table.frame_of(library)

    return NamedMatrix(names, labels, values, build, known.bounded(users, items))


def _wide_table(heading: str, names: Array, labels: Array, values: Float64) -> dict[str, Array]:
    """Return a column of users, with this heading, and one for each item."""
    columns = {heading: names}
    for label, column in zip(labels.tolist(), values.T, strict=True):
        columns[str(label)] = column
    return columns


def _long_table(run: Run, names: Array, labels: Array, values: Float64) -> dict[str, Array]:
    """Return a row for each pair of a user and an item, with a column for each part of a name."""
    return {
        **run.users.table(np.repeat(names, len(labels))),
        **run.items.table(np.tile(labels, len(names))),
        "rating": values.ravel(),
    }


def other_matrix(X: Any, form: Reading, naming: RowNaming) -> NamedMatrix:
    """Return another matrix.

    Raises InputError if X is no matrix, or its rows or columns do not match those of the model.
    """
    run = naming.run
    trained = naming.trained
    if is_annotated(X):
        form = with_limits(run, form)
    elif trained is None:
        form = form._replace(columns=_column_of_users(X, form.columns))
    X = data_array_of(X, form)
    matrix = read(X, form)
    build = partial(_build, X, matrix.others)
    if matrix.names is None and not hasattr(X, "columns"):
        matrix = matrix._replace(labels=_labels_by_position(matrix, trained))
    labels = np.array(matrix.labels)
    if (run.items.index_of(labels) < 0).all():
        raise InputError(f"the model knows none of the columns: {listed(labels.tolist())}")
    names = naming.names(matrix).names
    values = matrix.values
    bounded = None
    if matrix.bounds is not None:
        row, column = np.nonzero(~np.isnan(matrix.bounds[0]))
        lower, upper = matrix.bounds[:, row, column]
        bounded = BoundedCells(row, column, lower, upper, np.ones(len(row)))
        values[row, column] = np.nan
    return NamedMatrix(names, labels, values, build, bounded)


def label_ratings(X: Any, form: Reading, naming: RowNaming) -> tuple[dict[str, Array], RowNames]:
    """Return the ratings of a second matrix X, and the names of its rows, as `complete` has them.

    Raises InputError if two rows or columns have one name, or rows cannot be named.
    """
    if is_annotated(X):
        form = with_limits(naming.run, form)
    matrix = read(data_array_of(X, form), form)
    if naming.trained is not None and matrix.names is None and not hasattr(X, "columns"):
        matrix = matrix._replace(labels=_labels_by_position(matrix, naming.trained))
    refuse_first_column(X, matrix)
    if matrix.names is not None:
        name_column(matrix.names, "user")  # refuses decimals, and what may be rounded
    found = naming.names(matrix)
    row, column = np.nonzero(~np.isnan(matrix.values))
    if not len(row):
        raise InputError("there are no ratings")
    cells = {
        "user": found.names[row],
        "item": np.array(matrix.labels)[column],
        "rating": matrix.values[row, column],
    }
    if matrix.bounds is not None:
        cells["lower"], cells["upper"] = matrix.bounds[:, row, column]
    return cells, found


def _column_of_users(X: Any, columns: Columns) -> Columns:
    """Return which column of a matrix names its rows, given the columns of a table of ratings.

    It is empty if the matrix has no such column: its rows are then named as without `columns`.
    """
    labels = [str(label) for label in getattr(X, "columns", ())]
    asked = {role: name for role, name in columns.items() if role == "user"}
    found = expand_parts(asked, labels)
    if not found or not set(found.values()) <= set(labels):
        return {}
    return asked


def _labels_by_position(matrix: Matrix, trained: Matrix | None) -> list[Any]:
    """Return the labels of the training matrix for a matrix whose columns have none."""
    if trained is None:
        raise InputError(
            "the columns of X have no names, and the model was not fitted to a matrix: give a data"
            " frame"
        )
    expected = len(trained.labels)
    found = len(matrix.labels)
    if found != expected:
        raise InputError(f"X has {found} features, but BPMF is expecting {expected} features")
    return trained.labels


def _build(X: Any, others: Sequence[int], values: Float64) -> Any:
    """Return a matrix like `X`; a dense array if X is a sparse matrix."""
    if hasattr(X, "tocoo"):
        return values
    return fill_in(X, others, values)
