"""Exports a run to one file for other tools.

**Parquet**: one row per chain and user or item (``side, id, chain, ratings``, then ``bias, bias_sd,
factor_1, factor_1_sd ...``); when draws are exported, one row per draw and user or item (``side,
id, chain, iteration, weight, tau, bias, factor_1 ...``). Names of several parts have a column for
each part. A prediction is the mean of the training ratings plus both biases plus the inner product
of the factors; with scale log, all of these belong to logarithms. All terms must come from one draw
or from the means of one chain, because latent dimensions differ between chains.

**netCDF**: the run in ArviZ's schema, with dims ``chain`` and ``draw``, and the groups of
`to_datatree`. Raw factors, which are not identified, are only in Parquet files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.cells.pair_draws import (
    can_be_drawn,
    draw_pairs,
    exact_or_nan,
    observed_tests,
    observed_training,
)
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.item_parameters import UserRows, parameter_tables, user_parameters
from dsgmcmc.posterior.loadings import turned_loadings
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import (
    TEST_LOG_LIKELIHOOD,
    draw_weights,
    predictions,
    scalar_traces,
    traced,
)
from dsgmcmc.ratings.pairs import RatedPairs
from dsgmcmc.settings import named
from dsgmcmc.storage.files import check_target, write_file
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Array, Int32

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".nc": "netcdf"}


def require(task: str, *modules: str) -> None:
    """Raise InputError with an installation command if a module that `task` needs is missing."""
    missing = [module.replace("_", "-") for module in modules if find_spec(module) is None]
    if missing:
        raise InputError(
            f"{task} needs {' and '.join(missing)}: pip install {' '.join(missing)}, or"
            " dsgmcmc[report]"
        )


def export(
    run: Run,
    out: Path,
    *,
    draws: bool = False,
    items: bool = False,
    training: bool = False,
    order: Mapping[str, Array | None] | None = None,
    force: bool = False,
) -> None:
    """Write a run to one file, atomically.

    Parameters
    ----------
    run : Run
    out : Path
        The suffix selects the format: ``.parquet``, ``.pq`` or ``.nc``.
    draws : bool
        Whether to write draws instead of moments to a Parquet file.
    items : bool
        Whether to write parameters of items and users of levels, to a CSV or Parquet file; with
        `draws`, plausible values of users, one for each saved draw.
    training : bool
        Whether a netCDF file has log likelihoods of training ratings (`to_datatree`).
    order : dict of entity to array, optional
        Names of users and items in the order of their parameters; they are sorted by default.
    force : bool
        Whether to replace `out` if it exists.

    Raises
    ------
    InputError
        If the format is unknown or does not support the options, if the run has no moments or no
        draws yet, or if the file exists.
    WriteError
        If the file cannot be written.
    """
    if len(run.paths) > 1 and (items or out.suffix.lower() != ".nc"):
        raise InputError("several runs become one netCDF file: give --out FILE.nc, or one run")
    if training and (items or out.suffix.lower() != ".nc"):
        raise InputError(f"{named('training')} needs a netCDF file: give --out FILE.nc")
    if items:
        from dsgmcmc.tables.written import write_tables  # loads DuckDB

        order = order or {}
        users = UserRows(run, names=order.get("user"))
        tables: Iterable[Table] = parameter_tables(run, users, order.get("item"))
        if draws:
            tables = [user_parameters(run, users, draws=len(run.draws))]
        write_tables(tables, out, force=force)
        return
    file_format = _format_of(out, draws)
    if draws:
        run.need_draws()
    check_target(out, force)
    with writing(out):
        if file_format == "netcdf":
            require("`dsgmcmc export --out RUN.nc`", "arviz_base", "h5netcdf")
            write_file(out, [to_datatree(run, training=training).to_netcdf(engine="h5netcdf")])
            return
        from dsgmcmc.tables.written import write_blocks  # loads DuckDB

        if draws:
            write_blocks(_draw_tables(run), out)
        else:
            write_blocks(_moment_tables(run), out)


def _format_of(out: Path, draws: bool) -> str:
    """Return the format of a file, by its suffix; raises InputError as `export`."""
    file_format = FORMATS.get(out.suffix.lower())
    if file_format is None:
        raise InputError(f"{out}: the suffix of the file must be one of {', '.join(FORMATS)}")
    if draws and file_format != "parquet":
        raise InputError(f"{named('draws')} needs a Parquet file; a netCDF file has the traces")
    return file_format


def _labels(run: Run, entity: str) -> dict[str, Array]:
    """Return the first columns of a table: ``side`` and ``id`` of all users or items.

    Names of several parts have a column for each part, which is None for the other side.
    """
    vocabulary = run.vocabulary(entity)
    n = len(vocabulary)
    labels: dict[str, Array] = {"side": np.full(n, entity, dtype=object)}
    if not (run.users.parts and run.items.parts):
        labels["id"] = np.full(n, None, dtype=object)
        if not vocabulary.parts:
            labels["id"] = vocabulary.ids
        if not (run.users.integers and run.items.integers):  # one column has one type
            labels["id"] = np.array(
                [None if name is None else str(name) for name in labels["id"].tolist()], object
            )
    for side in (run.users, run.items):
        if side.parts:
            labels |= dict.fromkeys(side.columns, np.full(n, None, dtype=object))
    if vocabulary.parts:
        labels |= {
            label: column.astype(str).astype(object)
            for label, column in vocabulary.table(vocabulary.ids).items()
        }
    return labels


def _factors(
    run: Run, entity: str, first: Mapping[str, Any], thetas: Mapping[str, Array]
) -> dict[str, Array]:
    """Return a table of all users or items: labels, what all have alike, and columns of theta.

    `thetas` has arrays, (n, D), by the endings of the names of columns; the bias comes first.
    """
    table = _labels(run, entity)
    n = len(table["side"])
    table |= {name: np.full(n, value) for name, value in first.items()}
    rank = run.config.rank
    columns = [(f"factor_{k + 1}", k) for k in range(rank)]
    if run.config.biases:
        columns.insert(0, ("bias", rank))
    for name, k in columns:
        for ending, theta in thetas.items():
            table[f"{name}{ending}"] = np.ascontiguousarray(theta[:, k])
    return table


def _moment_tables(run: Run) -> Iterator[dict[str, Array]]:
    """Yield a table of moments for every chain and entity."""
    for chain, moments in zip(run.chains, run.moments, strict=True):
        for entity in ENTITIES:
            thetas = {"": moments.mean[entity], "_sd": np.sqrt(moments.variance[entity])}
            yield _factors(run, entity, {"chain": chain, "ratings": run.counts(entity)}, thetas)


def _draw_tables(run: Run) -> Iterator[dict[str, Array]]:
    """Yield a table of factors for every saved draw and entity."""
    for position, (chain, iteration) in enumerate(run.draws):
        draw = run.draw(position)
        first = {
            "chain": chain,
            "iteration": iteration,
            "weight": run.draw_weights[position],
            "tau": draw.tau,
        }
        for entity in ENTITIES:
            yield _factors(run, entity, first, {"": draw.theta[entity]})


def to_datatree(run: Run, *, training: bool = False) -> Any:
    """Return a run in ArviZ's data structure.

    Parameters
    ----------
    run : Run
    training : bool
        Whether the groups of observed ratings have all training ratings in place of monitored test
        ratings, as ArviZ's leave-one-out needs them. It takes 16 bytes a rating and saved draw.

    Returns
    -------
    xarray.DataTree
        - ``posterior``, for all draws: the scalars of `dsgmcmc.posterior.traces`; the strengths of
          features; and ``prediction`` of the monitored test pairs (by ``pair``, the position among
          all test pairs): the expected rating given the draw or, with scale log, the median one.
          Constants are left out.
        - ``columns``: means and precisions of priors by ``column`` of a factor. Columns rotate, so
          these draws are not comparable between chains, nor within one: do not judge convergence by
          them.
        - ``loadings``: saved draws of the loadings of items, by ``item_id`` and ``factor``, in one
          orientation (`dsgmcmc.posterior.loadings`); only factors that hold 99 % of the variance.
        - ``sample_stats``: ``weight`` and ``iteration`` of every draw, and ``test_log_likelihood``.
        - ``posterior_predictive``, ``log_likelihood``: draws of ``rating`` of monitored pairs, and
          log likelihoods of the observed ones, at the saved draws
          (`dsgmcmc.posterior.cells.pair_draws`); not of clicks, with weights or effects of time.
        - ``observed_data``: ``rating`` of the monitored pairs.
        - ``constant_data``: ``user`` and ``item`` of the monitored pairs, or the parts of names;
          they are coordinates of these pairs in the two groups above and in ``log_likelihood``.

        With `training`, the last four have a dimension ``observation``.

    Raises
    ------
    InputError
        If arviz-base is not installed; or if training ratings have no distributions of their own,
        their file is missing, or they need more memory than may be used.
    """
    parts = _TreeParts(run)
    parts.add_traces()
    names = parts.add_pairs(training=training)
    if run.config.rank and run.draws:
        parts.add_loadings()
    tree = datatree(parts.groups, parts.coords, parts.dims, run.config.sampler.name)
    for dimension, of_pairs in names.items():
        _name_pairs(tree, dimension, of_pairs)
    if "loadings" in parts.groups and run.items.parts:
        _name_loadings(tree["loadings"], run.items)
    return tree


class _TreeParts:
    """Groups of arrays, and the names and coordinates of their dimensions, as ArviZ has them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.groups: dict[str, dict[str, Any]] = {}
        self.dims: dict[str, list[str]] = {"rating": ["pair"]}
        self.coords: dict[str, Any] = {}

    def add_traces(self) -> None:
        """Add shared quantities at all draws."""
        run = self.run
        posterior: dict[str, Any] = dict(scalar_traces(run))
        columns: dict[str, Any] = {}
        for quantity in run.quantities.traced:
            values = traced(run, run.name_of(quantity.name))
            if quantity.diagnosed or values.std() == 0:
                continue
            name = _without_dots(run.name_of(quantity.name))
            self.dims[name] = [_without_dots(run.name_of(quantity.dims[0]))]
            if "column" in quantity.dims:
                columns[name] = values
            else:
                posterior[name] = values
        statistics = {
            "weight": draw_weights(run),
            "iteration": traced(run, "iteration")[..., 0].astype(np.int64),
        }
        if TEST_LOG_LIKELIHOOD in posterior:
            statistics[TEST_LOG_LIKELIHOOD] = posterior.pop(TEST_LOG_LIKELIHOOD)
        self.groups |= {"posterior": posterior, "columns": columns, "sample_stats": statistics}
        self.coords["column"] = np.arange(run.config.dimension)

    def add_pairs(self, *, training: bool) -> dict[str, dict[str, Array]]:
        """Add predictions of monitored test pairs, and the groups of observed ratings.

        Returns the names of users and items of pairs, by the dimension of the pairs.
        """
        run = self.run
        index, values = predictions(run)
        self.coords["pair"] = index
        pairs: dict[str, RatedPairs] = {}
        if len(index):
            self.groups["posterior"]["prediction"] = values
            self.dims["prediction"] = ["pair"]
            pairs["pair"] = observed_tests(run, index)
        observed = "pair"
        if training:
            observed = "observation"
            pairs[observed] = observed_training(run)
        names = {dimension: _names_of_pairs(run, of) for dimension, of in pairs.items()}
        self.groups["observed_data"] = {"rating": np.zeros(0)}
        if observed in pairs:
            self.groups |= _groups_of_pairs(run, pairs[observed])
            self.groups["constant_data"] = names[observed]
            self.dims |= {name: [observed] for name in ("rating", *names[observed])}
        return names

    def add_loadings(self) -> None:
        """Add loadings of items at the saved draws."""
        turned = turned_loadings(self.run)
        self.groups["loadings"] = {"loading": turned}
        self.dims["loading"] = ["item_id", "factor"]
        rows = np.arange(len(self.run.items), dtype=np.int32)
        self.coords["item_id"] = _names_of(self.run.items, rows).get("item", rows)
        self.coords["factor"] = 1 + np.arange(turned.shape[-1])


