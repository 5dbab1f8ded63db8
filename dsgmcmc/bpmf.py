"""The estimator `BPMF`: Bayesian matrix factorisation with the conventions of scikit-learn.

scikit-learn itself is not required.
"""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from typing_extensions import override

from dsgmcmc.config.run import RunConfig, merged
from dsgmcmc.errors import InputError, RunWarning, StoppedError, saying_how_to_continue
from dsgmcmc.features.arrays import read_features
from dsgmcmc.features.described import Description, describe
from dsgmcmc.input.arrays import has_time_column, is_wide, ratings_source
from dsgmcmc.input.roles import CONTEXT, NO_COLUMN, parse_columns
from dsgmcmc.input.sources.annotated import data_array_of, is_annotated, is_dataset
from dsgmcmc.input.sources.labelled import refuse_lines, refuse_unstored, refuse_variable
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.mpirun import number_of_processes, run_sample
from dsgmcmc.posterior.cells.fitted_rows import open_rows
from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.fitted.state import for_users
from dsgmcmc.posterior.matrix.target import TrainingData
from dsgmcmc.posterior.rows.columns import form_with_weights, frame_with_weights, refuse_columns
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.prepare.settings import Duplicates, PrepareSettings
from dsgmcmc.prepare.summary import DataReading, Summary
from dsgmcmc.runs.progress import in_notebook
from dsgmcmc.storage.files import Scratch, without_scratch
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.tables.frames import collected, frame_of_cube, is_cube
from dsgmcmc.tables.result import library_of
from dsgmcmc.tables.usual import Columns
from dsgmcmc.terminal import log, warn

if TYPE_CHECKING:  # these modules load Numba's compiler
    from dsgmcmc.diagnostics.comparison import Comparison
    from dsgmcmc.runs.settings import Metric

#: Admitted values of parameters that are not settings of the run.
ADMITTED: dict[str, tuple[Any, ...]] = {
    "unknown": ("prior", "refuse"),
    "duplicates": (*get_args(Duplicates), None),
    "model": ("auto", None),
}


#: What a note says after a stop.
CONTINUE = "The chains are kept up to their last checkpoint: `fit` with warm_start=True continues."


def _brief(value: object) -> str:
    """Return the representation of a value; for data, only the name of the class."""
    if isinstance(value, os.PathLike):
        value = str(value)
    if isinstance(value, str | int | float | dict | None):
        return repr(value)
    return f"<{type(value).__name__}>"


def seed_of(random_state: Any) -> int:
    """Return the seed for `random_state`: an int, or what NumPy makes a generator of, or None.

    A generator gives its next number. With None, the seed is random.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 1
    if isinstance(random_state, np.random.SeedSequence | np.random.BitGenerator):
        random_state = np.random.default_rng(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    try:
        return operator.index(random_state)
    except TypeError:
        raise ValueError(
            f"random_state {random_state!r}: expected an int, a Generator, a RandomState or None"
        ) from None


class Estimator:
    """A regressor whose parameters are the arguments of its constructor, stored as attributes."""

    _estimator_type = "regressor"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` has no effect, but scikit-learn requires it."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        arguments = [
            f"{name}={_brief(value)}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def get_metadata_routing(self) -> Any:
        """Return what scikit-learn passes to which method: `sample_weight` to `fit`, if asked."""
        # only scikit-learn calls this
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.fit.add_request(param="sample_weight", alias=None)
        return getattr(self, "_metadata_request", request)

    def set_fit_request(self, *, sample_weight: bool | str | None = None) -> Self:
        """Say whether scikit-learn's metadata routing passes `sample_weight` to `fit`."""
        request = self.get_metadata_routing().__sklearn_clone__()
        request.fit.add_request(param="sample_weight", alias=sample_weight)
        self._metadata_request = request  # where `sklearn.base.clone` looks for it
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __sklearn_tags__(self) -> Any:
        # only scikit-learn calls this
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags, TransformerTags

        return Tags(
            "regressor",
            TargetTags(required=False),
            transformer_tags=TransformerTags(),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(categorical=True, string=True, sparse=True, allow_nan=True),
        )


