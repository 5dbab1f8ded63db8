"""A run in ArviZ's schema: groups ``posterior``, ``sample_stats``, ``observed_data``, dims ``chain`` and ``draw``.

Only what is identified, or names its dimension: the raw factors are in the other exports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import draw_weights, predictions, scalar_traces


def to_datatree(run: Run) -> Any:
    """Return a run as ArviZ sees it.

    Returns
    -------
    xarray.DataTree
        ``posterior``: the quantities of `dsgmcmc.posterior.traces`, the priors' means and precisions (by ``dimension``;
        not comparable between chains) and ``prediction`` of the followed test pairs (by ``pair``), for all draws;
        ``sample_stats``: ``weight`` and ``iteration`` of every draw, ``test_log_likelihood``;
        ``observed_data``: ``rating`` of those pairs; ``constant_data``: their ``user`` and ``item``.

    Raises
    ------
    InputError
        If arviz-base is not installed.
    """
    posterior: dict[str, Any] = dict(scalar_traces(run))
    length = len(draw_weights(run)[0])
    dims: dict[str, list[str]] = {}
    for kind in KINDS:
        for what in ("mean", "precision"):
            name = f"{kind}_{what}"
            posterior[name] = np.stack([trace[f"{kind}.{what}"][-length:] for trace in run.traces])
            dims[name] = ["dimension"]
    statistics = {
        "weight": draw_weights(run),
        "iteration": np.stack([trace["iteration"][-length:, 0] for trace in run.traces]).astype(np.int64),
    }
    if "test_log_likelihood" in posterior:
        statistics["test_log_likelihood"] = posterior.pop("test_log_likelihood")
    groups: dict[str, dict[str, Any]] = {"posterior": posterior, "sample_stats": statistics}
    index, values = predictions(run)
    coords: dict[str, Any] = {"dimension": np.arange(run.config.dimension)}
    observed: dict[str, Any] = {"rating": np.zeros(0)}
    if len(index):
        users, items = run.test_pairs()
        posterior["prediction"] = values
        observed = {"rating": run.test.rating[index]}
        constant = {"user": run.users.ids[users[index]], "item": run.items.ids[items[index]]}
        groups["constant_data"] = {
            name: ids if ids.dtype.kind == "i" else ids.astype(np.str_) for name, ids in constant.items()
        }
        dims |= {name: ["pair"] for name in ("prediction", "user", "item")}
    dims["rating"] = ["pair"]
    coords["pair"] = index
    groups["observed_data"] = observed
    return datatree(groups, coords, dims, run.config.sampler.name)


def datatree(
    groups: dict[str, dict[str, Any]], coords: dict[str, Any], dims: dict[str, list[str]], sampler: str
) -> Any:
    """Make ArviZ's tree of groups of arrays.

    Raises
    ------
    InputError
        If arviz-base is not installed.
    """
    try:
        import arviz_base
    except ImportError as error:
        raise InputError(f"this needs ArviZ and h5netcdf ({error}): pip install arviz-base h5netcdf") from error
    attributes = {"inference_library": "dsgmcmc", "inference_library_version": __version__, "sampler": sampler}
    return arviz_base.from_dict(
        groups, coords=coords, dims=dims, attrs={"/": attributes, **dict.fromkeys(groups, attributes)}
    )


def write_netcdf(run: Run, out: Path) -> None:
    """Write `to_datatree` as netCDF 4."""
    tree = to_datatree(run)
    tree.to_netcdf(out, engine="h5netcdf")
