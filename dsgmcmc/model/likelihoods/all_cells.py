r"""Clicks: every training rating counts as a 1, and every cell, rated or not, as a 0 of weight a0 [Hu 2008].

With s_ij = W_i . H_j and O the training ratings, whatever their values, the energy is

    (tau / 2) [ sum_{ij in O} (1 - s_ij)^2 + a0 sum_{all ij} s_ij^2 ]

A pseudo-likelihood: it is not the law of anything that clicks could be drawn from, so tau is no noise to be sampled
but says how much the data weigh against the prior, and is chosen like a0. What spreads over the draws is the score.
There are neither biases nor a centre: zeros have to be where s is 0 for one Gram matrix to sum over all cells
(`dsgmcmc.model.background`). Rows are normal given the other factor.

[Hu 2008] Hu, Koren & Volinsky, Collaborative filtering for implicit feedback datasets, ICDM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Predictive, PredictorDraws
from dsgmcmc.settings import setting
from dsgmcmc.types import Array, Float64

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings


class ClickSettings(BaseModel):
    """Settings of clicks."""

    zero_weight: float | None = setting(
        "Weight of an unobserved pair relative to a click.", None, shown="0.1 with all-cells", gt=0, allow_inf_nan=False
    )


class AllCells(Gaussian):
    """Clicks, and zeros everywhere with a small weight."""

    has_noise = False
    noise_quantities = ()
    Settings = ClickSettings
    # the diagonal metric is slow where factors have a common mean, as they have without biases
    defaults: ClassVar[dict[str, Any]] = {
        "noise_precision": 30.0,
        "zero_weight": 0.1,
        "biases": False,
        "center": False,
        "sampler": {"metric": "kronecker"},
    }

    @classmethod
    def _check_scale(cls, config: Any) -> None:
        """Refuse what cannot be where every cell counts, and what has no meaning for clicks."""
        wrong = [name for name in ("biases", "center", "standardise") if getattr(config, name)]
        if wrong or config.zero_weight is None:
            raise InputError(
                f"the {config.likelihood} likelihood models scores, 0 for pairs without a click: leave out "
                f"{' and '.join(wrong) or 'zero_weight = none'}"
            )
        if config.noise_precision == "sampled":
            raise InputError(
                f"the {config.likelihood} likelihood is a pseudo-likelihood, whose tau cannot be sampled: leave out "
                "noise_precision, or give a number"
            )

    @classmethod
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Yield warnings, which are no errors, if this law may not suit the values in a ratings file."""
        if (ratings.minimum, ratings.maximum) != (1.0, 1.0):
            yield (
                f"ratings are from {ratings.minimum:g} to {ratings.maximum:g}, and --likelihood {likelihood} takes "
                "every one for a click: prepare those alone that are"
            )

    @classmethod
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this law encodes them: for levels, the index of the nearest level; for clicks, 1."""
        return np.ones_like(values)

    @classmethod
    def is_sum_over_ratings(cls) -> bool:
        """Whether minus the log likelihood is a sum over the ratings, so that a minibatch of them can estimate it."""
        return False

    @classmethod
    def can_be_evaluated(cls) -> bool:
        """Whether predictions can be compared with ratings; else they are scores, of which only the order matters."""
        return False

    @classmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors.

        Here: what spreads over the draws is the score.
        """
        return cls.expectation(draws, centre, levels)
