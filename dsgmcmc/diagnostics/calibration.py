"""Calibration on test ratings: coverage, scores, and errors by activity and popularity.

The predictive distribution of a test rating is the mixture over all draws of all chains, noise included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.diagnostics import scores
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64

GROUPS = 5


def calibration(run: Run) -> dict[str, Any]:
    """Measure how well a run predicts its test ratings.

    Returns
    -------
    dict
        The entries of `held_out_scores`; ``crps``; ``pit`` (20 counts of the probability integral transform, flat if
        calibrated); ``by_activity`` and ``by_popularity`` (groups of test ratings by the number of training ratings of
        the user, or of the item: ``from, to, ratings, rmse, coverage_90``).

    Raises
    ------
    InputError
        If the run had no test ratings.
    """
    test, users, items = run.test, *run.test_pairs()
    law, levels = run.config.law, run.levels
    predictive = test.predictive(law, levels)
    transforms = scores.pit(predictive, test.rating)
    scored = held_out_scores([test], law, levels)
    assert scored is not None
    return {
        **scored,
        "crps": float(predictive.crps(test.rating).mean()),
        "pit": scores.pit_counts(transforms),
        "by_activity": _groups(transforms, test, run.counts("user")[users]),
        "by_popularity": _groups(transforms, test, run.counts("item")[items]),
    }


def held_out_scores(parts: Iterable[TestPredictions], law: type[Law], levels: Float64 | None) -> dict[str, Any] | None:
    """Score predictions of test ratings, which come in parts.

    Returns
    -------
    dict or None
        ``ratings`` (their number), ``rmse``, ``mae``, ``predictive_sd`` (mean sd of the expected rating), ``coverage``
        (of central intervals, by level); ``log_predictive_density``, or None if ratings are ordinal;
        ``log_probability`` of the ratings' levels, or None if there are none. None without test ratings.
    """
    rows, sizes = [], []
    for test in parts:
        predictive = test.predictive(law, levels)
        logs = [np.nan if log is None else log for log in predictive.log_scores(test.rating).values()]
        errors = [scores.rmse(test.rating, test.mean) ** 2, scores.mae(test.rating, test.mean)]
        covered = scores.coverage(scores.pit(predictive, test.rating)).values()
        rows.append([*errors, np.sqrt(test.variance).mean(), *logs, *covered])
        sizes.append(len(test.rating))
    if not rows:
        return None
    mse, mae, sd, density, probability, *coverage = np.average(rows, axis=0, weights=sizes).tolist()
    return {
        "ratings": sum(sizes),
        "rmse": float(np.sqrt(mse)),
        "mae": mae,
        "predictive_sd": sd,
        "coverage": dict(zip(scores.LEVELS, coverage, strict=True)),
        "log_predictive_density": None if np.isnan(density) else density,
        "log_probability": None if np.isnan(probability) else probability,
    }


def _groups(transforms: scores.Pit, test: TestPredictions, counts: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """Cut test ratings into groups of about the same size by their row's number of training ratings."""
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, GROUPS + 1)).astype(np.int64))
    group = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, max(len(edges) - 2, 0))
    result, covered = [], scores.inside(transforms, 0.05, 0.95)
    for g in np.unique(group).tolist():
        inside = group == g
        result.append(
            {
                "from": int(counts[inside].min()),
                "to": int(counts[inside].max()),
                "ratings": int(inside.sum()),
                "rmse": scores.rmse(test.rating[inside], test.mean[inside]),
                "coverage_90": float(covered[inside].mean()),
            }
        )
    return result
