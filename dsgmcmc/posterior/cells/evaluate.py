"""Scores of predictions of ratings that are given in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.levels import refuse_absent_levels
from dsgmcmc.posterior.rows.new_ratings import Observed
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Int32

#: Nominal levels of the predictive intervals whose coverage is measured, here and of a run.
LEVELS = (0.5, 0.8, 0.9, 0.95)


def refuse_clicks(run: Run, rankings: str) -> None:
    """Raise InputError if a run predicts scores; the message names what compares `rankings`."""
    if not run.config.law.can_be_evaluated:
        raise InputError(
            f"{run.config.likelihood} predicts scores, not ratings: compare rankings by {rankings}"
        )


def evaluate_ratings(
    predictor: Predictor, users: Int32, items: Int32, observed: Observed
) -> dict[str, Any]:
    """Score the predictions of ratings of pairs that are given by index.

    Returns
    -------
    dict
        ``ratings`` (their number), ``rmse`` and ``mae`` of the predictions that `predict` returns;
        ``coverage``, the share of ratings inside central intervals, by level; and the mean
        ``log_predictive_density``, unless ratings are levels, and ``log_probability`` of the
        recorded values, if these are levels or multiples of a step. Intervals and densities are
        those of ratings of the given weights. If some ratings are known only by bounds, ``bounded``
        is their number; the log score has their log probability between the bounds, and the others
        are of exact ratings, and None if there are none.

    Raises
    ------
    InputError
        If a rating is at a level that its item does not have.
    """
    ratings = observed.values
    refuse_absent_levels(predictor.run, items, ratings)
    error = np.empty(len(ratings))
    inside = {level: np.zeros(len(ratings), bool) for level in LEVELS}
    logs: dict[str, float] = {}
    limits = predictor.run.limits
    resolution = resolution_from(predictor.run.facts)
    for rows, predictive in predictor.distributions(users, items, weights=observed.weights):
        part = ratings[rows].astype(np.float32)
        for level in LEVELS:
            tail = (1 - level) / 2
            point, _, low, high = predictive.summary(tail, 1 - tail)
            above = part >= limits.clip(low).astype(np.float32)
            inside[level][rows] = above & (part <= limits.clip(high).astype(np.float32))
        error[rows] = ratings[rows] - predictor.limits.clip(point).astype(np.float32)
        predictive.resolution = resolution
        scores = predictive.log_scores(ratings[rows], observed.bounds_at(rows)).means()
        for name, mean in scores.items():
            if mean is not None:
                logs[name] = logs.get(name, 0.0) + mean * len(rows) / len(ratings)
    exact = observed.exact
    scores_of_exact: dict[str, Any] = {"rmse": None, "mae": None, "coverage": {}}
    if exact.any():
        scores_of_exact = {
            "rmse": float(np.sqrt(np.mean(error[exact] ** 2))),
            "mae": float(np.mean(np.abs(error[exact]))),
            "coverage": {level: float(hits[exact].mean()) for level, hits in inside.items()},
        }
    counts = {"ratings": len(ratings)}
    if not exact.all():
        counts["bounded"] = int(np.count_nonzero(~exact))
    return {**counts, **scores_of_exact, **logs}
