"""Draws of test ratings, and their log likelihoods, for ArviZ: by pair, at every saved draw.

The ratings were not in the posterior, so the logarithm of the mean likelihood over the draws is
their predictive score. Leave-one-out of ArviZ is for ratings that were: it weighs the draws by the
inverse likelihoods, so that the scores that it gives these ratings are lower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.heldout import TestPredictions, predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.types import Array, Float64, Int64


class PairDraws(NamedTuple):
    """Draws of test ratings, (chains, draws, m) float64 each.

    They are at the last saved draws of each chain, as many as the shortest chain has.

    Attributes
    ----------
    rating
        New ratings, with their noise.
    log_likelihood
        Log probabilities of recorded values that are levels, multiples of a step or within bounds,
        else log densities.
    """

    rating: Float64
    log_likelihood: Float64


def can_be_drawn(run: Run) -> bool:
    """Whether the test ratings have distributions that follow from their users and items alone.

    Clicks have none; those of weighted ratings and of ratings with effects of time need more.
    """
    is_weighted = run.facts.get("mean_weight") is not None
    return bool(run.draws) and run.config.law.can_be_evaluated and not is_weighted | run.has_effects


def draw_pairs(run: Run, index: Int64) -> PairDraws:
    """Draw test ratings, given their positions (m,), and score them, at every saved draw."""
    predictor = Predictor(run, PredictOptions(clip=True))
    users, items = (rows[index] for rows in run.test_pairs())
    test = predict_test(run)
    drawn: dict[int, list[Array]] = {}
    scored: dict[int, list[Array]] = {}
    for position, (chain, iteration) in enumerate(run.draws):
        rng = np.random.default_rng([run.config.seed, chain, iteration])
        ratings = np.empty(len(index))
        scores = np.empty(len(index))
        for rows, predictive in predictor.distributions(users, items, [position]):
            predictive.resolution = resolution_from(run.facts)
            ratings[rows] = run.limits.clip(predictive.quantile(rng.random(len(rows))))
            scores[rows] = _scores(predictive, test, index[rows])
        drawn.setdefault(chain, []).append(ratings)
        scored.setdefault(chain, []).append(scores)
    length = min(map(len, drawn.values()))
    return PairDraws(
        *(
            np.array([of_chain[-length:] for of_chain in by_chain.values()])
            for by_chain in (drawn, scored)
        )
    )


def _scores(predictive: Predictive, test: TestPredictions, index: Int64) -> Float64:
    """Return the log scores of some test ratings."""
    bounds = None
    if test.bounds is not None:
        lower, upper = test.bounds
        bounds = (lower[index], upper[index])
    scores = predictive.log_scores(test.rating[index], bounds)
    if scores.log_probability is not None:
        return scores.log_probability
    assert scores.log_predictive_density is not None
    return scores.log_predictive_density
