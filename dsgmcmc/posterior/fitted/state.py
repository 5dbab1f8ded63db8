"""What the methods of a fitted model share: its run, rows that were folded in, and its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar

import numpy as np

from dsgmcmc.errors import AgreedError, InputError, not_fitted, retry_if_gone
from dsgmcmc.input.arrays import is_wide
from dsgmcmc.input.roles import parse_columns
from dsgmcmc.input.values import parse_missing
from dsgmcmc.posterior.cells.evaluate_file import read_rated_file
from dsgmcmc.posterior.cells.fitted_rows import FittedRows, open_rows
from dsgmcmc.posterior.files import copy_files, files_of, unpack
from dsgmcmc.posterior.heldout import score_test
from dsgmcmc.posterior.matrix.labels import RowNames, RowNaming, RowsOf
from dsgmcmc.posterior.matrix.target import TrainingData, label_ratings
from dsgmcmc.posterior.rows.columns import form_of_new, frame_of_parts
from dsgmcmc.posterior.rows.new_ratings import read_new
from dsgmcmc.posterior.run import Run
from dsgmcmc.prepare.reading import reading_of
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import in_python
from dsgmcmc.storage.files import without_scratch
from dsgmcmc.tables.result import Table, frame_like
from dsgmcmc.tables.usual import Columns
from dsgmcmc.types import Array, Float64

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def for_users() -> Iterator[None]:
    """Context in which messages use Python names, and not those of temporary files.

    An error that all processes raise together becomes an ordinary error.
    """
    with in_python():
        try:
            yield
        except InputError as error:
            if type(error) not in (InputError, AgreedError):
                raise  # users can tell it from others, and it names the disk that is full
            raise InputError(without_scratch(str(error))) from error.__cause__


def renewing(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method that reads files of a run, which a running job may remove.

    If it has, the run is reopened and the method repeated. Messages are those `for_users`.
    """
    return retry_if_gone(for_users()(method), lambda model: model._renew())


