"""A fitted model with the conventions of scikit-learn, and `open_run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

import numpy as np

from dsgmcmc.errors import AgreedError, InputError, not_fitted, retry_if_gone
from dsgmcmc.input.arrays import InputForm, RatingArrays, list_names, read_pairs
from dsgmcmc.input.roles import parse_columns
from dsgmcmc.model.predictive.base import Prediction
from dsgmcmc.posterior.cells.evaluate import evaluate_ratings, refuse_clicks
from dsgmcmc.posterior.cells.evaluate_file import read_rated_file
from dsgmcmc.posterior.cells.fitted_rows import FittedRows, open_rows
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.files import copy_files, files_of, unpack
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.index import Vocabulary, refuse_unknown, unknown_names
from dsgmcmc.posterior.item_parameters import item_parameters, ratings_of_fit, user_parameters
from dsgmcmc.posterior.lists.ranking import Ranking
from dsgmcmc.posterior.lists.request import Request, joined, lists
from dsgmcmc.posterior.lists.similar import similar
from dsgmcmc.posterior.loadings import Loadings, loadings
from dsgmcmc.posterior.matrix.complete import (
    Completion,
    MatrixTarget,
    complete,
)
from dsgmcmc.posterior.matrix.known import KnownCells
from dsgmcmc.posterior.matrix.target import TrainingData, other_matrix, training_matrix
from dsgmcmc.posterior.matrix.three_way import CellCompletion
from dsgmcmc.posterior.rows.added import FoldIn
from dsgmcmc.posterior.rows.columns import form_of_new, form_of_run, frame_of_parts
from dsgmcmc.posterior.rows.new_ratings import NewRatings, bounds_of, observed_of, read_new
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import By, PredictOptions
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.settings import in_python
from dsgmcmc.storage.files import without_scratch
from dsgmcmc.tables.result import Table, frame_like
from dsgmcmc.tables.usual import Columns
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array, Float64, Int32

Names = str | int | Sequence[Any] | Array

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


class FittedModel:
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
        Whether to clip predictions to the range of the levels, if any, and of counts at 0.
    unknown : {"prior", "refuse"}
        Treatment of users and items that are unknown to the run: predict from the prior, or raise
        an error.
    columns : str, optional
        Columns of data frames that do not have usual names, such as ``user=U,item=I``.
    matrix, missing : optional
        Form of new ratings, and values that mean *not rated*, as in `BPMF`.
    """

    _training: TrainingData = TrainingData()
    _cube: Any = None  # the DataArray of three dimensions that `fit` was given
    _library: str | None = None  # of data frames of ratings
    clip: bool = True
    unknown: Literal["prior", "refuse"] = "prior"
    columns: str | None = None
    matrix: bool | None = None
    missing: Any = None
    variable: str | None = None
    unstored: Literal["missing", "zero"] | None = None

    def __init__(self, path: str | PathLike[str], data: str | PathLike[str] | None = None) -> None:
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
        run = self._fitted()
        if run.unfinished or not run.config.law.can_be_evaluated:
            return None
        if not len(run.test_pairs()[0]):
            return None
        test = predict_test(run).exact()
        if not len(test.rating):
            return None
        return float(np.sqrt(np.mean((test.rating - test.point(run.config.law)) ** 2)))

    def _columns(self) -> str | Columns | None:
        """Return the columns of data frames, by role."""
        return self.columns

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise not_fitted("this BPMF is not fitted: call fit first, or BPMF.load a run")
        return self.run_

    def _form(self) -> InputForm:
        """Return how ratings in memory are read."""
        return InputForm(
            columns=self._columns(),
            matrix=self.matrix,
            missing=self.missing,
            variable=self.variable,
            unstored=self.unstored,
        )

    def _read_ratings(self, X: Any, y: Any = None) -> RatingArrays:
        """Read ratings for the run, from the columns that its own ratings had."""
        run = self._fitted()
        if isinstance(X, str | PathLike):
            if y is not None:
                raise InputError(f"{X} has the ratings: leave out y")
            return read_rated_file(run, Path(X), parse_columns(self._columns()))
        X = frame_of_parts(run, X, y)
        return read_new(run, X, y, form_of_new(run, self._form(), X, y))

    def _renew(self) -> None:
        """Reopen the run in its current state, and fold in the new ratings again."""
        self._fitted()
        self._adopt(self._rows.reopened())

    # ------------------------------------------------------------------ pickling

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters, folded-in ratings, and files of the run and its ratings, by path."""
        run_attributes = ("run_", "_rows", "_scratch")
        state = {name: value for name, value in vars(self).items() if name not in run_attributes}
        if hasattr(self, "run_"):
            files = files_of(self.run_, self._rows.data)
            contents = {name: path.read_bytes() for name, path in files.items()}
            state["_packed"] = (contents, self._rows.new)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        contents, new = state.pop("_packed", ({}, None))
        vars(self).update(state)
        if not contents:
            return
        scratch, run, data = unpack(contents)
        self._adopt(FittedRows(run, data, new))
        self._scratch = scratch

    # ------------------------------------------------------------------ predictions

    @renewing
    def _predict(self, X: Any, options: PredictOptions) -> Prediction:
        predictor, users, items = self._predictor(X, options)
        return predictor(users, items)

    def _predictor(self, X: Any, options: PredictOptions) -> tuple[Predictor, Int32, Int32]:
        """Return a predictor, and the rows of the users and items of pairs."""
        return self._predictor_of(self._pairs(X), options)

    def _pairs(self, X: Any) -> list[Array]:
        """Return the names of the users and of the items of pairs."""
        run = self._fitted()
        columns = self._columns()
        if run.directions:
            columns = None
        return read_pairs(X, columns, run.labels, run.directions)

    def _predictor_of(
        self, names: list[Array], options: PredictOptions
    ) -> tuple[Predictor, Int32, Int32]:
        """Return a predictor, and the rows of users and items by name."""
        predictor = self._rows.predictor(options)
        users, items = (
            self._known_rows(predictor, entity, of_entity)
            for entity, of_entity in zip(ENTITIES, names, strict=True)
        )
        return predictor, users, items

    def _known_rows(self, predictor: Predictor, entity: str, names: Array) -> Int32:
        """Return the rows of names; unknown ones are refused, or there is a warning of them."""
        rows = predictor.index_of(entity, names)
        unknown = rows < 0
        if self.unknown == "refuse":
            refuse_unknown(self.run_.vocabulary(entity), names[unknown])
        if len(names) and unknown.all():
            distinct = list(dict.fromkeys(names.tolist()))
            warn(str(unknown_names(entity, distinct)))
        return rows

    @overload
    def predict(
        self,
        X: Any,
        return_std: Literal[False] = False,
        *,
        of_mean: bool = False,
        at_least: float | None = None,
    ) -> Float64: ...

    @overload
    def predict(
        self, X: Any, return_std: Literal[True], *, of_mean: bool = False
    ) -> tuple[Float64, Float64]: ...

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        of_mean: bool = False,
        at_least: float | None = None,
    ) -> Float64 | tuple[Float64, Float64]:
        """Predict ratings: their means or, under student-t with scale log, their medians.

        Parameters
        ----------
        X : (n, 2) array or data frame
            User and item of each pair.
        return_std : bool
            Whether to return also the standard deviation of a new rating, which includes the noise.
        of_mean : bool
            Predict the expected rating, whose standard deviation has no noise.
        at_least : float, optional
            Return the probabilities of a rating of at least this value, in place of means.

        Returns
        -------
        mean : (n,) float64
        std : (n,) float64, if `return_std`

        Raises
        ------
        InputError
            If `unknown` is "refuse" and a name is unknown, or if ratings have no standard
            deviation, or no probabilities.
        NotFittedError
            If the model is not fitted: scikit-learn's error if the program has imported
            scikit-learn, else the error of `dsgmcmc.errors`.
        """
        if at_least is not None:
            if return_std or of_mean:
                raise InputError("at_least returns probabilities: leave out return_std and of_mean")
            return self._probabilities(X, PredictOptions(at_least=at_least))[:, 0]
        if return_std and not of_mean:
            self._need_sd()
        prediction = self._predict(X, PredictOptions(of_mean=of_mean, clip=self.clip))
        mean = prediction.mean.astype(np.float64)
        if return_std:
            return mean, prediction.sd.astype(np.float64)
        return mean

    def _need_sd(self) -> None:
        """Raise InputError if ratings have no standard deviation."""
        if self._fitted().config.law.transform.point_name != "mean":
            raise InputError(
                "under student-t, ratings on a log scale have no standard deviation: use"
                " predict_interval"
            )

    def predict_interval(
        self, X: Any, level: float = 0.9, *, of_mean: bool = False
    ) -> tuple[Float64, Float64]:
        """Predict central intervals that contain a new rating with probability `level`.

        With `of_mean`, they contain the expected rating.

        Returns
        -------
        low, high : (n,) float64
        """
        options = PredictOptions(interval=level, clip=self.clip, of_mean=of_mean)
        prediction = self._predict(X, options)
        return prediction.low.astype(np.float64), prediction.high.astype(np.float64)

    def predict_proba(self, X: Any) -> Float64:
        """Predict the probability of each level of the ratings, (n, R); the levels are ``levels_``.

        Raises
        ------
        InputError
            If the ratings have no levels.
        """
        return self._probabilities(X, PredictOptions(probabilities=True))

    @renewing
    def _probabilities(self, X: Any, options: PredictOptions) -> Float64:
        """Return the probabilities that the options request, (n, m)."""
        predictor, users, items = self._predictor(X, options)
        return predictor.probabilities(users, items).astype(np.float64)

    @renewing
    def score(self, X: Any, y: Any = None) -> float:
        """Return the coefficient of determination R^2 of the predictions, as scikit-learn does.

        Without `y`, the ratings are in X, in a form that `BPMF.fit` reads; those that are known
        only by bounds are left out, and those that mean "not rated".
        """
        run = self._fitted()
        rated = self._read_ratings(X, y)
        bounds = bounds_of(run, rated.columns)
        if bounds is not None:
            rated = rated.select(~known_by_bounds(bounds))
        truth = np.asarray(rated.columns["rating"], np.float64)
        if not len(truth):
            raise InputError("no rating is exact: R^2 needs exact ratings; see evaluate")
        names = _pairs_of(rated)
        predictor, users, items = self._predictor_of(names, PredictOptions(clip=self.clip))
        predicted = predictor(users, items).mean.astype(np.float64)
        residual = float(((truth - predicted) ** 2).sum())
        total = float(((truth - truth.mean()) ** 2).sum())
        if total == 0:  # all ratings are equal
            return float(residual == 0)
        return 1.0 - residual / total

    @renewing
    def evaluate(self, X: Any, y: Any = None) -> dict[str, Any]:
        """Score the predictions of ratings that were not in `fit`.

        Parameters
        ----------
        X, y
            Ratings as for `BPMF.fit`, except ratings files.

        Returns
        -------
        dict
            As `dsgmcmc.posterior.cells.evaluate.evaluate_ratings` describes.

        Raises
        ------
        InputError
            If ratings are invalid, or the model predicts clicks.
        """
        run = self._fitted()
        refuse_clicks(run, "dsgmcmc.diagnostics.ranking.evaluate")
        rated = self._read_ratings(X, y)
        options = PredictOptions(clip=self.clip)
        predictor, users, items = self._predictor_of(_pairs_of(rated), options)
        return evaluate_ratings(predictor, users, items, observed_of(run, rated.columns))

    # ------------------------------------------------------------------ matrices

    @renewing
    def complete(
        self,
        X: Any = None,
        *,
        draws: int = 0,
        return_std: bool = False,
        known: Literal["given", "fitted"] = "given",
    ) -> Any:
        """Fill the holes of a matrix with a row for each user and a column for each item.

        Parameters
        ----------
        X : array, data frame, xarray.DataArray or SciPy sparse matrix, optional
            Default: the training matrix. Columns of another matrix are matched by their labels, or
            by position if it has none. Its rows are matched by name; cells that were not in the
            training, and rows with new names, are folded in. Rows without names, as those of an
            array, are new. Rows without known cells, and unknown columns, are predicted from their
            prior.
        draws : int
            Number of imputations: matrices whose holes are drawn from the posterior predictive
            distribution, noise included. By default, holes have their expected ratings.
        return_std : bool
            Whether to return also the standard deviations of new ratings; 0 in known cells.
        known : {"given", "fitted"}
            Known cells: as they were given, or predicted, too.

        Returns
        -------
        matrix
            Of the shape, the type and with the labels of X; a dense array if X is sparse. If the
            model was not fitted to a matrix, a `Table` or data frame with a column ``user`` and one
            for each item, in the order of their names; if names have several parts, with a row for
            each pair, and a column for each part.
            A model of three directions returns a row for each cell, or fills a DataArray with
            these dimensions.
        std, if `return_std`
            A matrix of the same type.
        list of `draws` matrices, if `draws`

        Raises
        ------
        InputError
            If X is no matrix or does not match the model, if `unknown` is "refuse" and a row or a
            column has no ratings, or if the model has no distribution of ratings.
        """
        if known not in ("given", "fitted"):
            raise InputError(f"known={known!r}: expected 'given' or 'fitted'")
        if not isinstance(draws, int | np.integer) or draws < 0:
            raise InputError(f"draws={draws!r}: expected a whole number of matrices")
        if draws and return_std:
            raise InputError("give either draws or return_std")
        if return_std:
            self._need_sd()
        if self._fitted().directions:
            mean, sd = self._complete_cells(X, known == "fitted", draws)
            if return_std:
                return mean, sd
            return mean
        target, newcomers = self._target(X)
        completion = Completion(self._fitted(), target.items, newcomers, self.clip)
        fitted = known == "fitted"
        matrices, sds = complete(completion, target, draws=draws, sd=return_std, fitted=fitted)
        if draws:
            return matrices
        if return_std:
            return matrices[0], sds
        return matrices[0]

    def transform(self, X: Any) -> Any:
        """Return `complete(X)`: the matrix without holes, as scikit-learn's imputers do."""
        return self.complete(X)

    def _complete_cells(self, X: Any, fitted: bool, draws: int) -> tuple[Any, Any]:
        """Return means and sds of the cells of a table of three directions, as `complete` does."""
        cube = X
        if cube is None:
            cube = self._cube
        cells = CellCompletion(
            self._fitted(), self._rows.newcomers, self._rows.new, self._rows.data, self.clip
        )
        mean, sd = cells.complete(cube, fitted, draws)
        if cube is None:
            return self._table(mean), self._table(sd)
        return mean, sd

    def _target(self, X: Any) -> tuple[MatrixTarget, FoldIn | None]:
        """Return the matrix that is completed, and the rows that were folded in."""
        run = self._fitted()
        cells = KnownCells(run, self._rows.data, self._rows.new)
        rows = self._rows
        if X is None:
            matrix = training_matrix(run, self._training, cells)
        else:
            form = form_of_run(run, self._form())
            matrix = other_matrix(run, self._training, X, form)
            new = matrix.new_ratings(run, cells)
            if new is not None:
                doubts = new.doubts(run)
                rows = self._rows.with_new(new)
                for note in (*doubts, *rows.notes):
                    warn(note)
        target = matrix.target(run, rows.newcomers)
        self._tell_unknown("item", matrix.labels[target.items < 0])
        self._tell_unknown("user", matrix.names[target.users < 0])
        return target, rows.newcomers

    def _tell_unknown(self, entity: str, names: Array) -> None:
        """Warn of names without ratings, or raise InputError if the model refuses them."""
        if not len(names):
            return
        self._fitted().vocabulary(entity).index_of(names, refuse=self.unknown == "refuse")
        unknown = unknown_names(entity, names.tolist())
        warn(f"{unknown}: predicted from the prior")

    # ------------------------------------------------------------------ new ratings

    def fold_in(
        self,
        X: Any = None,
        y: Any = None,
        *,
        kind: Literal["user", "item"] = "user",
        features: Any = None,
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
        for note in model._add(X, y, kind, features):
            warn(note)
        return model

    def update(
        self,
        X: Any = None,
        y: Any = None,
        *,
        kind: Literal["user", "item"] = "user",
        features: Any = None,
    ) -> Self:
        """Fold in new ratings and features as `fold_in` does, but in place.

        The last rating of a pair counts.
        """
        for note in self._add(X, y, kind, features):
            warn(note)
        return self

    @renewing
    def _add(self, X: Any, y: Any, entity: str, features: Any) -> list[str]:
        """Fold in new ratings and features in addition to earlier ones; return notes."""
        run = self._fitted()
        X = frame_of_parts(run, X, y)
        form = form_of_new(run, self._form(), X, y)
        new = NewRatings.read(run, entity, form, X=X, y=y, features=features)
        doubts = new.doubts(run)
        self._adopt(self._rows.with_new(new))
        return doubts + self._rows.notes

    # ------------------------------------------------------------------ rankings

    @renewing
    def recommend(  # noqa: PLR0913  # as the command has them
        self,
        users: Names | Any = None,
        n: int = 10,
        *,
        by: By = "likely",
        z: float = 1.0,
        seed: int | None = None,
        at_least: float | None = None,
        include_rated: bool = False,
        candidates: Names | None = None,
        exclude: Names | None = None,
    ) -> Any:
        """Recommend items to users.

        Parameters
        ----------
        users : name, sequence of names, or data frame with a column of names, optional
            Default: all users of the run, in the order of their names. Of a table of three
            directions, values of some columns, such as ``{"station": "s3", "day": "d4"}``: cells
            with these values are ranked together.
        n : int
            Number of items per user.
        by : {"likely", "exposure", "mean", "ucb", "lcb", "thompson", "sd"}
            Rule of `dsgmcmc.posterior.lists.ranking`.
        z : float
            Number of standard deviations between the mean and the bounds of ``ucb`` and ``lcb``.
        seed : int, optional
            Seed for Thompson sampling; without a seed, every call uses different random numbers.
        at_least : float, optional
            With ``likely``, the lowest rating that counts as liked, by default
            `dsgmcmc.posterior.lists.liked.liked_from`; with ``mean`` and ``thompson``, rank by the
            probability of a rating of at least this value; other rules do not allow it.
        include_rated : bool
            Whether to recommend also items that the users rated, in training or when they were
            folded in.
        candidates, exclude : as `users`, optional
            Items that may be recommended (default all), and items that must not be recommended.

        Returns
        -------
        Table, or a data frame if `users` is one or a column of one, or `fit` was given one
            Columns ``user_id, item_id, score, rank``; ``sd, q05, q95`` of the predictor; and
            ``ratings``, the number of training ratings of the item. Names of several parts have a
            column for each part.

        Raises
        ------
        InputError
            If a user or every candidate is unknown, an option is invalid, or items were folded in.
        """
        ranking = Ranking(
            top=n,
            by=by,
            z=z,
            seed=seed,
            clip=self.clip,
            at_least=at_least,
            include_rated=include_rated,
        )
        run = self._fitted()
        chosen = users  # of three directions, slices
        if not run.directions:
            chosen = _listed(users, run.users)
        request = Request(
            ranking,
            chosen,
            candidates=_listed(candidates, run.items),
            exclude=_listed(exclude, run.items),
        )
        return self._table(joined(lists(self._rows, request)), users)

    @renewing
    def recommend_pairs(
        self,
        n: int = 10,
        *,
        by: By = "sd",
        z: float = 1.0,
        at_least: float | None = None,
        include_rated: bool = False,
        candidates: Names | None = None,
    ) -> Any:
        """Return the best of all pairs of users and items: by default the least certain ones.

        Parameters are as for `recommend`; `n` is the number of pairs, whatever their users.

        Returns
        -------
        Table or data frame
            As `recommend` returns; ``rank`` is that among all pairs.

        Raises
        ------
        InputError
            If an option is invalid, or users or items were folded in.
        """
        ranking = Ranking(
            top=n,
            by=by,
            z=z,
            clip=self.clip,
            at_least=at_least,
            include_rated=include_rated,
        )
        items = self._fitted().items
        request = Request(ranking, candidates=_listed(candidates, items), of_pairs=True)
        return self._table(joined(lists(self._rows, request)))

    @renewing
    def similar(self, name: Any, n: int = 10, *, kind: Literal["user", "item"] = "item") -> Any:
        """Return the items (or users) most similar to one (`dsgmcmc.posterior.lists.similar`).

        They are in a Table, or a data frame if `fit` was given one.
        """
        return self._table(similar(self._fitted(), kind, name, n))

    def _table(self, columns: dict[str, Array], example: Any = None) -> Any:
        """Return columns as a data frame like `example`, or like the ratings; else as a Table."""
        table = frame_like(example, Table(columns))
        if type(table) is Table and self._library is not None:
            return table.frame_of(self._library)
        return table

    # ------------------------------------------------------------------ files

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
        copy_files(files_of(run, self._rows.data), Path(path))

    @renewing
    def loadings(self) -> Loadings:
        """Return loadings of items and scores of users, in one orientation of all draws and chains.

        Latent dimensions of draws differ by rotations; here they are rotated to their mean, which
        is rotated by varimax (`dsgmcmc.posterior.loadings`).

        Returns
        -------
        Loadings
            ``items`` and ``users`` (a `Table` each, with means and sds), ``share`` of the variance
            by factor, and ``n_factors`` that hold 99 % of it.

        Raises
        ------
        InputError
            If the run has no saved draws or no factors.
        """
        return loadings(self._fitted())

    @renewing
    def item_parameters(self, *, fit: bool = True) -> Table:
        """Return difficulties, thresholds and discriminations of items, with their sds.

        Parameters
        ----------
        fit : bool
            Whether to add ``infit``, ``outfit`` and ``p`` of every item, from the test ratings or,
            if there are none, from the training ratings.

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
        ratings = ratings_of_fit(run, self._rows.data) if fit else None
        return item_parameters(run, ratings)

    @renewing
    def user_parameters(self) -> Table:
        """Return the abilities of users, relative to their mean, with their sds.

        The columns are those of `dsgmcmc.posterior.item_parameters.user_parameters`. Raises
        InputError if ratings are not ordered levels.
        """
        return user_parameters(self._fitted())

    @renewing
    def to_arviz(self) -> Any:
        """Return the run as an xarray.DataTree (`dsgmcmc.posterior.export.to_datatree`)."""
        from dsgmcmc.posterior.export import to_datatree

        return to_datatree(self._fitted())


def _pairs_of(rated: RatingArrays) -> list[Array]:
    """Return the names of the users and of the items of ratings."""
    return [rated.names(entity) for entity in ENTITIES]


def _listed(names: Any, vocabulary: Vocabulary) -> list[Any] | None:
    """Return names of users or items as a list."""
    if names is None:
        return None
    return list_names(names, vocabulary.entity, vocabulary.parts)


def open_run(path: str | PathLike[str], *, data: str | PathLike[str] | None = None) -> FittedModel:
    """Open a run directory, written by ``dsgmcmc sample`` or by `BPMF.fit` with `out`.

    If the run is still being sampled, or was killed, the draws saved by the newest checkpoint are
    used; moments and monitored predictions are available once the run has ended.

    Parameters
    ----------
    path : path of a run directory
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
        If the directory is not a run, has no draws yet, or is damaged.
    """
    return FittedModel(path, data)
