"""Matrices without holes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Literal, Self

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import list_names
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.fitted.state import FittedState, as_told, check_draws, renewing
from dsgmcmc.posterior.index import unknown_names
from dsgmcmc.posterior.matrix.complete import Completion
from dsgmcmc.posterior.matrix.known import KnownCells
from dsgmcmc.posterior.matrix.labels import RowsOf
from dsgmcmc.posterior.matrix.ranking import ranking
from dsgmcmc.posterior.matrix.target import NamedMatrix, other_matrix, training_matrix
from dsgmcmc.posterior.matrix.three_way import complete_cube, complete_table
from dsgmcmc.posterior.rows.columns import form_of_run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.tables.frames import as_frame
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array, Int32


class Matrices(FittedState):
    """Methods that complete a matrix with a row for each user and a column for each item."""

    @renewing
    def complete(
        self,
        X: object = None,
        *,
        draws: int = 0,
        return_std: bool = False,
        known: Literal["given", "fitted"] = "given",
        rows: RowsOf | None = None,
        noise: bool = True,
    ) -> Any:
        """Fill the holes of a matrix with a row for each user and a column for each item.

        Parameters
        ----------
        X : array, data frame, xarray.DataArray or SciPy sparse matrix, optional
            Default: the training matrix. Rows and columns of another matrix are matched by their
            labels; columns without labels by position. Cells that were not in the training, and
            new rows, are folded in. Rows without known cells, and unknown columns, are predicted
            from their prior.
        draws : int
            Number of imputations: matrices whose holes are drawn from the posterior predictive
            distribution, noise included. By default, holes have their expected ratings.
        return_std : bool
            Whether to return also the standard deviations of new ratings; 0 in known cells.
        known : {"given", "fitted"}
            Known cells: as they were given, or predicted, too.
        rows : {"training"}, optional
            The rows of X are those of the training, although they have no labels, or the training
            had none. By default such rows are new.
        noise : bool
            Whether `draws` are new ratings; otherwise expected ratings, one posterior draw each.

        Returns
        -------
        matrix
            Of the shape, the type and with the labels of X; a dense array if X is sparse. If the
            model was not fitted to a matrix, a `Table` or data frame with a column of users, named
            as in the ratings, and one for each item, in the order of their names; if names have
            several parts, with a row for each pair, and a column for each part.
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
        check_draws(draws, "matrices")
        if draws and return_std:
            raise InputError("give either draws or return_std")
        if return_std:
            self._need_sd()
        if not noise:
            self._refuse_noiseless(draws)
        if self._fitted().directions:
            mean, sd = self._complete_cells(X, known == "fitted", draws)
            if return_std:
                return mean, sd
            return mean
        matrix, predictor = self._target(X, rows)
        completion = Completion(predictor, self._indices(predictor, "item", matrix.labels))
        users = self._indices(predictor, "user", matrix.names)
        matrices, sds = matrix.complete(
            completion,
            users,
            draws=draws,
            sd=return_std,
            fitted=known == "fitted",
            noise=noise,
        )
        if draws:
            return matrices
        if return_std:
            return matrices[0], sds
        return matrices[0]

    def _refuse_noiseless(self, draws: int) -> None:
        """Raise InputError if there are no draws, or none without noise."""
        if not draws:
            raise InputError("noise=False is for draws: expected ratings have no noise")
        if self._fitted().directions:
            raise InputError("draws of a model of three directions have noise")

    @renewing
    def ranking(
        self,
        kind: Literal["user", "item"] = "item",
        *,
        over: object = None,
        lowest: bool = False,
    ) -> Any:
        """Rank all items over all users, or users over items, by their average expected rating.

        Parameters
        ----------
        kind : {"user", "item"}
            Side that is ranked.
        over : sequence of names, optional
            Users (or items) over which expected ratings are averaged.
        lowest : bool
            Whether the lowest average is best.

        Returns
        -------
        Table or data frame
            As `dsgmcmc.posterior.matrix.ranking.ranking` returns.

        Raises
        ------
        InputError
            If a name is unknown, or the model predicts no ratings.
        """
        run = self._fitted()
        rows = None
        if over is not None:
            other = run.vocabulary(OTHER[kind])
            rows = other.index_of(list_names(over, other.entity, other.parts), refuse=True)
        return self._table(ranking(run, kind=kind, over=rows, lowest=lowest))

    def transform(self, X: object, *, rows: RowsOf | None = None) -> Any:
        """Return `complete(X)`: the matrix without holes, as scikit-learn's imputers do."""
        return self._as_output(self.complete(X, rows=rows), X)

    @property
    def feature_names_in_(self) -> Array:
        """Labels of the columns of the training matrix, (J,); only if they are text."""
        matrix = self._training.read()
        if matrix is None or not all(isinstance(label, str) for label in matrix.labels):
            raise AttributeError("the columns of the training matrix have no labels of text")
        return np.array(matrix.labels, object)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the labels of the columns that `transform` returns, as scikit-learn names them.

        Columns without labels are those of `input_features`, or x0, x1, ... Raises InputError if
        `input_features` are others than those of the training matrix.
        """
        n_columns = self.n_features_in_
        known = getattr(self, "feature_names_in_", None)
        if input_features is None and known is None:
            return np.array([f"x{k}" for k in range(n_columns)], object)
        if input_features is not None:
            names = np.array(list(input_features), object)
            if known is not None and not np.array_equal(names, known):
                raise InputError("input_features is not equal to feature_names_in_")
            if len(names) != n_columns:
                raise InputError(
                    f"input_features should have length equal to number of features ({n_columns}),"
                    f" got {len(names)}"
                )
            if known is None:
                return names
        labels: Any = getattr(as_frame(self._training.matrix), "columns", known)
        return np.array(list(labels), object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` and `fit_transform` return, as scikit-learn's transformers do.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            The type of X by default; None changes nothing.
        """
        if transform not in (None, "default", "pandas", "polars"):
            raise InputError(f"transform={transform!r}: expected 'default', 'pandas' or 'polars'")
        if transform is not None:
            # where `sklearn.base.clone` looks for it
            self._sklearn_output_config = {"transform": transform}
        return self

    def _as_output(self, filled: Any, X: Any) -> Any:
        """Return a matrix in the type that `set_output` or scikit-learn's settings ask for."""
        asked = getattr(self, "_sklearn_output_config", {}).get("transform")
        sklearn = sys.modules.get("sklearn")
        if asked is None and sklearn is not None:
            asked = sklearn.get_config()["transform_output"]
        if asked in (None, "default"):
            return filled
        library: Any = import_module(asked)
        if isinstance(filled, library.DataFrame):
            return filled
        columns = [*np.asarray(filled).T]
        if hasattr(filled, "columns"):
            columns = [np.asarray(filled[label]) for label in filled.columns]
        by_name = dict(zip(self.get_feature_names_out(), columns, strict=True))
        if asked == "pandas":
            return library.DataFrame(by_name, index=getattr(X, "index", None))
        return library.DataFrame(by_name)

    def _complete_cells(self, X: object, fitted: bool, draws: int) -> tuple[Any, Any]:
        """Return means and sds of the cells of a table of three directions, as `complete` does."""
        cube = X
        if cube is None:
            cube = self._cube
        if draws:
            raise InputError("cells of three directions are not drawn: leave out draws")
        predictor = self._rows.predictor(PredictOptions(clip=self.clip))
        if cube is None:
            known = KnownCells(self._fitted(), self._rows.new)
            table, table_sd = complete_table(predictor, known, fitted=fitted)
            return self._table(table), self._table(table_sd)
        since = None
        if X is None and self._rows.new is not None:
            since = KnownCells(self._fitted(), self._rows.new)
        return complete_cube(predictor, cube, since, fitted=fitted)

    def _target(self, X: object, whose: RowsOf | None) -> tuple[NamedMatrix, Predictor]:
        """Return the matrix that is completed, and what predicts its rows."""
        run = self._fitted()
        cells = KnownCells(run, self._rows.new)
        rows = self._rows
        if X is None:
            matrix = training_matrix(run, self._training, cells)
        else:
            form = as_told(form_of_run(run, self._form(), X), self.missing)
            matrix = other_matrix(X, form, self._naming(whose))
            new = matrix.new_ratings(run, cells)
            if new is not None:
                doubts = new.doubts(run)
                rows = self._rows.with_new(new)
                for note in (*doubts, *rows.notes):
                    warn(note)
        return matrix, rows.predictor(PredictOptions(clip=self.clip))

    def _indices(self, predictor: Predictor, entity: str, names: Array) -> Int32:
        """Return indices of names; warn of those without ratings, or refuse them as the model does.

        Raises InputError if they are refused.
        """
        index = predictor.index_of(entity, names)
        missing = names[index < 0]
        if len(missing):
            self._fitted().vocabulary(entity).index_of(missing, refuse=self.unknown == "refuse")
            warn(f"{unknown_names(entity, missing.tolist())}: predicted from the prior")
        return index
