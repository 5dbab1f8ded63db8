"""Scores of predictions of ratings that are given in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.levels import refuse_absent_levels
from dsgmcmc.posterior.rows.new_ratings import bounds_of, weights_of
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.scores import Scored, Scores
from dsgmcmc.ratings.names import of_parts
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
    `dsgmcmc.posterior.scores.Scores.result`, by group if the run's test ratings were whole groups
    by the columns of names.

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
    scores = Scores(run.facts.get("grouped_by", ()))
    groups = _groups_of(run, ratings)
    for rows, predictive in predictor.distributions(users, items, weights=weights):
        predictive.resolution = resolution
        scores.add(
            Scored(
                rating=values[rows],
                bounds=None if bounds is None else (bounds[0][rows], bounds[1][rows]),
                point=predictor.limits.clip(predictive.mean),
                predictive=predictive,
                limits=run.limits,
            ),
            None if groups is None else groups[rows],
        )
    return scores.result()


def _groups_of(run: Run, ratings: Mapping[str, Array]) -> Int32 | None:
    """Return the numbers of the groups of ratings, (n,), by the columns of the run's groups.

    None if the run has none, or if they are by other columns than those of names.
    """
    found = {}
    for entity in ENTITIES:
        parts = of_parts(ratings, entity)
        found[entity] = parts[0]
        found |= dict(zip(run.labels[entity], parts, strict=False))  # some names have no columns
    columns = run.facts.get("grouped_by", ())
    if not columns or not found.keys() >= set(columns):
        return None
    numbers: dict[tuple[Any, ...], int] = {}
    names = zip(*(found[column].tolist() for column in columns), strict=True)
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
