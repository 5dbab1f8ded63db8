"""Ratings of ordered levels given their predictors, apart from any chain.

`dsgmcmc.model.likelihoods.ordinal.ordinal` has the equations. The parameters are the thresholds
between levels, which all rows share, or of which each user (or item) has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.ordinal import END, level_moments, level_probabilities
from dsgmcmc.model.likelihoods.observation import Observation
from dsgmcmc.model.likelihoods.ordinal.expansion import expand_levels
from dsgmcmc.model.likelihoods.ordinal.own_levels import levels_between
from dsgmcmc.model.likelihoods.ordinal.row_thresholds import CUTS, GapPrior
from dsgmcmc.model.likelihoods.ordinal.thresholds import coordinates_of
from dsgmcmc.model.likelihoods.own_prior import OwnPrior
from dsgmcmc.model.predictive.base import (
    Moments,
    Predictive,
    PredictorDraws,
    nearest_level,
    reaches,
)
from dsgmcmc.model.predictive.levels import LevelDistribution
from dsgmcmc.model.predictive.mixture import ExpectationMixture
from dsgmcmc.model.predictive.steps import LogisticSteps
from dsgmcmc.model.quantity import SavedDraw
from dsgmcmc.types import Array, Float32, Float64, Int32, Mask

#: Ratings times draws whose probabilities are computed together.
_CELLS = 1 << 14


class LevelObservation(Observation):
    """Distribution of an ordered level given its predictor."""

    row_parameters = CUTS
    expansion = staticmethod(expand_levels)

    # ------------------------------------------------------------------ possible ratings

    @classmethod
    @override
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        assert levels is not None
        return nearest_level(values, levels).astype(values.dtype)

    # ------------------------------------------------------------------ rows without a chain

    @classmethod
    @override
    def parameters_of(cls, shared: Mapping[str, Float64]) -> Float64:
        """Thresholds between levels, (R - 1,)."""
        return shared["thresholds"]

    @classmethod
    @override
    def own_prior(cls, draw: SavedDraw, entity: str, most: float = inf) -> OwnPrior:
        prior = super().own_prior(draw, entity, most)
        if CUTS not in draw.rows[entity]:
            return prior
        return GapPrior(
            scale=prior.scale,
            bound=prior.bound,
            most=prior.most,
            gaps=draw.shared["thresholds.precision"] ** -0.5,
            position=coordinates_of(draw.shared["thresholds"]),
        )

    @classmethod
    @override
    def levels_of_items(cls, draw: SavedDraw) -> Mask | None:
        cuts = draw.rows["item"].get(CUTS)
        if cuts is None:
            return None
        has = levels_between(cuts)
        if has.all():
            return None
        return has

    @classmethod
    @override
    def thresholds_of_items(cls, draw: SavedDraw) -> Float64:
        cuts = draw.rows["item"].get(CUTS)
        if cuts is None:
            return draw.shared["thresholds"][np.newaxis]
        above = np.pad(cuts[:, 1:], ((0, 0), (0, 1)), constant_values=np.float32(END))
        has_threshold = (cuts > -END) & (cuts < above)
        return np.asarray(np.where(has_threshold, cuts, np.nan), np.float64)

    @classmethod
    @override
    def log_likelihood_at(
        cls, x: Float64, eta: Float64, scale: Float64, parameters: Array | None
    ) -> Float64:
        """Log probabilities of levels given their predictors, (n,) float64.

        With a and b the ends of the level, from the predictor, F(b) - F(a) is 1 - exp(a - b) over
        the product of 1 + exp(a) and 1 + exp(-b), which loses no digits in either tail.
        """
        assert parameters is not None
        level = x.astype(np.int64)
        last = parameters.shape[-1]
        upper_index = level
        if parameters.ndim == 2:  # each rating has its own thresholds
            upper_index = level + last * np.arange(len(x))
        lower = np.where(level == 0, -np.inf, parameters.take(upper_index - (level > 0)))
        upper = np.where(level == last, np.inf, parameters.take(upper_index - (level == last)))
        below = np.exp(np.minimum(scale * (lower - eta), 690.0))
        above = np.exp(np.minimum(scale * (eta - upper), 690.0))
        both = below * above
        probability = (1 - both) / (1 + below + above + both)
        return np.asarray(np.log(np.maximum(probability, 1e-300)))

    # ------------------------------------------------------------------ predictions

    @classmethod
    def _at_draws(cls, draws: PredictorDraws) -> Iterator[tuple[slice, Float32]]:
        """Yield some draws, and the probabilities of the levels at these, (draws, q, R).

        Few ratings are computed at many draws together.
        """
        assert draws.parameters is not None
        n_draws, n_sets, _ = draws.parameters.shape
        owner: Int32 = np.zeros(len(draws.eta), np.int32)
        if draws.owner is not None:
            owner = draws.owner
        step = max(1, _CELLS // max(len(owner), 1))
        for first in range(0, n_draws, step):
            part = slice(first, first + step)
            thresholds = draws.parameters[part]
            numbers = np.arange(len(thresholds), dtype=np.int32)[:, np.newaxis]
            probability = level_probabilities(
                draws.eta[:, part].T.reshape(-1),
                np.reciprocal(draws.noise[:, part]).T.reshape(-1),
                thresholds.reshape(len(thresholds) * n_sets, -1),
                (numbers * np.int32(n_sets) + owner).reshape(-1),
            )
            yield part, probability.reshape(len(thresholds), len(owner), -1)

    @classmethod
    @override
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        assert levels is not None
        probability = np.zeros((len(draws.eta), len(levels)), np.float32)
        for share, node in draws.over_effects():
            weights = (share * node.weights).astype(np.float32)
            for part, probabilities in cls._at_draws(node):
                for weight, probability_at_draw in zip(weights[part], probabilities, strict=True):
                    probability += weight * probability_at_draw
        return LevelDistribution(probability, levels)

    @classmethod
    @override
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        assert levels is not None
        known = draws.known()
        means = np.zeros_like(known.eta)
        for share, node in draws.over_effects():
            for part, probabilities in cls._at_draws(node):
                of_ratings = level_moments(probabilities.reshape(-1, len(levels)), levels)[0]
                at_draws = of_ratings.reshape(probabilities.shape[:2])
                means[:, part] += np.float32(share) * at_draws.T
        return ExpectationMixture(means, known.spread, known.weights)

    @classmethod
    @override
    def expected_steps(cls, levels: Float64 | None) -> LogisticSteps | None:
        if not cls.inherits(LevelObservation, "expectation"):
            return None
        assert levels is not None
        return LogisticSteps(heights=np.diff(levels), start=float(levels[0]))

    @classmethod
    @override
    def steps_at_least(cls, bound: float, levels: Float64 | None) -> LogisticSteps | None:
        if not cls.inherits(LevelObservation, "predictive"):
            return None
        assert levels is not None
        level = int(np.count_nonzero(~reaches(levels, bound)))
        if level in (0, len(levels)):
            return LogisticSteps(heights=np.zeros(0))
        return LogisticSteps(heights=np.ones(1), chosen=slice(level - 1, level))

    @classmethod
    @override
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        assert moments.probability is not None
        assert moments.levels is not None
        return LevelDistribution(moments.probability, moments.levels)
