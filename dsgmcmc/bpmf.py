"""The estimator: Bayesian matrix factorisation with the conventions of scikit-learn, which it does not need."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt

from dsgmcmc._estimator import Estimator, seed_of
from dsgmcmc.config.layers import Layers
from dsgmcmc.data.arrays import prepare_data, read_pairs
from dsgmcmc.diagnostics.scores import rmse
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.parallel.mpirun import sample_apart
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.predict import Options, Predictor
from dsgmcmc.posterior.recommend import By, Ranking, Rated, recommendations
from dsgmcmc.posterior.run import Run, open_run
from dsgmcmc.targets.factorisation.likelihoods.base import Prediction
from dsgmcmc.types import Float64


class BPMF(Estimator):
    """Bayesian probabilistic matrix factorisation, sampled by stochastic-gradient and Langevin MCMC.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    sampler : str, optional
        ``baoab``, ``psgld``, ``sgld`` or ``hamcmc``; default that of ``dsgmcmc sample``.
    iterations, burn_in : int or str, optional
        Such as 2000 or ``"500sweeps"``; default those of ``dsgmcmc sample``.
    chains : int
        Independent chains.
    noise : {"shared", "by-user", "by-item", "both"}
        Whose noise differs.
    options : dict, optional
        Any other settings of ``dsgmcmc sample`` by their names, such as ``{"grid": 8, "sampler": {"step_size": 0.2}}``.
    test_fraction : float
        Share of the ratings given to `fit` that is held out for ``rmse_`` and diagnostics.
    clip : bool
        Predictions are moved into the range of the training ratings.
    unknown : {"prior", "refuse"}
        Users and items that `fit` has not seen: predicted from the prior, or an error.
    random_state : int, numpy.random.RandomState or None
        Seed of the split and of all draws; None takes another one each time.
    out : path, optional
        Run directory to keep; default a temporary one, which goes with the estimator.
    warm_start : bool
        `fit` on the same ratings goes on with the chains of the last `fit` (or of `out`) up to `iterations`.
    n_jobs : int
        Processes, started with ``mpirun``; -1 for one on every core.
    comm : MPI.Comm, optional
        Under ``mpirun``: the processes that call `fit` together. Needs `out`.
    verbose : bool
        Show progress on standard error.

    Attributes
    ----------
    run_ : Run
        The run, with moments, draws and traces by users and items.
    users_, items_ : (n,) arrays
        Original names.
    mean_ : float
        What was subtracted from the ratings.
    rmse_ : float or None
        On the held-out ratings.
    n_features_in_ : int
        2: user and item.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgmcmc import BPMF
    >>> rng = np.random.default_rng(0)
    >>> pairs = np.unique(rng.integers(0, 20, (300, 2)), axis=0)  # user and item of each rating
    >>> ratings = 3 + 0.1 * pairs[:, 0] - 0.05 * pairs[:, 1] + rng.normal(0, 0.2, len(pairs))
    >>> model = BPMF(rank=2, sampler="baoab", iterations=200, burn_in=50, options={"grid": 2}).fit(pairs, ratings)
    >>> mean, sd = model.predict([[3, 4], [19, 0]], return_std=True)
    >>> bool(mean[0] < mean[1])
    True
    >>> sorted(model.recommend([3], n=2))
    ['item_id', 'rank', 'score', 'user_id']
    """

    def __init__(
        self,
        rank: int = 32,
        *,
        sampler: str | None = None,
        iterations: int | str | None = None,
        burn_in: int | str | None = None,
        chains: int = 1,
        noise: str = "shared",
        options: dict[str, Any] | None = None,
        test_fraction: float = 0.0,
        clip: bool = True,
        unknown: Literal["prior", "refuse"] = "prior",
        random_state: Any = 0,
        out: str | os.PathLike[str] | None = None,
        warm_start: bool = False,
        n_jobs: int = 1,
        comm: Any = None,
        verbose: bool = False,
    ) -> None:
        self.rank = rank
        self.sampler = sampler
        self.iterations = iterations
        self.burn_in = burn_in
        self.chains = chains
        self.noise = noise
        self.options = options
        self.test_fraction = test_fraction
        self.clip = clip
        self.unknown = unknown
        self.random_state = random_state
        self.out = out
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.comm = comm
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the posterior. Collective, if `comm` is given.

        Parameters
        ----------
        X : ratings, one of
            - a path: a ratings file made by ``dsgmcmc prepare``, or any file that it reads;
            - a SciPy sparse matrix, users x items, whose stored values are the ratings and whose indices are the names;
            - a data frame or array (n, 3): user, item, rating; of a data frame, columns called so are found;
            - with `y`, an array or data frame (n, 2): user, item.
        y : (n,) float, optional
            Ratings.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If ratings or parameters are wrong.
        """
        settings = self._settings()
        if self.comm is not None and self.out is None:
            raise InputError("with comm=, say where the run goes with out=: all processes write there")
        if not (self.warm_start and hasattr(self, "_folder")):
            self._folder = tempfile.mkdtemp(prefix="dsgmcmc-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        own = Path(self._folder)
        out = Path(self.out) if self.out is not None else own / "run"
        at_root = self.comm is None or self.comm.rank == 0

        def prepare() -> str:
            if not at_root:
                return ""
            beside = out.with_name(f"{out.name}.ratings.h5") if self.comm is not None else own / "ratings.h5"
            return str(prepare_data(X, y, beside, self.test_fraction, settings["seed"]).resolve())

        if self.comm is None:
            sample_apart(Path(prepare()), out, settings, self.warm_start, self.n_jobs, self.verbose)
        else:
            data = self.comm.bcast(agree(self.comm, prepare, "fit"), root=0)
            from dsgmcmc.runs.job import Job  # needs MPI, which is running
            from dsgmcmc.runs.sources.ratings import RatingsSource

            Job(self.comm, RatingsSource(Path(data)), out, Layers(settings), self.warm_start).run()
        self.run_: Run = open_run(out)
        self._predictors: dict[Options, Predictor] = {}
        self.users_, self.items_ = self.run_.users.ids, self.run_.items.ids
        self.mean_ = self.run_.mean
        self.n_features_in_ = 2
        self.rmse_ = None
        if len(self.run_.test_pairs()[0]):
            self.rmse_ = rmse(self.run_.test.rating, self.run_.test.mean)
        return self

    def _settings(self) -> dict[str, Any]:
        settings = dict(self.options or {})
        section = settings.pop("sampler", {})
        section = {"name": section} if isinstance(section, str) else dict(section)
        if self.sampler is not None:
            section["name"] = self.sampler
        seed = seed_of(self.random_state)
        settings |= {"rank": self.rank, "chains": self.chains, "noise": self.noise, "seed": seed}
        given = {"sampler": section or None, "iterations": self.iterations, "burn_in": self.burn_in}
        return settings | {name: value for name, value in given.items() if value is not None}

    # ------------------------------------------------------------------ using

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise InputError("this BPMF is not fitted: call fit first, or open a run with dsgmcmc.open_run")
        return self.run_

    def _predict(self, X: Any, options: Options) -> Prediction:
        run = self._fitted()
        users, items = (
            run.vocabulary(kind).index_of(names, refuse=self.unknown == "refuse")
            for kind, names in zip(KINDS, read_pairs(X), strict=True)
        )
        if options not in self._predictors:
            self._predictors[options] = Predictor(run, options)
        return self._predictors[options](users, items)

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

    def score(self, X: Any, y: Any) -> float:
        """Coefficient of determination R^2 of the predictions, as scikit-learn's regressors have it."""
        truth = np.asarray(y, np.float64)
        residual = float(((truth - self.predict(X)) ** 2).sum())
        return 1.0 - residual / float(((truth - truth.mean()) ** 2).sum())

    def recommend(
        self, users: Sequence[Any] | npt.NDArray[Any], n: int = 10, *, by: By = "mean", include_rated: bool = False
    ) -> dict[str, npt.NDArray[Any]]:
        """Recommend items to users.

        Parameters
        ----------
        users : sequence of names
        n : int
            Items for each.
        by : {"mean", "ucb", "lcb", "thompson"}
            See `dsgmcmc.posterior.recommend`.
        include_rated : bool
            Also what they rated in training.

        Returns
        -------
        dict of str to (m,) array
            Columns ``user_id, item_id, score, rank``; ``pandas.DataFrame`` takes it as it is.
        """
        run = self._fitted()
        rated = None
        if not include_rated:
            with run.open_ratings() as ratings:
                rated = Rated(ratings)
        rows = run.users.index_of(list(users), refuse=True)
        blocks = list(recommendations(run, rows, Ranking(n, by), rated))
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}