class FittedState:
    """A run, with what was folded in, and how data in memory are read; see `FittedModel`."""

    _training: TrainingData = TrainingData()
    _cube: object = None  # the DataArray of three dimensions that `fit` was given
    _library: str | None = None  # of data frames of ratings
    clip: bool = True
    unknown: Literal["prior", "refuse"] = "prior"
    columns: str | None = None
    matrix: bool | None = None
    missing: object = None
    variable: str | None = None
    unstored: Literal["missing", "zero", "limit"] | None = None
    ignore: str | Sequence[str] | None = None
    decimal: Literal[",", "."] | None = None
    unit: str | None = None

    def __init__(
        self,
        path: str | PathLike[str] | Sequence[str | PathLike[str]],
        data: str | PathLike[str] | None = None,
    ) -> None:
        self._adopt(open_rows(path, data))

    def __repr__(self) -> str:
        return repr(self._fitted())

    def _adopt(self, rows: FittedRows) -> Self:
        """Set the attributes of a fitted model from rows of a run."""
        self.run_: Run = rows.run
        self._rows: FittedRows = rows
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of columns of the training matrix; 2, user and item, if it was no matrix."""
        self._fitted()
        matrix = self._training.read()
        if matrix is None:
            return 2
        return len(matrix.labels)

    @property
    def users_(self) -> Array:
        """Original names of the users, (n,)."""
        return self._fitted().users.ids

    @property
    def items_(self) -> Array:
        """Original names of the items, (n,)."""
        return self._fitted().items.ids

    @property
    def mean_(self) -> float:
        """Constant that was subtracted from the ratings, or from their logarithms (scale log)."""
        return self._fitted().mean

    @property
    def levels_(self) -> Float64 | None:
        """Distinct values of the ratings, (R,) float64; None if there are more than 100."""
        levels = self._fitted().levels
        if levels is None:
            return None
        # the shortest decimals, because float32 stores 2.3 as 2.29999995
        return np.array([float(str(level)) for level in levels.astype(np.float32)])

    @property
    @renewing
    def rmse_(self) -> float | None:
        """RMSE on exact test ratings; None without any, for clicks, and before the run ends."""
        test = score_test(self._fitted())
        if test is None or not len(test.errors):
            return None
        return float(np.sqrt(np.mean(test.errors**2)))

    def _columns(self) -> str | Columns | None:
        """Return the columns of data frames, by role."""
        return self.columns

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise not_fitted("this BPMF is not fitted: call fit first, or BPMF.load a run")
        return self.run_

    def _form(self) -> Reading:
        """Return how ratings in memory are read."""
        return reading_of(self, parse_columns(self._columns()))

    def _read_ratings(
        self, X: object, y: object = None, rows: RowsOf | None = None
    ) -> tuple[dict[str, Array], RowNames | None]:
        """Read ratings for the run, from the columns that its own ratings had.

        The second result are the names of the rows, if X is a matrix.
        """
        run = self._fitted()
        if isinstance(X, str | PathLike):
            if y is not None:
                raise InputError(f"{X} has the ratings: leave out y")
            _refuse_rows(rows)
            return read_rated_file(run, Path(X), self._form().columns, self.missing), None
        X = frame_of_parts(run, X, y)
        form = as_told(form_of_new(run, self._form(), X, y), self.missing)
        if is_wide(X, y, form):
            return label_ratings(X, form, self._naming(rows))
        _refuse_rows(rows)
        return read_new(run, X, y, form), None

    def _naming(self, rows: RowsOf | None) -> RowNaming:
        """Return how the rows of a second matrix get their names."""
        return RowNaming(self._fitted(), self._training.read(), rows, self._rows.newcomers)

    def _need_sd(self) -> None:
        """Raise InputError if ratings have no standard deviation."""
        if self._fitted().config.law.transform.point_name != "mean":
            raise InputError(
                "under student-t, ratings on a log scale have no standard deviation: use"
                " predict_interval"
            )

    def _renew(self) -> None:
        """Reopen the run in its current state, and fold in the new ratings again."""
        self._fitted()
        self._adopt(self._rows.reopened())

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters, folded-in ratings, and files of the run and its ratings, by path."""
        run_attributes = ("run_", "_rows", "_scratch")
        state = {name: value for name, value in vars(self).items() if name not in run_attributes}
        if hasattr(self, "run_"):
            files = files_of(self.run_)
            contents = {name: path.read_bytes() for name, path in files.items()}
            state["_packed"] = (contents, self._rows.new)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        contents, new = state.pop("_packed", ({}, None))
        vars(self).update(state)
        if not contents:
            return
        self._scratch, run = unpack(contents)
        self._adopt(FittedRows(run, new))

    def _table(self, columns: dict[str, Array], example: object = None) -> Any:
        """Return columns as a data frame like `example`, or like the ratings; else as a Table."""
        table = frame_like(example, Table(columns))
        if type(table) is Table and self._library is not None:
            return table.frame_of(self._library)
        return table

    def save(self, path: str | PathLike[str]) -> None:
        """Save the run and its ratings, which `BPMF.load` and `open_run` open.

        Parameters
        ----------
        path : path
            New run directory; the ratings file is ``PATH.ratings.h5`` beside it.

        Raises
        ------
        InputError
            If one of them exists or cannot be written, or if ratings were folded in.
        """
        run = self._fitted()
        if self._rows.new is not None:
            raise InputError("a run has no folded-in ratings: pickle the model, which keeps them")
        copy_files(files_of(run), Path(path))


def as_told(form: Reading, missing: object) -> Reading:
    """Return a form with the words for missing ratings that a model was given, also if none."""
    if missing is None:
        return form
    return form._replace(missing=parse_missing(missing))


def check_draws(draws: object, of: str) -> None:
    """Raise InputError unless a number of draws, `of` something, is a whole number."""
    if not isinstance(draws, int | np.integer) or draws < 0:
        raise InputError(f"draws={draws!r}: expected a whole number of {of}")


def _refuse_rows(rows: RowsOf | None) -> None:
    """Raise InputError if the user says whose the rows of a table are that names its users."""
    if rows is not None:
        raise InputError("rows is for a matrix in memory; here users are named: leave it out")