def _groups_of_pairs(run: Run, pairs: RatedPairs) -> dict[str, dict[str, Any]]:
    """Return observed ratings, and draws and scores of them if they can be drawn, by group."""
    groups = {"observed_data": {"rating": exact_or_nan(pairs)}}
    if can_be_drawn(run):
        drawn = draw_pairs(run, pairs)
        groups["posterior_predictive"] = {"rating": drawn.rating}
        groups["log_likelihood"] = {"rating": drawn.log_likelihood}
    return groups


def _names_of_pairs(run: Run, pairs: RatedPairs) -> dict[str, Array]:
    """Return the names of users and items of pairs."""
    return _names_of(run.users, pairs.users) | _names_of(run.items, pairs.items)


def _name_pairs(tree: Any, dimension: str, names: dict[str, Array]) -> None:
    """Make the names of pairs coordinates of groups that have no other dimension beside draws.

    ArviZ's summary cannot stack variables with such coordinates and variables without them.
    """
    for group in tree.children.values():
        data = group.to_dataset()
        if all(dimension in variable.dims for variable in data.values()):
            new = {name: (dimension, of) for name, of in names.items() if name not in data}
            group.dataset = data.assign_coords(new)


def _name_loadings(loadings: Any, items: Vocabulary) -> None:
    """Add the parts of the names of items to a group of a data tree.

    ArviZ has one entry a name for the dimensions of all groups, and in `constant_data` these names
    have a value a pair.
    """
    parts = _names_of(items, np.arange(len(items), dtype=np.int32))
    named = {name: ("item_id", values) for name, values in parts.items()}
    loadings.dataset = loadings.to_dataset().assign(named)


def _without_dots(name: str) -> str:
    """Return a name as ArviZ has it."""
    return name.replace(".", "_")


def _names_of(vocabulary: Vocabulary, rows: Int32) -> dict[str, Array]:
    """Return names as integers or as NumPy's text: by entity, or one array for each part."""
    names = vocabulary.ids[rows]
    by_column = {vocabulary.entity: names}
    if vocabulary.parts:
        by_column = vocabulary.table(names)
    for column, values in by_column.items():
        if values.dtype == object:
            by_column[column] = values.astype(np.str_)
    return by_column


def datatree(
    groups: dict[str, Any], coords: dict[str, Any], dims: dict[str, list[str]], sampler: str
) -> Any:
    """Make an ArviZ data tree from groups of arrays.

    Raises InputError if arviz-base is not installed.
    """
    require("`to_arviz`", "arviz_base")
    import arviz_base

    attributes = {
        "inference_library": "dsgmcmc",
        "inference_library_version": __version__,
        "sampler": sampler,
    }
    attrs = {"/": attributes, **dict.fromkeys(groups, attributes)}
    return arviz_base.from_dict(groups, coords=coords, dims=dims, attrs=attrs)
