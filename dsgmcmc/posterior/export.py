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

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.cells.pair_draws import can_be_drawn, draw_pairs
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.item_parameters import parameter_tables
from dsgmcmc.posterior.loadings import turned_loadings
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import (
    TEST_LOG_LIKELIHOOD,
    draw_weights,
    predictions,
    scalar_traces,
    traced,
)
from dsgmcmc.settings import named
from dsgmcmc.storage.files import check_target, write_file
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Array, Int32, Int64

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
    others: Sequence[Run] = (),
    draws: bool = False,
    items: bool = False,
    force: bool = False,
) -> None:
    """Write a run to one file, atomically.

    Parameters
    ----------
    run : Run
    out : Path
        The suffix selects the format: ``.parquet``, ``.pq`` or ``.nc``.
    others : sequence of Run
        Runs of the same ratings with other seeds, whose chains a netCDF file has, too.
    draws : bool
        Whether to write draws instead of moments to a Parquet file.
    items : bool
        Whether to write parameters of items and users of levels, to a CSV or Parquet file.
    force : bool
        Whether to replace `out` if it exists.

    Raises
    ------
    InputError
        If the format is unknown or does not support the options, if the run has no moments or no
        draws yet, if other runs cannot be joined to it, or if the file exists.
    WriteError
        If the file cannot be written.
    """
    if others and (items or out.suffix.lower() != ".nc"):
        raise InputError("several runs become one netCDF file: give --out FILE.nc, or one run")
    if items:
        if draws:
            raise InputError("--items has no draws: leave out --draws")
        export_tables(parameter_tables(run), out, force=force)
        return
    file_format = _format_of(out, draws)
    if draws:
        run.need_draws()
    check_target(out, force)
    with writing(out):
        if file_format == "netcdf":
            require("`dsgmcmc export --out RUN.nc`", "arviz_base", "h5netcdf")
            tree = to_datatree(run)
            if others:
                tree = join_runs([run, *others])
            write_file(out, [tree.to_netcdf(engine="h5netcdf")])
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


def export_tables(tables: Iterable[Table], out: Path, *, force: bool) -> None:
    """Write tables of equal columns to a CSV or Parquet file, as `export` does."""
    from dsgmcmc.tables.written import output_format, write_blocks  # loads DuckDB

    output_format(out)
    check_target(out, force)
    with writing(out):
        write_blocks(tables, out)


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


def _columns(run: Run) -> list[tuple[str, int]]:
    """Return the names and positions of the columns of theta, the bias first."""
    rank = run.config.rank
    columns = [(f"factor_{k + 1}", k) for k in range(rank)]
    if run.config.biases:
        columns.insert(0, ("bias", rank))
    return columns


def _moment_tables(run: Run) -> Iterator[dict[str, Array]]:
    """Yield a table of moments for every chain and entity."""
    for chain, moments in zip(run.chains, run.moments, strict=True):
        for entity in ENTITIES:
            table = _labels(run, entity)
            table["chain"] = np.full(len(table["side"]), chain)
            table["ratings"] = run.counts(entity)
            for name, k in _columns(run):
                table[name] = np.ascontiguousarray(moments.mean[entity][:, k])
                table[f"{name}_sd"] = np.sqrt(np.ascontiguousarray(moments.variance[entity][:, k]))
            yield table


def _draw_tables(run: Run) -> Iterator[dict[str, Array]]:
    """Yield a table of factors for every saved draw and entity."""
    for position, (chain, iteration) in enumerate(run.draws):
        draw = run.draw(position)
        for entity in ENTITIES:
            table = _labels(run, entity)
            n = len(table["side"])
            table["chain"] = np.full(n, chain)
            table["iteration"] = np.full(n, iteration)
            table["weight"] = np.full(n, run.draw_weights[position])
            table["tau"] = np.full(n, draw.tau)
            for name, k in _columns(run):
                table[name] = np.ascontiguousarray(draw.theta[entity][:, k])
            yield table


