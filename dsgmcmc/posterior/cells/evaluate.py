"""Scores of predictions of ratings that are given in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.levels import refuse_absent_levels
from dsgmcmc.posterior.rows.new_ratings import bounds_of, weights_of
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.scores import Scored, Scores
from dsgmcmc.types import Array, Int32


def refuse_clicks(run: Run, rankings: str) -> None:
    """Raise InputError if a run predicts scores; the message names what compares `rankings`."""
    if not run.config.law.can_be_evaluated:
        raise InputError(
            f"{run.config.likelihood} predicts scores, not ratings: compare rankings by {rankings}"
        )


def evaluate_ratings(
    predictor: Predictor, users: Int32, items: Int32, ratings: Mapping[str, Array]
) -> dict[str, Any]:
    """Score the predictions of ratings, in columns by role, of pairs that are given by index.

    Intervals and densities are those of ratings of the given weights. Returns the scores of
    `dsgmcmc.posterior.scores.Scores.result`.

    Raises
    ------
    InputError
        If a rating is at a level that its item does not have, or if ratings have weights or bounds
        that the run cannot use.
    """
    run = predictor.run
    values = ratings["rating"]
    bounds = bounds_of(run, ratings)
    weights = weights_of(run, ratings)
    refuse_absent_levels(run, items, values)
    resolution = resolution_from(run.facts)
    scores = Scores()
    for rows, predictive in predictor.distributions(users, items, weights=weights):
        predictive.resolution = resolution
        scores.add(
            Scored(
                rating=values[rows],
                bounds=None if bounds is None else (bounds[0][rows], bounds[1][rows]),
                point=predictor.limits.clip(predictive.mean),
                predictive=predictive,
                limits=run.limits,
            )
        )
    return scores.result()
