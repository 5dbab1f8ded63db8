"""Predictions of pairs of users and items, and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_pairs
from dsgmcmc.model.predictive.base import Prediction
from dsgmcmc.posterior.cells.evaluate import evaluate_ratings, refuse_clicks
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.fitted.state import FittedState, check_draws, renewing
from dsgmcmc.posterior.heldout import score_test
from dsgmcmc.posterior.index import refuse_unknown, unknown_names
from dsgmcmc.posterior.matrix.labels import RowsOf
from dsgmcmc.posterior.matrix.pairs import drawn_pairs
from dsgmcmc.posterior.rows.new_ratings import bounds_of
from dsgmcmc.posterior.scores import GroupScores
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.ratings.format import known_by_bounds
from dsgmcmc.ratings.names import names_of
from dsgmcmc.tables.draws import Draws
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array, Float64, Int32


class Predictions(FittedState):
    """Methods that predict ratings of pairs of users and items."""

    @renewing
    def _predict(self, X: object, options: PredictOptions) -> Prediction:
        predictor, users, items = self._predictor_of(self._pairs(X), options)
        return predictor(users, items)

    def _pairs(self, X: object) -> list[Array]:
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
        X: object,
        return_std: Literal[False] = False,
        *,
        of_mean: bool = False,
        at_least: float | None = None,
    ) -> Float64: ...

    @overload
    def predict(
        self, X: object, return_std: Literal[True], *, of_mean: bool = False
    ) -> tuple[Float64, Float64]: ...

    @overload
    def predict(
        self, X: object, return_std: Literal[False] = False, *, of_mean: bool = False, draws: int
    ) -> Draws: ...

    def predict(
        self,
        X: object,
        return_std: bool = False,
        *,
        of_mean: bool = False,
        at_least: float | None = None,
        draws: int = 0,
    ) -> Float64 | tuple[Float64, Float64] | Draws:
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
        draws : int
            Number of draws of new ratings or, with `of_mean`, of expected ratings, in place of
            means. They are those of `complete`, of all pairs together.

        Returns
        -------
        mean : (n,) float64
        std : (n,) float64, if `return_std`
        Draws, if `draws`
            A table with the names of the pairs, and ``rating_1`` and so on.

        Raises
        ------
        InputError
            If `unknown` is "refuse" and a name is unknown, or if ratings have no standard
            deviation, or no probabilities.
        NotFittedError
            If the model is not fitted: scikit-learn's error if the program has imported
            scikit-learn, else the error of `dsgmcmc.errors`.
        """
        if draws:
            if return_std or at_least is not None:
                raise InputError("give either draws, or return_std or at_least")
            return self._drawn(X, draws, of_mean)
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

    @renewing
    def _drawn(self, X: object, draws: int, of_mean: bool) -> Draws:
        """Return draws of the ratings, or of the expected ratings, of pairs."""
        run = self._fitted()
        check_draws(draws, "draws")
        if run.directions:
            raise InputError("cells of three directions are not drawn: leave out draws")
        names = self._pairs(X)
        predictor, users, items = self._predictor_of(names, PredictOptions(clip=self.clip))
        of_users, of_items = names
        array = drawn_pairs(
            predictor, (users, of_users), (items, of_items), draws=draws, noise=not of_mean
        )
        labels = {**run.users.table(of_users), **run.items.table(of_items)}
        return Draws(labels, "rating", array, "rating")

    def predict_interval(
        self, X: object, level: float = 0.9, *, of_mean: bool = False
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

    def predict_proba(self, X: object) -> Float64:
        """Predict the probability of each level of the ratings, (n, R); the levels are ``levels_``.

        Raises
        ------
        InputError
            If the ratings have no levels.
        """
        return self._probabilities(X, PredictOptions(probabilities=True))

    @renewing
    def _probabilities(self, X: object, options: PredictOptions) -> Float64:
        """Return the probabilities that the options request, (n, m)."""
        predictor, users, items = self._predictor_of(self._pairs(X), options)
        return predictor.probabilities(users, items).astype(np.float64)

    @renewing
    def score(self, X: object, y: object = None, *, rows: RowsOf | None = None) -> float:
        """Return the coefficient of determination R^2 of the predictions, as scikit-learn does.

        Without `y`, the ratings are in X, in a form that `BPMF.fit` reads; those that are known
        only by bounds are left out, and those that mean "not rated". `rows` is as for `evaluate`.
        """
        run = self._fitted()
        rated = self._rated(X, y, rows)
        bounds = bounds_of(run, rated)
        if bounds is not None:
            is_exact = ~known_by_bounds(bounds)
            rated = {role: column[is_exact] for role, column in rated.items()}
        truth = np.asarray(rated["rating"], np.float64)
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

    @property
    @renewing
    def by_group_(self) -> dict[str, Any] | None:
        """Scores within groups that were held out (`hold_out_by`); None without any.

        The entry ``by_group`` of `dsgmcmc.posterior.scores.Scores.result`: the mean correlation of
        test ratings and predictions within a group, and standard errors that count groups.
        """
        run = self._fitted()
        scored = score_test(run)
        groups = run.index.test_groups()
        if scored is None or groups is None:
            return None
        scores = GroupScores(run.facts.get("grouped_by", ()))
        scores.add(scored, groups)
        if not scores.n_groups:
            return None
        return scores.result()

    @renewing
    def evaluate(
        self, X: object, y: object = None, *, rows: RowsOf | None = None
    ) -> dict[str, Any]:
        """Score the predictions of ratings that were not in `fit`.

        Parameters
        ----------
        X, y
            Ratings as for `BPMF.fit`, except ratings files.
        rows : {"training"}, optional
            As for `complete`.

        Returns
        -------
        dict
            As `dsgmcmc.posterior.scores.Scores.result` describes.

        Raises
        ------
        InputError
            If ratings are invalid, or the model predicts clicks.
        """
        run = self._fitted()
        refuse_clicks(run, "dsgmcmc.diagnostics.ranking.evaluate")
        rated = self._rated(X, y, rows)
        options = PredictOptions(clip=self.clip)
        predictor, users, items = self._predictor_of(_pairs_of(rated), options)
        return evaluate_ratings(predictor, users, items, rated)

    def _rated(self, X: object, y: object, rows: RowsOf | None) -> dict[str, Array]:
        """Read ratings that are scored; warn of rows of a matrix of which nothing is known."""
        rated, names = self._read_ratings(X, y, rows)
        note = None if names is None else names.note("and predicted from the prior")
        if note is not None:
            warn(note)
        return rated


def _pairs_of(rated: Mapping[str, Array]) -> list[Array]:
    """Return the names of the users and of the items of ratings."""
    return [names_of(rated, entity) for entity in ENTITIES]