#: Parameters with which arrays have been read before they are prepared.
FORM = {"columns", "matrix", "variable", "first_line", "skip_rows", "ignore"}
#: Parameters that `prepare` gets as descriptions of users and items.
DESCRIBED = {"user_features", "item_features", "feature_kinds", "levels"}


@dataclass(repr=False, eq=False)
class BPMF(Estimator, FittedModel):
    """Bayesian probabilistic matrix factorisation, sampled by stochastic-gradient MCMC.

    Parameters that are None, and settings that are not parameters, have the defaults of ``dsgmcmc
    sample``, which docs/settings.md lists.

    Parameters
    ----------
    rank : int or "auto", optional
        Number K of latent dimensions; 0: biases only. Spare ones shrink, cost time, and widen
        intervals of expected values by some per cent.
    sampler : str, optional
        Sampling algorithm; its settings are named sampler.NAME: see `options`.
    iterations : int or str, optional
        Number of iterations, burn-in included; e.g. 2000 or 500sweeps.
    burn_in : int or str, optional
        Initial iterations to discard.
    until : str, optional
        Stop once 90 % of the monitored predictions have reached this R-hat or effective sample
        size, or after `iterations`. Predictions of held-out ratings are monitored, so `until` needs
        a `test_fraction`.
    chains : int
        Number of independent chains.
    noise : {"shared", "by-user", "by-item", "both"}, optional
        One noise level for all ratings, or one per user, per item, or both.
    implicit_features : {"no", "user", "item", "both"}, optional
        Learn also from who rated what: about users, items, or both.
    time_levels : str, optional
        Ratings of a user (or item) that share a time effect: ratings of one second (page), or N
        successive ratings. `fit` then needs timestamps, in a column of X or in a file.
    model : {"auto"}, optional
        With "auto", `fit` first compares models on a part of the ratings, as `compare` does, and
        samples the recommended model; other parameters restrict the candidates.
    user_features, item_features : data frame, array (n, 1 + F), SciPy sparse matrix, path or
    "names", optional
        Features of users and items, with or without ratings. The users (items) of a data frame are
        named by the column of `columns`, or one with a usual name such as ``user``; else by an
        index that has a name or is text; else by the first column. Those of an array are named by
        its first column, those of a matrix by row numbers from 0, or by names beside it: ``(names,
        matrix)``. Text and categories become one-hot columns, lists multi-hot columns, dates
        functions of time, columns of 0 and 1 stay what they are, and other numbers are
        standardised, as by ``dsgmcmc prepare``. ``"names"``: the names themselves, which are dates,
        as the columns or the rows of a matrix may be.
    feature_kinds : dict of str to str, optional
        Kinds of columns of features, in place of those that are found: number, category, list,
        year, flag, time or skip; for example ``{"occupation": "category", "fingerprint": "list"}``.
    options : dict, optional
        Any other settings of ``dsgmcmc sample`` by their names, such as ``{"grid": 8,
        "sampler.step_size": 0.2}``.
    test_fraction : float or None
        Share of the ratings in `fit` that is held out for ``rmse_`` and diagnostics; None and the
        default, 0, hold out nothing, because `fit` usually receives a training set (the default of
        ``dsgmcmc prepare`` is 0.1).
    duplicates : {"error", "first", "last", "mean", "keep"}
        Treatment of several ratings of an item by a user: raise an error, use the first, the last
        or the mean, or keep all as measurements of their own.
    columns : str, optional
        Columns of a file or data frame that have other names than user, item, rating, timestamp or
        their usual synonyms: ``"user=buyer,item=sku"``. With ``rating=none``, or if there is no
        column of ratings, every row is a click. With ``weight=W`` column W has the relative
        precisions of measurements; ``lower=L,upper=U`` and ``relation=R`` name bounds of ratings.
        In AnnData ``upper=lod`` is a limit: a layer, a column of var or obs, or a number.
    user, item : str or sequence of str, optional
        Columns of users and items; several columns are the parts of a name, as in
        ``user=["station", "day"]``. Parts are features, unless `part_features` is False, so that a
        name that is not in the ratings is predicted from its parts. Names are then tuples, such as
        ``("s3", "d4")``.
    context : str, optional
        A third column, beside those of `user` and `item`, whose side is open: `fit` compares models
        in all three arrangements, as with `model="auto"`, and samples the best. Pairs, names and
        results have the three columns in any arrangement.
    hold_out_by : str or sequence of str, optional
        Columns of a file, or of users, items and context, whose groups `test_fraction` and
        comparisons of models hold out as a whole, such as ``["station", "day"]``. Then
        ``by_group_`` has the correlation of test ratings and predictions within groups.
    part_features : bool
        Whether the parts of names are features.
    matrix : bool, optional
        Whether X, or the table in a file, is a matrix with a row for each user and a column for
        each item; NaN and empty cells are not rated. Rows are named by the column ``user`` or by a
        first column of text, or else by the index or by numbers; columns are named by their labels.
        By default files are no matrices. Arrays and data frames are, if they have five columns or
        more (with NaN, also two or four), all of them numbers, and no usual name of a user, an
        item, a rating or a time.
    missing : float, sequence of float or str, optional
        Values that mean *not rated*, such as 99 or ``[0, 99]``: ratings of these values are left
        out. A word such as ``"NULL"``, or ``""`` for what is missing, also leaves out rows without
        a user or an item. `fit` warns of values that probably mean *not rated*.
    variable : str, optional
        Which matrix or table, where a file or an object has several: ``"X"`` or a layer of AnnData,
        a variable of ``.mat``, netCDF or a Dataset, an object of ``.rda``.
    unstored : {"missing", "zero", "limit"}, optional
        What cells mean that a sparse matrix does not store: not rated, or ratings of 0, as counts
        are. AnnData, and files of 10x, MATLAB and R, need to say so; elsewhere they are not rated.
        Cells without a number, but with a limit, are not rated, or known by their limit.
    first_line : {"names", "ratings"}, optional
        What the first line of a text file has, if its numbers may be names of items or ratings.
    skip_rows : str, optional
        Lines of a text file that are no rows: ``"1-3"`` above the header, or ``"2"`` with units
        below it.
    decimal : {",", "."}, optional
        The mark before the decimals of numbers in texts; the other one, or a blank, may stand
        between thousands. By default the rows tell.
    unit : str, optional
        Unit of the ratings, such as ``"t/ha"``, which results and pictures name.
    levels : data frame or path, optional
        Lowest and highest level of items, in the columns ``item``, ``lowest`` and ``highest``, if
        ratings are ordered levels. By default items have the levels that they were given.
    ignore : str or sequence of str, optional
        Columns of a matrix that are no items, such as ``["age"]``; ``"none"`` says that all are.
    clip : bool
        Clip predictions to the range of the levels, if ratings are levels, and those of counts and
        of amounts with zeros at 0; default True, as in ``dsgmcmc predict``.
    unknown : {"prior", "refuse"}
        Treatment of users and items that were not in `fit`: predict from the prior, or raise an
        error.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        Seed of the split and of all draws; a generator gives the seed of every `fit`, and None
        draws a random one.
    rng : int, numpy.random.Generator, SeedSequence or BitGenerator, optional
        The same, by its name in other packages (SPEC 7); it replaces `random_state`.
    out : path, optional
        Permanent run directory; the ratings are stored next to it as ``OUT.ratings.h5``. By default
        the directory is temporary, and is deleted with the estimator. With `out` and `warm_start`,
        `fit` continues an interrupted `fit` from its last checkpoint.
    warm_start : bool
        Whether `fit` on the same ratings continues the chains of the last `fit` (or of `out`) up to
        `iterations`.
    n_jobs : int
        Number of processes; -1 for one per core. With 1, this process samples, without MPI; several
        processes are started with ``mpirun``.
    comm : MPI.Comm, optional
        Under ``mpirun``: the processes that call `fit` together. Needs `out`.
    verbose : bool, optional
        Show progress on standard error: as one changing line in a notebook, and as separate lines
        elsewhere or with several processes. By default progress is shown only in a notebook.

    Attributes
    ----------
    run_ : Run
        The run, with moments and draws by user and item, and traces.
    data_ : DataReading or None
        What `fit` decided about columns: roles, kinds of features, times, missing values; None for
        a ratings file, and on processes of `comm` other than the first.
    n_features_in_ : int
        Number of columns of the training matrix; 2, user and item, if it was no matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgmcmc import BPMF
    >>> rng = np.random.default_rng(0)
    >>> pairs = np.unique(rng.integers(0, 20, (300, 2)), axis=0)  # user and item of each rating
    >>> ratings = 3 + 0.1 * pairs[:, 0] - 0.05 * pairs[:, 1] + rng.normal(0, 0.2, len(pairs))
    >>> model = BPMF(rank=2, sampler="baoab", iterations=1000, options={"grid": 2})
    >>> model = model.fit(pairs, ratings)
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
    user_features: object = None
    item_features: object = None
    feature_kinds: dict[str, str] | None = None
    options: dict[str, Any] | None = None
    test_fraction: float | None = 0.0
    duplicates: Duplicates | None = "error"
    columns: str | None = None
    user: str | Sequence[str] | None = None
    item: str | Sequence[str] | None = None
    context: str | None = None
    hold_out_by: str | Sequence[str] | None = None
    part_features: bool = True
    matrix: bool | None = None
    missing: object = None
    variable: str | None = None
    unstored: Literal["missing", "zero", "limit"] | None = None
    first_line: Literal["names", "ratings"] | None = None
    skip_rows: str | None = None
    decimal: Literal[",", "."] | None = None
    unit: str | None = None
    levels: Any = None
    ignore: str | Sequence[str] | None = None
    clip: bool = True
    unknown: Literal["prior", "refuse"] = "prior"
    random_state: object = 0
    rng: object = None
    out: str | os.PathLike[str] | None = None
    warm_start: bool = False
    n_jobs: int = 1
    comm: Any = None
    verbose: bool | None = None

    # ------------------------------------------------------------------ fitting

    @for_users()
    def fit(
        self,
        X: object,
        y: object = None,
        *,
        sample_weight: object = None,
        test: object = None,
        start: str | os.PathLike[str] | FittedModel | None = None,
    ) -> Self:
        """Sample the posterior. Collective, if `comm` is given.

        Parameters
        ----------
        X : ratings or pairs, one of
            - a path: a ratings file made by ``dsgmcmc prepare``, or any file that it reads;
            - a SciPy sparse matrix, users x items, whose stored values are the ratings and whose
              indices are the names (see `unstored`);
            - AnnData, users are observations; a DataArray or Dataset of xarray (see `variable`);
            - an array (n, 3): user, item, rating; or a data frame with columns of these names, or
              of the names in `columns`, in any order; a structured array with such fields; or what
              pandas has in an index of users and items;
            - an array or data frame (I, J) with a row for each user and a column for each item (see
              `matrix`);
            - with `time_levels`, a data frame or array (n, 4) with the timestamp in seconds, or a
              path;
            - with `y`, an array or data frame (n, 2): user, item.
        y : (n,) float, optional
            Ratings. With ``matrix=True`` it is ignored, as scikit-learn's transformers do.
        sample_weight : (n,) float, optional
            Relative precisions of the ratings, as a column of weights in `columns`; not of a
            matrix, whose cells have none.
        test : optional
            Ratings for ``rmse_`` and diagnostics, in a form of X with ratings; not with
            `test_fraction`.
        start : path or fitted model, optional
            An earlier run or model, usually on fewer ratings. Users and items of the earlier run
            start from its last state, so a short `burn_in` suffices. Model parameters that are None
            are taken from the earlier run.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If ratings or parameters are wrong.
        DivergenceError
            If a chain diverges.
        StoppedError
            If a signal has stopped sampling, and the program has a handler for it that returns.

        Warns
        -----
        RunWarning
            At the end, of what makes the run doubtful, as ``dsgmcmc info`` does.
        """
        if self.matrix:
            y = None
        self._cube = None
        if is_cube(X):
            self._cube = X
        X = self._cells_of(X)
        library = library_of(X)
        if sample_weight is not None:
            X = frame_with_weights(X, y, sample_weight, self._form())
            y = None
        settings = self._settings()
        inputs = [X] if y is None else [X, y]
        command = f"{self!r}.fit({', '.join(map(_brief, inputs))})"
        if self.comm is not None and self.out is None:
            raise InputError("comm= needs out=, the run directory, to which all processes write")
        # until the end of `fit`, because it keeps the folder in which the run of `start` may be
        earlier_scratch = getattr(self, "_scratch", None)
        if earlier_scratch is None or not self.warm_start:
            self._scratch = Scratch()
        out, ratings_file = self._paths()
        self._reading: DataReading | None = None
        run = RunDirectory(out)
        data = self._prepare(X, ratings_file, seed=settings["seed"], y=y, run=run, test=test)
        with saying_how_to_continue(self.out, CONTINUE):
            self._sample(data, out, settings, earlier_run=_path_of(start), command=command)
        self._training = self._training_data(X, y)
        self._library = library
        self.data_ = self._reading
        self._adopt(open_rows(out))
        if self.comm is None or self.comm.rank == 0:
            self._warn_of_run()
        return self

    def _cells_of(self, X: Any) -> Any:
        """Return the known cells of a DataArray of three dimensions; other ratings as they are."""
        if not is_cube(X):
            return X
        columns = parse_columns(self._columns())
        if CONTEXT not in columns:
            user, item, context = map(str, X.dims)
            raise InputError(
                f"X has three dimensions: give BPMF(user={user!r}, item={item!r},"
                f" context={context!r})"
            )
        return frame_of_cube(X, str(columns.get("rating", "rating")))

    def _warn_of_run(self) -> None:
        """Warn as ``dsgmcmc info`` does of a run that has ended."""
        from dsgmcmc.diagnostics.overview import run_warnings  # loads Numba's compiler

        for warning in run_warnings(self.run_.directory):
            warn(without_scratch(warning), RunWarning)

    def _training_data(self, X: object, y: object) -> TrainingData:
        """Return what `complete` has to know of the ratings."""
        form = self._form()
        if is_wide(X, y, form) or hasattr(X, "tocoo"):
            return TrainingData(data_array_of(X, form), form)
        return TrainingData(form=form, library=library_of(X))

    @for_users()
    def fit_transform(self, X: object, y: object = None) -> Any:
        """Fit to a matrix, and return it without holes, as scikit-learn's imputers do.

        Parameters
        ----------
        X : array, data frame, xarray.DataArray or SciPy sparse matrix
            A row for each user and a column for each item. Scale columns that differ in scale
            before, for example with ``StandardScaler``.
        y : ignored

        Raises
        ------
        InputError
            If X need not be a matrix: ``BPMF(matrix=True)`` says that it is one.
        """
        if not is_cube(X) and not is_wide(X, None, self._form()) and not hasattr(X, "tocoo"):
            raise InputError(
                "fit_transform needs a matrix with a row for each user and a column for each item;"
                " X may be something else: if it is a matrix, give BPMF(matrix=True)"
            )
        return self._as_output(self.fit(X).complete(), X)

    def _paths(self) -> tuple[Path, Path]:
        """Return the run directory and the ratings file of `fit`."""
        if self.out is None:
            folder = self._scratch.path
            return folder / "run", folder / "ratings.h5"
        out = Path(self.out)
        return out, out.with_name(f"{out.name}.ratings.h5")

    @override
    def _columns(self) -> str | Columns | None:
        """Return the columns in `columns`, `user`, `item` and `context`.

        Raises InputError if `columns` names one of the others again.
        """
        columns = parse_columns(self.columns)
        for role, given in (("user", self.user), ("item", self.item), (CONTEXT, self.context)):
            if given is None:
                continue
            if role in columns:
                raise InputError(f"columns={self.columns!r} and {role}={given!r}: give one of them")
            columns[role] = (given,) if isinstance(given, str) else tuple(map(str, given))
        return columns or None

    def _groups(self) -> str | None:
        """Return the columns in `hold_out_by` as `prepare` has them."""
        if self.hold_out_by is None or isinstance(self.hold_out_by, str):
            return self.hold_out_by
        return "+".join(map(str, self.hold_out_by))

    def _compares(self) -> bool:
        """Whether `fit` compares models: a context needs a comparison."""
        return self.model is not None or self._has_context()

    def _has_context(self) -> bool:
        """Whether the ratings have a third direction, whose side is open."""
        return CONTEXT in parse_columns(self._columns())

    def _shows_progress(self) -> bool:
        if self.verbose is None:
            return in_notebook()
        return bool(self.verbose)

    def _sample(
        self,
        data: Path,
        out: Path,
        settings: dict[str, Any],
        *,
        earlier_run: Path | None,
        command: str,
    ) -> None:
        """Sample a run in this process and, with `comm`, its other processes. Collective.

        Without `comm`, several processes are started by ``mpirun``.

        Raises
        ------
        StoppedError
            If sampling was stopped at a checkpoint.
        """
        processes = 1
        if self.comm is None:
            processes = number_of_processes(self.n_jobs)
        if processes > 1:
            options = []
            if self.warm_start:
                options.append("--resume")
            if earlier_run is not None:
                options += ["--from", str(earlier_run)]
            if self._compares():
                options += ["--model", "auto"]
            run_sample(
                data,
                out,
                settings,
                options=options,
                processes=processes,
                verbose=self._shows_progress(),
                command=command,
            )
            return
        # these modules load Numba's compiler, which is not needed to read a model
        from dsgmcmc.runs.job import Job
        from dsgmcmc.runs.recommended import sample_recommended
        from dsgmcmc.runs.source import RatingsSource

        job = Job(
            self.comm or Alone(),
            RatingsSource(data, start=earlier_run),
            out,
            settings,
            resume=self.warm_start,
            command=command,
            quiet=not self._shows_progress(),
        )
        if self._compares():
            status = sample_recommended(job)
        else:
            status = job.run()
        if status:
            raise StoppedError

    @for_users()
    def compare(self, X: object, y: object = None, *, metric: Metric | None = None) -> Comparison:
        """Compare models that suit the ratings, as ``dsgmcmc compare`` does, without fitting.

        Collective, if `comm` is given. Parameters of this object restrict the candidates: with
        ``noise="by-user"``, for example, all candidates have noise by user. Time effects are
        compared if X has timestamps, or is a ratings file that contains the order of ratings in
        time.

        Parameters
        ----------
        X, y
            Ratings, as for `fit`. Ratings that `test_fraction` holds out are not used.
        metric : {"log-probability", "log-density", "rmse", "ndcg"}, optional
            Criterion of the comparison. Default: NDCG@10 for clicks; the log probability of the
            recorded value for ratings that are levels or were recorded to a step; else the log
            density.

        Returns
        -------
        Comparison
            ``models`` (a list, the simplest first), ``recommended`` and ``best`` (names),
            ``settings`` (of the recommended model), ``sentence()``.

        Raises
        ------
        InputError
            If ratings or parameters are wrong, or there are too few ratings to hold some out.
        """
        from dsgmcmc.runs.compare import Comparing
        from dsgmcmc.runs.source import RatingsSource

        X = self._cells_of(X)
        settings = self._settings()
        comm = self.comm or Alone()
        scratch = Scratch()
        data = self._prepare(X, scratch.path / "ratings.h5", seed=settings["seed"], y=y)
        folder = Path(comm.bcast(str(scratch.path / "compare")))
        comparing = Comparing(
            comm, RatingsSource(data), folder, settings, metric=metric, quiet=not self.verbose
        )
        return comparing.run()

    # ------------------------------------------------------------------ the ratings file

    def _prepare(self, X: object, path: Path, *, seed: int, **given: Any) -> Path:
        """Write the ratings as `_write_ratings` does, on process 0. Collective."""
        work = partial(self._write_ratings, X, path, seed=seed, **given)
        return on_root(self.comm or Alone(), work, "fit")

    def _write_ratings(
        self,
        X: object,
        path: Path,
        *,
        seed: int,
        y: object = None,
        run: RunDirectory | None = None,
        test: object = None,
    ) -> Path:
        """Write the ratings to `path`, unless X is a ratings file.

        If there is a run already in `run`, `path` is its ratings file, and is written only with the
        run's own ratings; other ratings are written to a temporary file, with which the run cannot
        continue. Without `run`, models are compared.

        Returns
        -------
        Path
            The ratings file.
        """
        features = self._features()
        X = collected(X)  # once, not at each look at its columns
        form = form_with_weights(self._form(), X)
        self._check_choice(X)
        refuse_columns(X, y, form)
        needs_times = self.time_levels not in (None, "no")
        # times that can be read are kept for models with time effects, which are compared
        has_context = self._has_context()
        try_times = not needs_times and not has_context and (run is None or self.model == "auto")
        timed = needs_times or (try_times and has_time_column(X, y, form))
        source = ratings_source(X, y, form, timed=timed, has_features=bool(features))
        if isinstance(source, Path) and source.suffix == ".h5":
            if test is not None:
                raise InputError(f"{source} has its test ratings: leave out test")
            return source.resolve()
        options = self._options_of_prepare(of_file=isinstance(source, Path))
        options |= {
            "seed": seed % 2**31,
            "timestamps": needs_times,
            "try_times": try_times,
            "user_features": features.get("user"),
            "item_features": features.get("item"),
            "force": True,
        }
        if self.levels is not None:
            options["levels"] = read_features(self.levels, "item", columns=self._columns())
        if has_context or isinstance(source, Path):
            options["columns"] = self._columns()
        sources = [source]
        if test is not None:
            if self.test_fraction:
                raise InputError("test gives the test ratings: leave out test_fraction")
            options["test_fraction"] = None
            held_out = ratings_source(test, None, form, timed=timed)
            if isinstance(held_out, Path):
                options["test"] = held_out
            else:
                named_test = replace(held_out.file, path=Path("test"))
                sources.append(held_out._replace(test=True, file=named_test))
        if run is not None and run.settings_file.exists():
            other = self._scratch.path / "other.h5"
            made = prepare_ratings(sources, other, **options)
            _, facts = run.read_settings()
            if made.content_sha256 != facts.get("data_hash"):
                return other
        summary = prepare_ratings(sources, path, **options)
        self._reading = DataReading(summary)
        self._tell(summary)
        return path.resolve()

    def _options_of_prepare(self, of_file: bool) -> dict[str, Any]:
        """Return the parameters that are settings of `prepare`; of arrays, without `FORM`."""
        names = {field.name for field in fields(self)} - DESCRIBED
        if not of_file:
            names -= FORM
        options = {
            name: getattr(self, name) for name in PrepareSettings.model_fields if name in names
        }
        options["hold_out_by"] = self._groups()
        options["test_fraction"] = self.test_fraction or 0.0
        if of_file:
            options["matrix"] = bool(self.matrix)
        return options

    def _check_choice(self, X: object) -> None:
        """Raise InputError if `variable` or `unstored` says nothing of X."""
        if isinstance(X, str | os.PathLike):
            return
        choice = self._form()
        refuse_lines("X", choice)
        if not (is_annotated(X) or is_dataset(X)):
            refuse_variable("X", choice)
        if not (is_annotated(X) or hasattr(X, "tocoo")):
            refuse_unstored("X", choice)

    def _features(self) -> dict[str, Description]:
        """Return the descriptions of users and items that have features."""
        features = {}
        for entity, given in (("user", self.user_features), ("item", self.item_features)):
            if given is not None:
                features[entity] = read_features(given, entity, columns=self._columns())
        return describe(features, self.feature_kinds)

    def _tell(self, summary: Summary) -> None:
        """Log how the input was read, also to the terminal if `verbose`, and warn of doubts."""
        from dsgmcmc.runs.progress import logs

        with logs(0) if self.verbose else nullcontext():
            log.info("ratings: %s", summary.columns)
            for features in summary.features.values():
                for note in features["notes"]:
                    log.info("%s", note)
        doubts = list(summary.doubts)
        asked_for_clicks = parse_columns(self._columns()).get("rating") == NO_COLUMN
        if summary.columns.endswith("treated as clicks") and not asked_for_clicks:
            doubts.append(f"{summary.columns} (columns='rating={NO_COLUMN}' asks for that)")
        for doubt in doubts:
            warn(doubt)

    # ------------------------------------------------------------------ settings

    @classmethod
    def load(
        cls, run: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None
    ) -> Self:
        """Make a fitted model from a run directory of ``dsgmcmc sample``, or of `fit` with `out`.

        Parameters
        ----------
        run : path
            Run directory. `fit` on the ratings file of the run continues the run, with its
            settings.
        data : path, optional
            Ratings file of the run, if it was moved; only `recommend` needs it.

        Raises
        ------
        InputError
            If `run` is not a run on ratings, or has no posterior yet.
        """
        opened = open_rows(run, data)
        config = opened.run.config
        model = cls(
            rank=config.rank,
            iterations=config.iterations,
            chains=config.chains,
            noise=config.noise,
            sampler=config.sampler.name,
            random_state=config.seed,
            out=run,
            warm_start=True,
        )
        return model._adopt(opened)

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the run by name.

        They are those in `options`, and the parameters that are settings and not None.
        """
        parameters = self.get_params()
        for name, admitted in ADMITTED.items():
            if parameters[name] not in admitted:
                raise InputError(
                    f"{name}={parameters[name]!r}: expected {' or '.join(map(repr, admitted))}"
                )
        if not isinstance(self.options, Mapping | None):
            raise InputError(
                f"options={self.options!r}: expected a dict of settings by their names"
            )
        settings = merged(self.options or {})
        repeated = settings.keys() & (parameters.keys() | {"seed"}) - {"sampler"}
        if repeated:
            raise InputError(
                f"options has {min(repeated)!r}, which is a parameter of BPMF itself (seed:"
                " random_state)"
            )
        if self.sampler is not None:
            settings["sampler"]["name"] = self.sampler
        for name, value in parameters.items():
            if name in RunConfig.model_fields and name != "sampler":
                settings[name] = value
        settings["seed"] = seed_of(self.random_state if self.rng is None else self.rng)
        return {name: value for name, value in settings.items() if value is not None}


def _path_of(start: str | os.PathLike[str] | FittedModel | None) -> Path | None:
    """Return the run directory of an earlier run or model."""
    if start is None:
        return None
    if isinstance(start, FittedModel):
        return Path(start.run_.path)
    return Path(start)
