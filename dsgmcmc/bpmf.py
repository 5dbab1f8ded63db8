"""The estimator `BPMF`: Bayesian matrix factorisation with the conventions of scikit-learn, which is not required."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dsgmcmc._estimator import Estimator, brief, seed_of
from dsgmcmc.config.run import RunConfig
from dsgmcmc.data.arrays import has_times, prepare_data, read_features
from dsgmcmc.errors import InputError, StoppedError
from dsgmcmc.parallel.comm import Alone, agree
from dsgmcmc.parallel.mpirun import processes_wanted, sample_apart
from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.progress import in_notebook
from dsgmcmc.settings import in_python
from dsgmcmc.storage.files import Scratch
from dsgmcmc.types import Comm

if TYPE_CHECKING:  # these modules load Numba's compiler
    from dsgmcmc.diagnostics.comparison import Comparison
    from dsgmcmc.runs.compare import Metric

#: Admitted values of parameters that are not settings of the run.
ADMITTED: dict[str, tuple[Any, ...]] = {
    "unknown": ("prior", "refuse"),
    "duplicates": ("error", "first", "last", "mean"),
    "model": ("auto", None),
}


@dataclass(repr=False, eq=False)
class BPMF(Estimator, FittedModel):
    """Bayesian probabilistic matrix factorisation, sampled by stochastic-gradient and Langevin MCMC.

    Parameters that are None, and settings that are not parameters, have the defaults of ``dsgmcmc sample``, listed in
    docs/settings.md.

    Parameters
    ----------
    rank : int or "auto", optional
        Number K of latent dimensions; 0: biases only.
    sampler : str, optional
        Sampler; its own settings are sampler.NAME: see `options`.
    iterations : int or str, optional
        Number of iterations, burn-in included; e.g. 2000 or 500sweeps.
    burn_in : int or str, optional
        Iterations before the first draw.
    until : str, optional
        Stop once 90 % of the monitored predictions have reached this R-hat or effective sample size. They are
        predictions of held-out ratings, which need a `test_fraction`; `iterations` is then the limit.
    chains : int
        Number of independent chains.
    noise : {"shared", "by-user", "by-item", "both"}, optional
        One noise level for all ratings, or one per user, per item, or both.
    implicit_features : {"no", "user", "item", "both"}, optional
        Learn also from who rated what: about users, items, or both.
    time_levels : str, optional
        Ratings of a user (or item) that share an effect: those of one second (page), or so many in a row. `fit` then
        needs timestamps: a column of X, or a file that has them.
    model : {"auto"}, optional
        With "auto", `fit` first compares models on a part of the ratings, as `compare` does, and samples the model
        that is recommended; other parameters restrict the candidates.
    user_features, item_features : data frame, array (n, 1 + F), SciPy sparse matrix or path, optional
        Features of users and items, rated or not. Their names are the column ``user`` (``item``) of a data frame, or
        else its index; the first column of an array; or the row numbers of a matrix. Text and categories are one-hot,
        lists multi-hot, and numbers standardised, as by ``dsgmcmc prepare``.
    options : dict, optional
        Any other settings of ``dsgmcmc sample`` by their names, such as ``{"grid": 8, "sampler": {"step_size": 0.2}}``.
    test_fraction : float
        Share of the ratings in `fit` that is held out for ``rmse_`` and diagnostics; default 0, because `fit` usually
        receives a training set (``dsgmcmc prepare`` holds out 0.1).
    duplicates : {"error", "first", "last", "mean"}
        If `fit` gets several ratings of a pair: raise an error, or use the first, the last or the mean.
    columns : str, optional
        Columns of a file or data frame whose names are not user, item, rating, timestamp or one of their usual
        synonyms: ``"user=buyer,item=sku"``.
    clip : bool
        Clip predictions to the range of the training ratings; default True (``predict`` has --clip).
    unknown : {"prior", "refuse"}
        Treatment of users and items that were not in `fit`: predict from the prior, or raise an error.
    random_state : int, numpy.random.RandomState or None
        Seed of the split and of all draws; None draws a random seed for every `fit`.
    out : path, optional
        Permanent run directory; the ratings are stored next to it as ``OUT.ratings.h5``. By default the directory is
        temporary, and is deleted with the estimator. With `out` and `warm_start`, an interrupted `fit` continues from
        its last checkpoint.
    warm_start : bool
        Whether `fit` on the same ratings continues the chains of the last `fit` (or of `out`) up to `iterations`.
    n_jobs : int
        Number of processes; -1 for one per core. A single process is this process, without MPI; several processes are
        started with ``mpirun``.
    comm : MPI.Comm, optional
        Under ``mpirun``: the processes that call `fit` together. Needs `out`.
    verbose : bool, optional
        Show progress on standard error: a line that changes in a notebook, lines elsewhere and with several processes.
        By default progress is shown only in a notebook.

    Attributes
    ----------
    run_ : Run
        The run, with moments, draws and traces by users and items.
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
    >>> list(model.recommend([3], n=2))
    ['user_id', 'item_id', 'score', 'rank', 'sd', 'q05', 'q95', 'ratings']
    """

    rank: int | Literal["auto"] | None = None
    _: KW_ONLY
    sampler: str | None = None
    iterations: int | str | None = None
    burn_in: int | str | None = None
    until: str | None = None
    chains: int = 1
    noise: str | None = None
    implicit_features: str | None = None
    time_levels: str | None = None
    model: Literal["auto"] | None = None
    user_features: Any = None
    item_features: Any = None
    options: dict[str, Any] | None = None
    test_fraction: float = 0.0
    duplicates: Literal["error", "first", "last", "mean"] = "error"
    columns: str | None = None
    clip: bool = True
    unknown: Literal["prior", "refuse"] = "prior"
    random_state: Any = 0
    out: str | os.PathLike[str] | None = None
    warm_start: bool = False
    n_jobs: int = 1
    comm: Any = None
    verbose: bool | None = None

    # ------------------------------------------------------------------ fitting

    @in_python()
    def fit(self, X: Any, y: Any = None, *, start: str | os.PathLike[str] | FittedModel | None = None) -> Self:
        """Sample the posterior. Collective, if `comm` is given.

        Parameters
        ----------
        X : ratings, one of
            - a path: a ratings file made by ``dsgmcmc prepare``, or any file that it reads;
            - a SciPy sparse matrix, users x items, whose stored values are the ratings and whose indices are the names;
            - an array (n, 3): user, item, rating; or a data frame with columns of these names, in any order, or of the
              names in `columns`;
            - with `time_levels`, a data frame or array (n, 4) with the timestamp in seconds, or a path;
            - with `y`, an array or data frame (n, 2): user, item.
        y : (n,) float, optional
            Ratings.
        start : path or fitted model, optional
            An earlier run or model, usually on fewer ratings. Users and items in both start from its last state, so
            that a short `burn_in` is enough. Model parameters that are None are taken from it.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If ratings or parameters are wrong.
        RuntimeError
            If a chain diverges, or sampling was stopped at a checkpoint.
        """
        settings = self._settings()
        command = f"{self!r}.fit({', '.join(map(brief, [X] if y is None else [X, y]))})"
        begin, earlier = None, getattr(self, "_scratch", None)  # keeps the run of `start`, which may be there
        if start is not None:
            begin = start.run_.path if isinstance(start, FittedModel) else Path(start)
        if self.comm is not None and self.out is None:
            raise InputError("with comm=, say where the run goes with out=: all processes write there")
        if not (self.warm_start and hasattr(self, "_scratch")):
            self._scratch = Scratch()
        own = self._scratch.path
        out = Path(self.out) if self.out is not None else own / "run"
        comm = Alone() if self.comm is None else self.comm
        jobs = processes_wanted(self.n_jobs) if self.comm is None else 1
        beside = out.with_name(f"{out.name}.ratings.h5") if self.out is not None else own / "ratings.h5"
        data = self._prepare(X, y, beside, comm, settings["seed"])
        shown = bool(self.verbose or (self.verbose is None and in_notebook()))
        try:
            if jobs > 1:
                sample_apart(data, out, settings, self.warm_start, jobs, shown, own, begin, command, self.model)
            else:
                from dsgmcmc.runs.compare import sample_recommended
                from dsgmcmc.runs.job import Job  # loads Numba's compiler, which reading a model does not need
                from dsgmcmc.runs.source import RatingsSource

                source = RatingsSource(data, start=begin)
                job = Job(comm, source, out, settings, self.warm_start, command=command, quiet=not shown)
                if job.run() if self.model is None else sample_recommended(job):
                    raise StoppedError("stopped before its end, at a checkpoint: go on with warm_start=True")
        except KeyboardInterrupt as error:
            error.add_note("The chains are kept as far as they came: `fit` with warm_start=True goes on.")
            raise
        del earlier
        return self._adopt(Run(out))

    @in_python()
    def compare(self, X: Any, y: Any = None, *, metric: Metric | None = None) -> Comparison:
        """Compare models that suit the ratings, as ``dsgmcmc compare`` does, without fitting this object. Collective.

        Parameters of this object restrict the candidates: with ``noise="by-user"``, for example, all candidates have
        noise by user. Time effects are compared if X has timestamps, or is a ratings file with the order of ratings.

        Parameters
        ----------
        X, y
            Ratings as for `fit`. Ratings that `test_fraction` holds out are not used.
        metric : {"log-probability", "log-density", "rmse", "ndcg"}, optional
            Criterion of the comparison. Default: NDCG@10 for clicks; the log probability for ratings that are levels or
            integers; else the log density.

        Returns
        -------
        Comparison
            ``models`` (a list, the simplest first), ``recommended`` and ``best`` (names), ``settings`` (of the
            recommended model), ``sentence()``.

        Raises
        ------
        InputError
            If ratings or parameters are wrong, or there are too few ratings to hold some out.
        """
        from dsgmcmc.runs.compare import Comparing
        from dsgmcmc.runs.source import RatingsSource

        settings, comm, scratch = self._settings(), self.comm or Alone(), Scratch()
        data = self._prepare(X, y, scratch.path / "ratings.h5", comm, settings["seed"], compared=True)
        folder = Path(comm.bcast(str(scratch.path / "compare")))
        return Comparing(comm, RatingsSource(data), folder, settings, metric, quiet=not self.verbose).run()

    def _prepare(self, X: Any, y: Any, beside: Path, comm: Comm, seed: int, compared: bool = False) -> Path:
        """Write the ratings to a file, unless X is a ratings file; return the path of the file. Collective."""

        def prepare() -> str:
            if comm.rank != 0:
                return ""
            given = {"user": self.user_features, "item": self.item_features}
            described = {kind: read_features(each, kind) for kind, each in given.items() if each is not None}
            timed = self.time_levels not in (None, "no")
            if not timed and (compared or self.model == "auto"):
                timed = has_times(X, y, self.columns)
            settled = (seed, described, timed, self.duplicates, self.columns)
            return str(prepare_data(X, y, beside, self.test_fraction, *settled).resolve())

        return Path(comm.bcast(agree(comm, prepare, "fit"), root=0))

    @classmethod
    def load(cls, run: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None) -> Self:
        """Make a fitted model from a run directory, written by ``dsgmcmc sample`` or by a `fit` with `out`.

        Parameters
        ----------
        run : path
            Run directory. `fit` on the same ratings continues the run (`warm_start`), with the settings of the run.
        data : path, optional
            Ratings file of the run, if it was moved; only `recommend` needs it.

        Raises
        ------
        InputError
            If `run` is not a run on ratings, or has no draws.
        """
        opened = Run(run)
        config = opened.config
        model = cls(
            rank=config.rank,
            sampler=config.sampler.name,
            iterations=config.iterations,
            chains=config.chains,
            noise=config.noise,
            random_state=config.seed,
            out=run,
            warm_start=True,
        )
        return model._adopt(opened, data)

    def _settings(self) -> dict[str, Any]:
        for name, admitted in ADMITTED.items():
            if getattr(self, name) not in admitted:
                raise InputError(f"{name}={getattr(self, name)!r}: expected {' or '.join(map(repr, admitted))}")
        if not isinstance(self.options, Mapping | None):
            raise InputError(f"options={self.options!r}: expected a dict of settings by their names")
        settings = dict(self.options or {})
        twice = settings.keys() & (self.get_params().keys() | {"seed"}) - {"sampler"}
        if twice:
            raise InputError(f"options has {min(twice)!r}, which is a parameter of its own: BPMF({min(twice)}=...)")
        section = settings.pop("sampler", {})
        section = {"name": section} if isinstance(section, str) else dict(section)
        if self.sampler is not None:
            section["name"] = self.sampler
        named = {name: value for name, value in self.get_params().items() if name in RunConfig.model_fields}
        settings |= named | {"sampler": section or None, "seed": seed_of(self.random_state)}
        return {name: value for name, value in settings.items() if value is not None}
