r"""Clicks: every training rating counts as a 1, and every pair as a 0 of weight a0 [Hu 2008].

With s_ij = W_i . H_j and O the set of pairs of a user and an item with a training rating, the
energy is

    (tau / 2) [ sum_{ij in O} (1 - s_ij)^2 + a0 sum_{all ij} s_ij^2 ]

This is a pseudo-likelihood: no distribution of clicks has this energy. So tau and a0 are settings,
and predictions are scores s_ij. There are neither biases nor a centre.
`dsgmcmc.model.likelihoods.background` computes the sum over all pairs.

[Hu 2008] Hu, Koren & Volinsky, Collaborative filtering for implicit feedback datasets, ICDM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.background import Background
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.parts.base import ChainFacts, ModelFacts
from dsgmcmc.model.predictive.base import Predictive, PredictorDraws
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named, setting
from dsgmcmc.types import Array, Float64


class ClickSettings(BaseModel):
    """Settings for clicks."""

    zero_weight: float | None = setting(
        "Weight of every pair as a zero; a click weighs 1.", None, shown="0.1 with all-cells", gt=0
    )


class AllCells(GaussianRatings):
    """Clicks, and a zero of small weight for every pair of a user and an item."""

    has_noise = False
    takes_weights = False
    takes_bounds = False
    is_sum_over_ratings = False
    can_be_evaluated = False
    noise_quantities = ()
    Settings = ClickSettings
    # without biases the rows of a factor have a common mean, and then chains mix slowly in the
    # diagonal metric
    defaults: ClassVar[dict[str, Any]] = {
        "noise_precision": 30.0,
        "zero_weight": 0.1,
        "biases": False,
        "center": False,
        "sampler": {"metric": "kronecker"},
    }

    @classmethod
    @override
    def create(cls, settings: ClickSettings, chain: ChainFacts, data: Levels | None) -> Self:
        law = super().create(settings, chain, data)
        assert settings.zero_weight is not None
        law.background = Background(settings.zero_weight)
        return law

    @classmethod
    @override
    def unused_settings(cls) -> dict[str, Any]:
        return {
            "biases": False,
            "center": False,
            "standardise": False,
            "noise": "shared",
            "thresholds": "shared",
        }

    @classmethod
    @override
    def check_ratings(cls, settings: ClickSettings, model: ModelFacts, ratings: Ratings) -> None:
        """Refuse ratings that the likelihood does not model.

        Here: pairs with several clicks, as the energy has one term for every pair.
        """
        if ratings.replicates:
            raise InputError(
                f"{ratings.path}: {ratings.replicates:,} clicks are replicates, and"
                f" {named('likelihood')} {model.likelihood} models whether a pair has any: prepare"
                f" it with {named('duplicates')} last"
            )

    @classmethod
    @override
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        if ratings.minimum == 1.0 and ratings.maximum == 1.0:
            return
        yield (
            f"{named('likelihood')} {likelihood} counts all ratings, from {ratings.minimum:g} to"
            f" {ratings.maximum:g}, as clicks: prepare only the clicks"
        )

    @classmethod
    @override
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        return np.ones_like(values)

    # ------------------------------------------------------------------ new ratings

    @classmethod
    @override
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Distributions of the scores over draws: clicks have no predictive distribution."""
        return cls.expectation(draws, centre, levels)
