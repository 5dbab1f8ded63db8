"""Whose row is it: the names of the rows and columns of a second matrix.

Rows have the labels of the user's object: those of its index, or of the column that names them.
Positions are labels only where an object has no others, and two objects without labels have nothing
in common: the rows of the second one are new, unless it is the training matrix itself, or the user
says that they are the rows of the training.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.matrices import Matrix
from dsgmcmc.posterior.index import Vocabulary, listed
from dsgmcmc.posterior.rows.added import FoldIn
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array

#: Whose the rows of a matrix are; by default their labels tell.
RowsOf = Literal["training"]


class RowNames(NamedTuple):
    """Names of the rows of a matrix, (n,).

    Attributes
    ----------
    names : (n,) array
    are_made : bool
        Whether the rows are new, and have names that nobody gave.
    clashing : list
        Labels that are also the numbers of rows of the training, which had no labels.
    """

    names: Array
    are_made: bool = False
    clashing: tuple[Any, ...] = ()

    def note(self, becomes: str) -> str | None:
        """Return a note on rows whose names nobody gave; None without any."""
        if not self.are_made:
            return None
        return (
            f"the rows of X have no labels that the training has, so they are new, {becomes}:"
            " rows='training' says that they are the rows of the training"
        )

    @property
    def shown(self) -> str:
        """The first and the last name, as text."""
        return f"{self.names[0]} to {self.names[-1]}"

    def refuse_clashes(self) -> None:
        """Raise InputError, with both readings, if a new row would have the name of another one."""
        if self.clashing:
            raise InputError(
                f"the training rows have no labels, and by their positions {len(self.clashing):,}"
                f" rows of X may be users that the model knows: {listed(list(self.clashing))}. If"
                " they are, give rows='training'; if they are new, leave out their labels"
                " (X.reset_index(drop=True)), or give others"
            )


class RowNaming(NamedTuple):
    """How the rows of a second matrix get their names.

    Attributes
    ----------
    run : Run
    trained : Matrix or None
        The training matrix, if it is in memory.
    rows : {"training"}, optional
        Whether they are the rows of the training, in its order if they have no labels.
    taken : FoldIn, optional
        Rows that were folded in before, whose names are not given again.
    """

    run: Run
    trained: Matrix | None
    rows: RowsOf | None = None
    taken: FoldIn | None = None

    def names(self, matrix: Matrix) -> RowNames:
        """Return the names of the rows of a matrix.

        Raises InputError if they cannot be the rows of the training, although the user says so, or
        if rows without labels need names of several parts.
        """
        if self.rows is not None and self.rows != "training":
            raise InputError(f"rows={self.rows!r}: expected 'training', or nothing")
        if self.rows is not None:
            return RowNames(_training_names(self.run, self.trained, matrix))
        trained = self.trained
        users = self.run.users
        number = len(matrix.values)
        if matrix.names is None:
            if trained is not None and are_equal(matrix, trained):
                return RowNames(names_of_training(trained))
            return _made_names(users, number, self.taken)
        is_said = matrix.position is not None  # a column names users, as in a table of ratings
        if is_said or not are_rows_numbered(self.run, trained):
            return RowNames(matrix.names)
        try:
            known = users.index_of(matrix.names) >= 0
        except InputError:  # texts are no names beside numbers
            return _made_names(users, number, self.taken)
        if not known.any():
            return RowNames(matrix.names)
        made = _made_names(users, number, self.taken)
        return made._replace(clashing=tuple(matrix.names[known].tolist()))


def are_equal(matrix: Matrix, trained: Matrix) -> bool:
    """Whether two matrices have the same columns and the same cells."""
    same_labels = list(map(str, matrix.labels)) == list(map(str, trained.labels))
    return same_labels and np.array_equal(matrix.values, trained.values, equal_nan=True)


def are_rows_numbered(run: Run, trained: Matrix | None) -> bool:
    """Whether the rows of the training matrix had no labels, so that their names are positions.

    `trained` is None if that matrix is not in memory.
    """
    if trained is not None:
        return trained.names is None
    ids = run.users.ids
    is_counted = run.users.integers and np.array_equal(np.sort(ids), np.arange(len(ids)))
    return is_counted and bool(run.reading.matrix)


def names_of_training(trained: Matrix) -> Array:
    """Return the names of the rows of the training; without any, they are numbered."""
    if trained.names is None:
        return np.arange(len(trained.values))
    return trained.names


def _training_names(run: Run, trained: Matrix | None, matrix: Matrix) -> Array:
    """Return the names of the rows of a matrix, which are those of the training."""
    if matrix.names is not None:
        run.users.index_of(matrix.names, refuse=True)
        return matrix.names
    if trained is not None:
        names = names_of_training(trained)
    elif are_rows_numbered(run, trained):
        names = np.arange(len(run.users))
    else:
        raise InputError(
            "rows='training': the rows of X have no labels, and the training matrix, which has"
            " their order, is not in memory: give a data frame with their labels in its index"
        )
    if len(matrix.values) != len(names):
        raise InputError(
            f"rows='training': X has {len(matrix.values):,} rows without labels, and the training"
            f" has {len(names):,}: give X all of them, or the labels of its rows"
        )
    return names


def _made_names(users: Vocabulary, number: int, taken: FoldIn | None) -> RowNames:
    """Return names for new rows: numbers from 0, or the next ones that nothing has."""
    if users.parts:
        raise InputError(
            f"the rows of X have no labels, and users are named by {' and '.join(users.parts)}:"
            " name them in the index of a data frame"
        )
    vocabularies = [users]
    if taken is not None and taken.entity == "user":
        vocabularies.append(taken.vocabulary)
    names = np.arange(number)
    while any((known.index_of(names) >= 0).any() for known in vocabularies):
        names += max(1, number)
        if users.integers:
            names = 1 + max(int(known.ids.max()) for known in vocabularies) + np.arange(number)
    return RowNames(names, are_made=True)