def to_datatree(run: Run) -> Any:
    """Return a run in ArviZ's data structure.

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
        - ``constant_data``: ``user`` and ``item`` of the monitored pairs, or the parts of names.

    Raises
    ------
    InputError
        If arviz-base is not installed.
    """
    posterior: dict[str, Any] = dict(scalar_traces(run))
    columns: dict[str, Any] = {}
    dims: dict[str, list[str]] = {}
    for quantity in run.quantities.traced:
        values = traced(run, run.name_of(quantity.name))
        if quantity.diagnosed or values.std() == 0:
            continue
        name = _without_dots(run.name_of(quantity.name))
        dims[name] = [_without_dots(run.name_of(quantity.dims[0]))]
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
    groups: dict[str, dict[str, Any]] = {
        "posterior": posterior,
        "columns": columns,
        "sample_stats": statistics,
    }
    index, values = predictions(run)
    observed = np.zeros(0)
    if len(index):
        posterior["prediction"] = values
        observed = predict_test(run).exact_or_nan()[index]
        groups |= _groups_of_pairs(run, index)
        dims |= {name: ["pair"] for name in ("prediction", *groups["constant_data"])}
    dims["rating"] = ["pair"]
    groups["observed_data"] = {"rating": observed}
    coords: dict[str, Any] = {"column": np.arange(run.config.dimension), "pair": index}
    if run.config.rank and run.draws:
        turned = turned_loadings(run)
        groups["loadings"] = {"loading": turned}
        dims["loading"] = ["item_id", "factor"]
        rows = np.arange(len(run.items), dtype=np.int32)
        coords["item_id"] = _names_of(run.items, rows).get("item", rows)
        coords["factor"] = 1 + np.arange(turned.shape[-1])
    tree = datatree(groups, coords, dims, run.config.sampler.name)
    if "loadings" in groups and run.items.parts:
        _name_loadings(tree["loadings"], run.items)
    return tree


def join_runs(runs: Sequence[Run]) -> Any:
    """Return runs of the same ratings with other seeds as one xarray.DataTree, chain after chain.

    Its groups are those of `to_datatree`, with as many draws of each chain as the shortest has, so
    that R-hat compares the chains of all runs. Loadings are left out: each run has its own
    orientation of the factors.

    Raises InputError if the runs have other ratings or settings, or the same seed twice.
    """
    first = runs[0]
    seeds = [run.config.seed for run in runs]
    for run in runs[1:]:
        if run.facts.get("data_hash") != first.facts.get("data_hash"):
            raise InputError(f"{run.path} has other ratings than {first.path}: export it alone")
        different = _different_settings(first, run)
        if different:
            raise InputError(
                f"{run.path} has other settings than {first.path} ({', '.join(different)}): export"
                " it alone"
            )
    if len(set(seeds)) < len(seeds):
        raise InputError(
            "two of the runs have the same seed, and so the same draws: sample with another --seed"
        )
    import xarray

    trees = [to_datatree(run) for run in runs]
    groups = {}
    for name in trees[0].children:
        if name == "loadings":
            continue
        parts = [tree[name].to_dataset() for tree in trees]
        groups[name] = parts[0]
        if "chain" in parts[0].dims:
            common = [key for key in parts[0] if all(key in part for part in parts)]
            length = min(part.sizes["draw"] for part in parts)
            last = [
                part[common].isel(draw=slice(-length, None)).assign_coords(draw=np.arange(length))
                for part in parts
            ]
            joined = xarray.concat(last, "chain")
            groups[name] = joined.assign_coords(chain=np.arange(joined.sizes["chain"]))
    tree = xarray.DataTree.from_dict(groups)
    tree.attrs = trees[0].attrs
    return tree


def _different_settings(first: Run, second: Run) -> list[str]:
    """Return the names of settings of the model and the sampler in which runs differ."""
    one, other = (run.config.model_dump(exclude={"seed", "chains"}) for run in (first, second))
    return [name for name, value in one.items() if other.get(name) != value]


def _groups_of_pairs(run: Run, index: Int64) -> dict[str, dict[str, Any]]:
    """Return the names of test pairs, and draws and scores of their ratings, by group."""
    users, items = run.test_pairs()
    names = _names_of(run.users, users[index]) | _names_of(run.items, items[index])
    groups = {"constant_data": names}
    if can_be_drawn(run):
        drawn = draw_pairs(run, index)
        groups["posterior_predictive"] = {"rating": drawn.rating}
        groups["log_likelihood"] = {"rating": drawn.log_likelihood}
    return groups


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
