"""A run in ArviZ's schema: dims ``chain`` and ``draw``, groups as of `to_datatree`.

Only what is identified, or names its dimension: the raw factors are in the other exports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.posterior.extras import TO_ARVIZ, TO_NETCDF, require
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import draw_weights, predictions, scalar_traces
from dsgmcmc.types import Float64, Int32, Int64


def to_datatree(run: Run) -> Any:
    """Return a run in ArviZ's data structure.

    Returns
    -------
    xarray.DataTree
        ``posterior``, for all draws: the quantities of `dsgmcmc.posterior.traces`; the other traced quantities, such as
        the priors' means and precisions (by ``column`` of a factor; not comparable between chains); and ``prediction``
        of the monitored test pairs (by ``pair``, their positions among all test pairs);
        ``sample_stats``: ``weight`` and ``iteration`` of every draw, ``test_log_likelihood``;
        ``observed_data``: ``rating`` of those pairs; ``constant_data``: their ``user`` and ``item``;
        ``log_likelihood`` and ``posterior_predictive``: of ``rating``, at the saved draws; not for clicks. These
        ratings were held out, so the log of the mean of exp(log_likelihood) over the draws is already their log
        predictive density. `arviz.loo` assumes that they were fitted, leaves them out once more, and is too low.

    Raises
    ------
    InputError
        If arviz-base is not installed.
    """
    posterior: dict[str, Any] = dict(scalar_traces(run))
    length = len(draw_weights(run)[0])
    dims: dict[str, list[str]] = {}
    for quantity in run.quantities.traced:
        if not quantity.diagnosed:
            name = run.name_of(quantity.name)
            posterior[name.replace(".", "_")] = np.stack([trace[name][-length:] for trace in run.traces])
            dims[name.replace(".", "_")] = [run.name_of(quantity.dims[0]).replace(".", "_")]
    statistics = {
        "weight": draw_weights(run),
        "iteration": np.stack([trace["iteration"][-length:, 0] for trace in run.traces]).astype(np.int64),
    }
    if "test_log_likelihood" in posterior:
        statistics["test_log_likelihood"] = posterior.pop("test_log_likelihood")
    groups: dict[str, dict[str, Any]] = {"posterior": posterior, "sample_stats": statistics}
    index, values = predictions(run)
    coords: dict[str, Any] = {"column": np.arange(run.config.dimension)}
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
        if run.draws and run.config.law.can_be_evaluated():
            groups["log_likelihood"], groups["posterior_predictive"] = _pointwise(
                run, users[index], items[index], index
            )
    dims["rating"] = ["pair"]
    coords["pair"] = index
    groups["observed_data"] = observed
    return datatree(groups, coords, dims, run.config.sampler.name)


def _pointwise(run: Run, users: Int32, items: Int32, index: Int64) -> tuple[dict[str, Float64], dict[str, Float64]]:
    """Log likelihoods of test ratings, and posterior predictive draws of them, by name: (chains, draws, pairs) each."""
    draws = Predictor(run, PredictOptions()).draws(users, items)
    law, shape = run.config.law.predictive(draws.apart(), run.mean, run.levels), draws.eta.shape
    x = run.test.rating[index].astype(np.float64)
    density = law.log_density(np.repeat(x, shape[1])).reshape(shape)
    drawn = law.sample(np.random.default_rng(0)).reshape(shape)
    chain = np.array([number for number, _ in run.draws])
    length = int(np.unique(chain, return_counts=True)[1].min())
    by_chain = [np.flatnonzero(chain == number)[-length:] for number in np.unique(chain)]
    both = (np.stack([each[:, own].T for own in by_chain]).astype(np.float64) for each in (density, drawn))
    log_likelihood, predictive = ({"rating": each} for each in both)
    return log_likelihood, predictive


def datatree(
    groups: dict[str, dict[str, Any]], coords: dict[str, Any], dims: dict[str, list[str]], sampler: str
) -> Any:
    """Make ArviZ's tree of groups of arrays. Raises InputError if arviz-base is not installed."""
    require(TO_ARVIZ)
    import arviz_base

    attributes = {"inference_library": "dsgmcmc", "inference_library_version": __version__, "sampler": sampler}
    return arviz_base.from_dict(
        groups, coords=coords, dims=dims, attrs={"/": attributes, **dict.fromkeys(groups, attributes)}
    )


def to_netcdf(run: Run) -> memoryview:
    """Return `to_datatree` as the bytes of a file in netCDF 4."""
    require(TO_NETCDF)
    content: memoryview = to_datatree(run).to_netcdf(engine="h5netcdf")
    return content
