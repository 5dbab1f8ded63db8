"""Draws of observed ratings, and their log likelihoods, for ArviZ: by pair, at every saved draw.

Test ratings were not in the posterior, so the logarithm of the mean likelihood over the draws is
their predictive score. Leave-one-out of ArviZ is for ratings that were: it weighs the draws by the
inverse likelihoods, so that the scores that it gives test ratings are lower. Of training ratings it
estimates what their score would be without them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import resolution_from
from dsgmcmc.parallel.machine import memory_for_data
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.moments import saved_of_chains
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.ratings.pairs import RatedPairs, rated_pairs, select
from dsgmcmc.settings import named
from dsgmcmc.types import Float64, Int64

#: Bytes of a rating at a draw: its draw and its log likelihood.
PAIR_BYTES = 16


def exact_or_nan(pairs: RatedPairs) -> Float64:
    """Return the ratings, with NaN for those that are known only by bounds."""
    values = pairs.values.astype(np.float64)
    if pairs.bounds is not None:
        values[pairs.bounds[:, 0] < pairs.bounds[:, 1]] = np.nan
    return values


def observed_tests(run: Run, index: Int64) -> RatedPairs:
    """Return some test ratings of a run that has ended, by their positions."""
    test = predict_test(run)
    bounds = None
    if test.bounds is not None:
        bounds = np.column_stack(test.bounds)
    pairs = RatedPairs(*run.test_pairs(), test.rating, bounds=bounds, held_out=True)
    return select(pairs, index)


def observed_training(run: Run) -> RatedPairs:
    """Return all training ratings of a run, in the order of the ratings file.

    Raises InputError if `draw_pairs` cannot draw them, if drawing them needs more memory than may
    be used, or if the file is missing or has other ratings.
    """
    if not can_be_drawn(run):
        raise InputError(
            f"{run.path} has no log likelihoods of its training ratings: clicks, and ratings with"
            " weights or effects of time, have none that follow from user and item alone"
        )
    size = PAIR_BYTES * len(run.draws) * int(run.counts("user").sum())
    if size > memory_for_data():
        raise InputError(
            f"log likelihoods and draws of all training ratings take {size / 1e9:,.1f} GB, and"
            f" {memory_for_data() / 1e9:,.1f} GB may be used: sample with fewer"
            f" {named('save_draws')}"
        )
    with run.open_ratings() as ratings:
        return rated_pairs(ratings, "train")


class PairDraws(NamedTuple):
    """Draws of observed ratings, (chains, draws, m) float64 each.

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
    """Whether ratings have distributions that follow from their users and items alone.

    Clicks have none; those of weighted ratings and of ratings with effects of time need more.
    """
    is_weighted = run.facts.get("mean_weight") is not None
    return bool(run.draws) and run.config.law.can_be_evaluated and not is_weighted | run.has_effects


def draw_pairs(run: Run, pairs: RatedPairs) -> PairDraws:
    """Draw ratings of observed pairs, and score the observed ones, at every saved draw."""
    predictor = Predictor(run, PredictOptions(clip=True))
    drawn = []
    scored = []
    for position, (chain, iteration) in enumerate(run.draws):
        rng = np.random.default_rng([run.config.seed, chain, iteration])
        ratings = np.empty(len(pairs.values))
        scores = np.empty(len(pairs.values))
        for rows, predictive in predictor.distributions(pairs.users, pairs.items, [position]):
            predictive.resolution = resolution_from(run.facts)
            ratings[rows] = run.limits.clip(predictive.quantile(rng.random(len(rows))))
            bounds = None
            if pairs.bounds is not None:
                lower, upper = pairs.bounds[rows].T.astype(np.float64)
                bounds = (lower, upper)
            observed = pairs.values[rows].astype(np.float64)
            scores[rows] = predictive.log_scores(observed, bounds).recorded()
        drawn.append(ratings)
        scored.append(scores)
    return PairDraws(saved_of_chains(run, drawn), saved_of_chains(run, scored))
