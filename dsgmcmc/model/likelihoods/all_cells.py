r"""Clicks: every training rating counts as a 1, and every pair as a 0 of weight a0 [Hu 2008].

With s_ij = W_i . H_j and O the set of pairs of a user and an item with a training rating, the
energy is

    (tau / 2) [ sum_{ij in O} (1 - s_ij)^2 + a0 sum_{all ij} s_ij^2 ]

This is a pseudo-likelihood: no distribution of clicks has this energy. So tau and a0 are settings,
and predictions are scores s_ij. There are neither biases nor a centre: the sum over all pairs is
tr(W^T W H^T H). Its gradient for W_i is tau a0 (H^T H) W_i, and every row of W gets the precision
tau a0 H^T H. As (x + y)^2 <= 2 (x^2 + y^2), the curvature in both factors together is at most twice
that in each alone, as for a sum over ratings.

[Hu 2008] Hu, Koren & Volinsky, Collaborative filtering for implicit feedback datasets, ICDM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import dense
from dsgmcmc.kernels.products import add_rotated, inner
from dsgmcmc.model.circulation import OTHER, Circulation
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.predictive.base import Predictive, PredictorDraws
from dsgmcmc.settings import named, setting
from dsgmcmc.types import Array, Factor, Float32, Float64, Named


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
    def check(cls, config: Any) -> None:
        wrong = [name for name in ("biases", "center", "standardise") if getattr(config, name)]
        if config.noise_precision == "sampled":
            wrong.append("noise_precision")
        wrong += [name for name in ("noise", "thresholds") if getattr(config, name) != "shared"]
        if wrong:
            raise InputError(
                f"the {config.likelihood} likelihood has no use for {named(wrong[0])}: leave it out"
            )

    @classmethod
    @override
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse ratings that the likelihood does not model.

        Here: pairs with several clicks, as the energy has one term for every pair.
        """
        super().check_ratings(config, ratings)
        if ratings.replicates:
            raise InputError(
                f"{ratings.path}: {ratings.replicates:,} clicks are replicates, and"
                f" {named('likelihood')} {config.likelihood} models whether a pair has any: prepare"
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

    # ------------------------------------------------------------------ all pairs, rated or not

    @override
    def add_gradient_of_all(self, circulation: Circulation, position: str, out: str) -> None:
        """Add the gradient of the energy's sum over all pairs, at noise precision 1, to all `out`.

        Collective.

        Here: a0 H^T H W_i for a row of W.
        """
        matrices = self._grams(circulation, position)
        with circulation.ring.phases("gradient"):
            for block in circulation.blocks():
                add_rotated(block[out], block[position], matrices[block.factor])

    @override
    def curvature_of_all(self, shape: tuple[int, int]) -> float:
        return self.background * max(shape)

    @override
    def gram_of_all(self, circulation: Circulation, position: str, factor: Factor) -> Float32:
        return self._grams(circulation, position)[factor]

    def _grams(self, circulation: Circulation, position: str) -> dict[Factor, Float32]:
        """For each factor, a0 times the Gram matrix (D, D) of the other factor's rows.

        Collective.
        """
        sums = circulation.ring.sum(_partial_grams(circulation, position))
        weight = np.float32(self.background)
        return {
            factor: weight * sums[other.name].astype(np.float32) for factor, other in OTHER.items()
        }

    @override
    def common_precision(
        self, circulation: Circulation, position: str, prior: dict[Factor, Float64], tau: float
    ) -> tuple[dict[Factor, Float64], dict[Factor, float]]:
        """Precision that all rows of a factor share. Collective.

        Here: the precision of the prior, plus tau a0 H^T H. In the metric of this matrix, the prior
        and the sum over all pairs together contribute curvature 1 to every row; in the metric of
        its diagonal, at most the largest eigenvalue that is returned.
        """

        def finish(sums: dict[str, Float64]) -> dict[str, Float64]:
            result = {}
            for factor, precision in prior.items():
                total = dense(precision) + tau * self.background * sums[OTHER[factor].name]
                root = np.sqrt(np.diag(total))
                eigenvalues = np.linalg.eigvalsh(total / np.outer(root, root))
                result[factor.name] = total
                result[f"{factor.name}.curvature"] = eigenvalues[-1:]
            return result

        shapes: dict[str, tuple[int, ...]] = {}
        for factor, precision in prior.items():
            shapes[factor.name] = (len(precision), len(precision))
        for factor in prior:
            shapes[f"{factor.name}.curvature"] = (1,)
        sums = circulation.ring.sum(_partial_grams(circulation, position), finish, shapes)
        precisions = {factor: sums[factor.name] for factor in prior}
        curvatures = {factor: float(sums[f"{factor.name}.curvature"][0]) for factor in prior}
        return precisions, curvatures

    # ------------------------------------------------------------------ new ratings

    @classmethod
    @override
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Distributions of the scores over draws: clicks have no predictive distribution."""
        return cls.expectation(draws, centre, levels)


def _partial_grams(circulation: Circulation, position: str) -> Named:
    """Gram matrices of this process's blocks, (blocks, D, D) float64, by the factor's name."""
    partials = {}
    for rows in circulation.rows_by_factor():
        arrays = [block[position] for block in rows.blocks]
        partials[rows.factor.name] = np.array([inner(array, array) for array in arrays])
    return partials
