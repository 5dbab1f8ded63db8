"""A fitted model with the conventions of scikit-learn, and `open_run`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, Self

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.fitted_rows import open_rows
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.fitted.matrices import Matrices
from dsgmcmc.posterior.fitted.predictions import Predictions
from dsgmcmc.posterior.fitted.rankings import Rankings
from dsgmcmc.posterior.fitted.state import renewing
from dsgmcmc.posterior.item_parameters import (
    Unit,
    UserRows,
    item_dimensions,
    item_parameters,
    ratings_of_fit,
    user_parameters,
)
from dsgmcmc.posterior.loadings import Loadings, loadings
from dsgmcmc.posterior.matrix.axis import names_in_order
from dsgmcmc.posterior.matrix.labels import RowsOf
from dsgmcmc.posterior.rows.columns import form_of_new
from dsgmcmc.posterior.rows.new_ratings import NewRatings, describe_new
from dsgmcmc.tables.result import Table
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array


class FittedModel(Predictions, Matrices, Rankings):
    """Methods of a fitted or loaded `dsgmcmc.BPMF`, and of the result of `dsgmcmc.open_run`.

    Pairs, ratings and names may be given as data frames (pandas, polars or others with labelled
    columns). Predictions are arrays, as for scikit-learn's regressors. `recommend` returns a data
    frame if its users are a data frame, and otherwise a `dsgmcmc.tables.result.Table`;
    `similar` always returns a Table. A pickled model contains the files of its run and its ratings
    file.

    Attributes
    ----------
    run_ : Run
        The run, with moments, draws and traces by users and items.
    clip : bool
        Whether to clip predictions to the range of the levels, if any, and those of counts and of
        amounts with zeros at 0.
    unknown : {"prior", "refuse"}
        Treatment of users and items that are unknown to the run: predict from the prior, or raise
        an error.
    columns : str, optional
        Columns of data frames that do not have usual names, such as ``user=U,item=I``.
    matrix, missing : optional
        Form of new ratings, and values that mean *not rated*, as in `BPMF`.
    """

    def fold_in(
        self,
        X: object = None,
        y: object = None,
        *,
        kind: Literal["user", "item"] = "user",
        features: object = None,
        rows: RowsOf | None = None,
    ) -> Self:
        """Return a model with new ratings and features of users, known or new.

        Nothing is sampled again. The posterior of the rows of these users is exact given each saved
        draw of the items (`dsgmcmc.posterior.rows.added`). The original model does not change.
        Ratings and features that cannot be used, such as ratings of unknown items, are left out
        with a warning.

        Parameters
        ----------
        X, y
            Ratings as for `BPMF.fit`, except files; optional for users whose features are given.
        kind : {"user", "item"}
            Side whose rows are computed; with "item", known users rate known or new items.
        features : optional
            Features of these users (or items), in the form of `user_features` of `BPMF`, with the
            columns from which the features of the run were made. A sparse matrix needs names beside
            it, ``(names, matrix)``, unless all its rows, by their numbers, are new.
        rows : {"training"}, optional
            As for `complete`. New rows of a matrix that have no labels are numbered.

        Returns
        -------
        A model with the same methods.

        Raises
        ------
        InputError
            If ratings or features are invalid, none can be used, or the run has no draws.
        """
        model = object.__new__(type(self))
        vars(model).update(vars(self))
        return model.update(X, y, kind=kind, features=features, rows=rows)

    def update(
        self,
        X: object = None,
        y: object = None,
        *,
        kind: Literal["user", "item"] = "user",
        features: object = None,
        rows: RowsOf | None = None,
    ) -> Self:
        """Fold in new ratings and features as `fold_in` does, but in place.

        The last rating of a pair counts.
        """
        for note in self._add(X, y, kind, features=features, rows=rows):
            warn(note)
        return self

    @renewing
    def _add(
        self, X: object, y: object, entity: str, *, features: object, rows: RowsOf | None
    ) -> list[str]:
        """Fold in new ratings and features in addition to earlier ones; return notes."""
        run = self._fitted()
        if X is None and features is None:
            raise InputError("nothing to fold in: give ratings, features, or both")
        ratings = None
        notes = []
        if X is not None:
            ratings, names = self._read_ratings(X, y, rows)
            if names is not None:
                names.refuse_clashes()
                if entity == "item" and names.are_made:
                    raise InputError(
                        "items are folded in by the ratings of known users, and the rows of X have"
                        " no labels that the training has: give rows='training', or their labels"
                    )
                note = names.note(f"and have the names {names.shown}")
                notes = [] if note is None else [note]
        described = {}
        if features is not None:
            columns = form_of_new(run, self._form(), X, y).columns
            described = describe_new(run, entity, features, columns)
        new = NewRatings.of(run, entity, ratings, described)
        doubts = new.doubts(run)
        self._adopt(self._rows.with_new(new))
        return [*notes, *doubts, *self._rows.notes]

    @renewing
    def loadings(self, *, target: object = None) -> Loadings:
        """Return loadings of items and scores of users, in one orientation of all draws and chains.

        Latent dimensions of draws differ by rotations; here they are rotated to their mean, which
        is rotated by varimax (`dsgmcmc.posterior.loadings`). Tables have the order of the training
        matrix, or else of names.

        Parameters
        ----------
        target : (n, K) array, optional
            For each item, in the order of the table, which factors it belongs to: 1, or 0. Factors
            are then correlated, and have as little of the other items as possible.

        Returns
        -------
        Loadings
            ``items`` and ``users`` (a `Table` each, with means and sds), ``share`` of the variance
            by factor, ``n_factors`` that hold 99 % of it, and the ``correlation`` of factors.

        Raises
        ------
        InputError
            If the run has no saved draws or no factors, or the target does not fit.
        """
        users, items = map(self._names_in_order, ENTITIES)
        return loadings(self._fitted(), items=items, users=users, target=target)

    @renewing
    def item_dimensions(self, *, target: object = None) -> Loadings:
        """Return slopes and intercepts of items of ordered levels, the ability among the factors.

        They are mirt's a and d, as `loadings` returns loadings (`item_dimensions` of
        `dsgmcmc.posterior.item_parameters`). `target` has a column for the ability, too.

        Raises
        ------
        InputError
            If ratings are not ordered levels, or the target does not fit.
        """
        users, items = map(self._names_in_order, ENTITIES)
        return item_dimensions(self._fitted(), items=items, users=users, target=target)

    @renewing
    def item_parameters(self, *, fit: bool = True, unit: Unit = "logit") -> Table:
        """Return difficulties, thresholds and discriminations of items, with their sds.

        They are in the order of the columns of the training matrix, or else of their names.

        Parameters
        ----------
        fit : bool
            Whether to add ``infit``, ``outfit`` and ``p`` of every item, from the test ratings or,
            if there are none, from the training ratings.
        unit : {"logit", "sd"}
            Logits of an average item, or sds of the abilities at every draw.

        Returns
        -------
        Table
            The columns of `dsgmcmc.posterior.item_parameters.item_parameters`.

        Raises
        ------
        InputError
            If ratings are not ordered levels.
        """
        run = self._fitted()
        ratings = ratings_of_fit(run) if fit else None
        return item_parameters(run, ratings, names=self._names_in_order("item"), unit=unit)

    @renewing
    def user_parameters(self, *, draws: int = 0, unit: Unit = "logit") -> Table:
        """Return the abilities of users, relative to their mean, with their sds.

        They are in the order of the rows of the training matrix, of which those without answers
        have their prior; those that were folded in follow. Without a matrix, names are sorted.

        Parameters
        ----------
        draws : int
            Number of plausible values of every user, in place of mean and sd.
        unit : {"logit", "sd"}
            As for `item_parameters`.

        Returns
        -------
        Table
            The columns of `dsgmcmc.posterior.item_parameters.user_parameters`.

        Raises
        ------
        InputError
            If ratings are not ordered levels, or the run has fewer draws.
        """
        run = self._fitted()
        users = UserRows(run, self._rows.newcomers, self._names_in_order("user"))
        return user_parameters(run, users, draws=draws, unit=unit)

    def _names_in_order(self, entity: str) -> Array | None:
        """Return the names of the training matrix in its order; None if it was no matrix."""
        names = self._training.names(entity)
        if names is None:
            names = names_in_order(self._fitted(), entity)
        return names

    @renewing
    def to_arviz(self, *others: FittedModel, training: bool = False) -> Any:
        """Return the run as an xarray.DataTree (`dsgmcmc.posterior.export.to_datatree`).

        With `training`, log likelihoods are those of the training ratings, for ArviZ's ``loo``.

        With `others`, models of the same ratings with other seeds, it has the chains of all, as
        that of `open_run` of their runs.
        """
        from dsgmcmc.posterior.export import to_datatree

        run = self._fitted()
        if others:
            paths = [path for model in (self, *others) for path in model._fitted().paths]
            run = open_rows(paths, run.data).run
        return to_datatree(run, training=training)


def open_run(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    data: str | PathLike[str] | None = None,
) -> FittedModel:
    """Open a run directory, written by ``dsgmcmc sample`` or by `BPMF.fit` with `out`.

    Several runs of the same ratings and settings with other seeds are opened as one, whose chains
    are those of all: predictions are averages over all draws, in which each chain has one weight.

    If the run is still being sampled, or was killed, the draws saved by the newest checkpoint are
    used; moments and monitored predictions are available once the run has ended.

    Parameters
    ----------
    path : path of a run directory, or a list of several
    data : path, optional
        Ratings file of the run, if it was moved; only `FittedModel.recommend` and new ratings of
        known users need it.

    Returns
    -------
    FittedModel
        Has the methods of a loaded `BPMF`; its ``run_`` has moments, draws and traces.

    Raises
    ------
    InputError
        If a directory is not a run, has no draws yet, or is damaged; or if runs have other ratings
        or settings, or the same seed.
    """
    return FittedModel(path, data)
