"""A model that has been fitted: predictions and recommendations of a run, in the conventions of scikit-learn."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from dsgmcmc.data.arrays import read_pairs
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.portable import pack, unpack
from dsgmcmc.posterior.predict import Options, Predictor
from dsgmcmc.posterior.probabilities import probabilities
from dsgmcmc.posterior.recommend import By, Ranking, Rated, recommendations
from dsgmcmc.posterior.run import Run, open_run
from dsgmcmc.targets.factorisation.likelihoods.base import Prediction
from dsgmcmc.types import Float64, Int32


class FittedModel:
    """What `dsgmcmc.BPMF` can do once it was fitted or loaded.

    A pickled model takes the files of its run and of its ratings with it.

    Attributes
    ----------
    clip : bool
    unknown : {"prior", "refuse"}
        See `dsgmcmc.BPMF`.
    run_ : Run
    """

    clip: bool
    unknown: Literal["prior", "refuse"]

    def _adopt(self, run: Run, data: str | PathLike[str] | None = None) -> Self:
        """Take the attributes of a fitted model from a run."""
        self.run_: Run = run
        self._data = None if data is None else Path(data)
        self._predictors: dict[Options, Predictor] = {}
        self.users_, self.items_ = self.run_.users.ids, self.run_.items.ids
        self.mean_ = self.run_.mean
        self.n_features_in_ = 2
        self.levels_ = self.run_.levels
        self.rmse_ = None
        if len(self.run_.test_pairs()[0]) and not run.config.law.all_cells:
            self.rmse_ = float(np.sqrt(np.mean((self.run_.test.rating - self.run_.test.mean) ** 2)))
        return self

    def _temporary_folder(self) -> str:
        """Make a folder that goes with this model."""
        folder = tempfile.mkdtemp(prefix="dsgmcmc-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def __getstate__(self) -> dict[str, Any]:
        """Pickle with the run and the ratings: the model predicts and recommends where their files are not."""
        state = {name: value for name, value in vars(self).items() if name not in ("run_", "_predictors", "_folder")}
        if hasattr(self, "run_"):
            state["_packed"] = pack(self.run_, self._data or Path(str(self.run_.facts.get("data", ""))))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = state.pop("_packed", None)
        vars(self).update(state)
        if packed is not None:
            self._folder = self._temporary_folder()
            run, data = unpack(packed, Path(self._folder))
            self._adopt(open_run(run), data)

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise InputError("this BPMF is not fitted: call fit first, or BPMF.load a run")
        return self.run_

    def _predict(self, X: Any, options: Options) -> Prediction:
        predictor, users, items = self._predictor(X, options)
        return predictor(users, items)

    def _predictor(self, X: Any, options: Options) -> tuple[Predictor, Int32, Int32]:
        run = self._fitted()
        users, items = (
            run.vocabulary(kind).index_of(names, refuse=self.unknown == "refuse")
            for kind, names in zip(KINDS, read_pairs(X), strict=True)
        )
        if options not in self._predictors:
            self._predictors[options] = Predictor(run, options)
        return self._predictors[options], users, items

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Float64: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Float64, Float64]: ...

    def predict(self, X: Any, return_std: bool = False) -> Float64 | tuple[Float64, Float64]:
        """Predict ratings.

        Parameters
        ----------
        X : (n, 2) array or data frame
            User and item of each pair.
        return_std : bool
            Also give the sd of a new rating, noise included.

        Returns
        -------
        mean : (n,) float64
        std : (n,) float64, if asked for

        Raises
        ------
        InputError
            If not fitted, or `unknown` is "refuse" and a name is unknown.
        """
        found = self._predict(X, Options(clip=self.clip))
        mean = found.mean.astype(np.float64)
        return (mean, found.sd.astype(np.float64)) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Float64, Float64]:
        """Predict central intervals of new ratings.

        Parameters
        ----------
        X : (n, 2) array or data frame
        level : float
            Probability inside.

        Returns
        -------
        low, high : (n,) float64
        """
        found = self._predict(X, Options(interval=level, clip=self.clip))
        return found.low.astype(np.float64), found.high.astype(np.float64)

    def predict_proba(self, X: Any) -> Float64:
        """Predict the probability of every level that ratings have, (n, R); the levels are ``levels_``.

        Raises
        ------
        InputError
            If the ratings have no levels.
        """
        return probabilities(*self._predictor(X, Options(probabilities=True))).astype(np.float64)

    def score(self, X: Any, y: Any) -> float:
        """Coefficient of determination R^2 of the predictions, as scikit-learn's regressors have it."""
        truth = np.asarray(y, np.float64)
        residual = float(((truth - self.predict(X)) ** 2).sum())
        return 1.0 - residual / float(((truth - truth.mean()) ** 2).sum())

    def recommend(
        self,
        users: Sequence[Any] | npt.NDArray[Any],
        n: int = 10,
        *,
        by: By = "mean",
        z: float = 1.0,
        seed: int | None = None,
        at_least: float | None = None,
        include_rated: bool = False,
    ) -> dict[str, npt.NDArray[Any]]:
        """Recommend items to users.

        Parameters
        ----------
        users : sequence of names
        n : int
            Items for each.
        by : {"mean", "ucb", "lcb", "thompson"}
            See `dsgmcmc.posterior.recommend`.
        z : float
            Sds between the mean and the bounds of ``ucb`` and ``lcb``.
        seed : int, optional
            Of Thompson sampling, which else takes another draw each time.
        at_least : float, optional
            Rank by the probability of a rating of at least so much.
        include_rated : bool
            Also what they rated in training.

        Returns
        -------
        dict of str to (m,) array
            Columns ``user_id, item_id, score, rank``, ``sd, q05, q95`` of the predictor (without the noise of a rating)
            and ``ratings``, how many the item has; ``pandas.DataFrame`` takes it as it is.
        """
        run, ranking = self._fitted(), Ranking(n, by, z, seed=seed, clip=self.clip, at_least=at_least)
        if isinstance(users, str | bytes) or np.ndim(users) != 1:
            raise InputError(f"users {users!r}: expected a list of names, for one user [{users!r}]")
        names, rated = list(users), None
        if not include_rated:
            with run.open_ratings(self._data) as ratings:
                rated = Rated(ratings)
        rows = run.users.index_of(names, refuse=True)
        blocks = list(recommendations(run, rows, ranking, rated))
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}
