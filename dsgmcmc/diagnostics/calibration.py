"""Do the predictive distributions fit the test ratings? Coverage, scores, and errors by activity and popularity.

The predictive distribution of a test rating is taken to be normal, with the mean and variance over all draws of all
chains, noise included (`dsgmcmc.diagnostics.scores`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.diagnostics import scores
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.posterior.run import Run
from dsgmcmc.targets.factorisation.likelihoods.base import Likelihood

GROUPS = 5


def calibration(run: Run) -> dict[str, Any]:
    """Measure how well a run predicts its test ratings.

    Returns
    -------
    dict
        ``ratings`` (their number), ``rmse``, ``mae``, ``crps``, ``log_predictive_density``, ``coverage`` (of central
        intervals, by level), ``predictive_sd`` (mean sd of the predictor), ``pit`` (20 counts of the probability
        integral transform: flat if calibrated), ``by_activity`` and ``by_popularity`` (groups of users by their
        training ratings, of items by theirs: ``from, to, ratings, rmse, coverage_90``).

    Raises
    ------
    InputError
        If the run had no test ratings.
    """
    test = run.test
    users, items = run.test_pairs()
    numbers, law = (test.rating, test.mean, test.variance + test.noise_variance), run.config.law
    return {
        "ratings": len(test.rating),
        **held_out_scores(test, law),
        "crps": scores.crps(*numbers),
        "pit": scores.pit(*numbers, law),
        "by_activity": _groups(law, run.counts("user")[users], *numbers),
        "by_popularity": _groups(law, run.counts("item")[items], *numbers),
    }


def held_out_scores(test: TestPredictions, law: type[Likelihood]) -> dict[str, Any]:
    """Accuracy of predictions of test ratings: ``rmse, mae, predictive_sd, coverage, log_predictive_density``."""
    numbers = (test.rating, test.mean, test.variance + test.noise_variance)
    return {
        "rmse": scores.rmse(test.rating, test.mean),
        "mae": scores.mae(test.rating, test.mean),
        "predictive_sd": float(np.sqrt(test.variance).mean()),
        "coverage": scores.coverage(*numbers, law),
        "log_predictive_density": scores.log_predictive_density(*numbers, law),
    }


def _groups(
    law: type[Likelihood], counts: npt.NDArray[np.int64], *numbers: npt.NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Cut test ratings into groups of about the same size by their row's number of training ratings."""
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, GROUPS + 1)).astype(np.int64))
    group = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, max(len(edges) - 2, 0))
    result = []
    for g in np.unique(group).tolist():
        inside = group == g
        rating, mean, variance = (values[inside] for values in numbers)
        result.append(
            {
                "from": int(counts[inside].min()),
                "to": int(counts[inside].max()),
                "ratings": int(inside.sum()),
                "rmse": scores.rmse(rating, mean),
                "coverage_90": scores.coverage(rating, mean, variance, law, (0.9,))[0.9],
            }
        )
    return result
