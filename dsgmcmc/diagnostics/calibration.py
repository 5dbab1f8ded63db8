"""Do the predictive distributions fit the test ratings? Coverage, scores, and errors by activity and popularity.

The predictive distribution of a test rating is over all draws of all chains, noise included
(`dsgmcmc.diagnostics.forecasts`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.diagnostics import scores
from dsgmcmc.diagnostics.forecasts import Forecast, forecast_of
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.posterior.run import Run
from dsgmcmc.targets.factorisation.likelihoods import Law
from dsgmcmc.types import Float64

GROUPS = 5


def calibration(run: Run) -> dict[str, Any]:
    """Measure how well a run predicts its test ratings.

    Returns
    -------
    dict
        ``ratings`` (their number), ``crps``, ``pit`` (20 counts of the probability integral transform: flat if
        calibrated), what `held_out_scores` has, ``by_activity`` and ``by_popularity`` (groups of users by their
        training ratings, of items by theirs: ``from, to, ratings, rmse, coverage_90``).

    Raises
    ------
    InputError
        If the run had no test ratings.
    """
    test, users, items = run.test, *run.test_pairs()
    law, levels = run.config.law, run.levels
    forecast = forecast_of(test, law, levels)
    return {
        "ratings": len(test.rating),
        **held_out_scores(test, law, levels),
        "crps": forecast.crps(),
        "pit": forecast.pit(),
        "by_activity": _groups(forecast, test, run.counts("user")[users]),
        "by_popularity": _groups(forecast, test, run.counts("item")[items]),
    }


def held_out_scores(test: TestPredictions, law: type[Law], levels: Float64 | None) -> dict[str, Any]:
    """Score predictions of test ratings.

    Returns
    -------
    dict
        ``rmse``, ``mae``, ``predictive_sd`` (mean sd of the expected rating), ``coverage`` (of central intervals, by
        level); ``log_predictive_density``, or None where ratings are of levels;
        ``log_probability`` of the ratings' levels, or None where they have none (`Forecast.log_probability`).
    """
    forecast = forecast_of(test, law, levels)
    return {
        "rmse": scores.rmse(test.rating, test.mean),
        "mae": scores.mae(test.rating, test.mean),
        "predictive_sd": float(np.sqrt(test.variance).mean()),
        "coverage": forecast.coverage(),
        "log_predictive_density": forecast.log_density(),
        "log_probability": forecast.log_probability(),
    }


def _groups(forecast: Forecast, test: TestPredictions, counts: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """Cut test ratings into groups of about the same size by their row's number of training ratings."""
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, GROUPS + 1)).astype(np.int64))
    group = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, max(len(edges) - 2, 0))
    result = []
    for g in np.unique(group).tolist():
        inside = group == g
        result.append(
            {
                "from": int(counts[inside].min()),
                "to": int(counts[inside].max()),
                "ratings": int(inside.sum()),
                "rmse": scores.rmse(test.rating[inside], test.mean[inside]),
                "coverage_90": forecast.at(inside).coverage((0.9,))[0.9],
            }
        )
    return result
