"""A run, and the users or items whose ratings and features were folded in."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.index import refuse_unknown
from dsgmcmc.posterior.joined import open_runs
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.rows.added import FoldIn, fold_in, fold_in_parts, index_with, number_of_users
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions, Unknown
from dsgmcmc.types import Array, Int32


class UsersByRow(NamedTuple):
    """Users by row, (n,).

    Attributes
    ----------
    rows : (n,) int32
    newcomers : FoldIn or None
        The rows that were folded in, which follow those of the run.
    unknown : sequence
        Names of users of whom nothing is known, whose rows follow these.
    """

    rows: Int32
    newcomers: FoldIn | None
    unknown: Sequence[Any] = ()


class FittedRows:
    """The rows that predictions and lists use: those of a run, and those that were folded in.

    They do not change. Predictors and ratings that were read are kept.

    Parameters
    ----------
    run : Run
    new : NewRatings, optional
        Ratings and features to fold in.

    Attributes
    ----------
    newcomers : FoldIn or None
        The rows that were folded in.
    notes : list of str
        What was left out of the new ratings and features.
    """

    def __init__(self, run: Run, new: NewRatings | None = None) -> None:
        self.run = run
        self.new = new
        self.newcomers: FoldIn | None = None
        self.notes: list[str] = []
        if new is not None:
            self.newcomers, self.notes = fold_in(run, new)
        self._rated: Rated | None = None
        self._predictors: dict[PredictOptions, Predictor] = {}

    def with_new(self, new: NewRatings) -> FittedRows:
        """Return the rows with new ratings and features in addition to those before."""
        if self.new is not None:
            new = self.new.updated(new)
        return FittedRows(self.run, new)

    def reopened(self) -> FittedRows:
        """Return the rows of the run in its current state, with the same ratings folded in."""
        return FittedRows(open_rows(self.run.paths, self.run.data).run, self.new)

    def predictor(self, options: PredictOptions) -> Predictor:
        """Return what predicts pairs of these rows."""
        if options not in self._predictors:
            self._predictors[options] = Predictor(self.run, options, self.newcomers)
        return self._predictors[options]

    def users(self, names: list[Any], unknown: Unknown = "refuse") -> UsersByRow:
        """Return users by name; those that only the parts of their names tell are folded in.

        Raises InputError if a user is unknown, unless `unknown` is "prior".
        """
        users = self.run.users
        newcomers = fold_in_parts(self.run, names, self.new) or self.newcomers
        rows = index_with(users, names, newcomers)
        missing = users.typed(names)[rows < 0]
        if unknown == "refuse":
            refuse_unknown(users, missing)
        first = number_of_users(self.run, newcomers)
        rows[rows < 0] = first + np.arange(len(missing), dtype=np.int32)
        return UsersByRow(rows, newcomers, missing.tolist())

    def users_at(self, rows: Array) -> UsersByRow:
        """Return users of the run by row; those that were folded in have their new rows."""
        users = self.run.users
        if self.newcomers is not None:
            rows = index_with(users, users.ids[rows], self.newcomers)
        return UsersByRow(rows.astype(np.int32), self.newcomers)

    def rated(self, users: Int32) -> Rated:
        """Return the items that these users, by row, rated in training.

        The first time only theirs are read, because there may be no other time.
        """
        known = users[users < len(self.run.users)]
        if self._rated is None:
            self._rated = read_rated(self.run, known)
        elif not self._rated.has(known):
            self._rated = read_rated(self.run)
        return self._rated


def open_rows(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    data: str | PathLike[str] | None = None,
) -> FittedRows:
    """Open a run directory, or several as one run; `data` is the ratings file, if it was moved."""
    paths = [path] if isinstance(path, str | PathLike) else path
    run = open_runs(paths)
    if data is not None:
        run.data = Path(data)
    return FittedRows(run)
