r"""Clicks: every training rating counts as a 1, and every pair of a user and an item as a 0 of
weight a0 [Hu 2008].

With s_ij = W_i . H_j and O the set of pairs with a training rating, whatever its value, the energy
is

    (tau / 2) [ sum_{ij in O} (1 - s_ij)^2 + a0 sum_{all ij} s_ij^2 ]

This is a pseudo-likelihood: no distribution of clicks has this energy. So tau, which weighs the
data against the prior, is not sampled; tau and a0 are settings. Predictions are s_ij, scores for
ranking items. There are neither biases nor a centre, so that the sum over all pairs contains s
alone and follows from Gram matrices. Rows are normal given the other factor.

The sum over all pairs is tr(W^T W H^T H), so the Gram matrix of each factor suffices: the gradient
for W_i is tau a0 (H^T H) W_i, and every row of W gets the same precision tau a0 H^T H. A metric
adds it to the precision Lambda of the prior, which all rows also share. Each pair has one row of W
and one of H, and (x + y)^2 <= 2 (x^2 + y^2). So the curvature in both factors together is at most
twice that in each alone, as it is for a sum over ratings. The step sizes allow for this factor of
2.

In the metric Lambda + tau a0 H^T H, the prior and the sum over all pairs together contribute
curvature 1 to every row. In the metric of the diagonal of this matrix, they contribute at most its
largest eigenvalue after it is scaled to a diagonal of 1, whatever the row's ratings are.

[Hu 2008] Hu, Koren & Volinsky, Collaborative filtering for implicit feedback datasets, ICDM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import dense
from dsgmcmc.kernels.products import add_rotated, inner
from dsgmcmc.model.circulation import OTHER, Circulation
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Predictive, PredictorDraws
from dsgmcmc.settings import named, setting
from dsgmcmc.types import Array, Factor, Float32, Float64, Named


class ClickSettings(BaseModel):
    """Settings for clicks."""

    zero_weight: float | None = setting(
        "Weight of every pair as a zero; a click weighs 1.", None, shown="0.1 with all-cells", gt=0
    )


class AllCells(Gaussian):
    """Clicks, and a zero of small weight for every pair of a user and an item."""

    has_noise = False
    is_sum_over_ratings = False
    can_be_evaluated = False
    noise_quantities = ()
    Settings = ClickSettings
    # in the diagonal metric, chains mix slowly if the rows of a factor have a common mean, as they
    # have without biases
    defaults: ClassVar[dict[str, Any]] = {
        "noise_precision": 30.0,
        "zero_weight": 0.1,
        "biases": False,
        "center": False,
        "sampler": {"metric": "kronecker"},
    }

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse settings that are impossible if every pair counts, or meaningless for clicks."""
        wrong = [name for name in ("biases", "center", "standardise") if getattr(config, name)]
        wrong += ["noise_precision"] if config.noise_precision == "sampled" else []
        wrong += [name for name in ("noise", "thresholds") if getattr(config, name) != "shared"]
        if wrong:
            raise InputError(
                f"the {config.likelihood} likelihood has no use for {named(wrong[0])}: leave it out"
            )

    @classmethod
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Yield warnings if this likelihood may not suit the values in a ratings file."""
        if (ratings.minimum, ratings.maximum) != (1.0, 1.0):
            span = f"from {ratings.minimum:g} to {ratings.maximum:g}"
            yield (
                f"--likelihood {likelihood} counts all ratings, {span}, as clicks: prepare only the"
                " clicks"
            )

    @classmethod
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this likelihood encodes them: the index of the nearest level, 1 for clicks,
        else the value.
        """
        return np.ones_like(values)

    # ------------------------------------------------------------------ all pairs, rated or not

    def add_gradient_of_all(self, circulation: Circulation, position: str, out: str) -> None:
        """Add the gradient of the energy's sum over all pairs, at noise precision 1, to all `out`.

        Collective.

        Here: a0 H^T H W_i for a row of W.
        """
        matrices = self._grams(circulation, position)
        with circulation.ring.phases("gradient"):
            for block in circulation.blocks():
                add_rotated(block[out], block[position], matrices[block.factor])

    def curvature_of_all(self, shape: tuple[int, int]) -> float:
        """Bound on a row's curvature from the sum over all pairs, in units of the mean square of
        the covariates.
        """
        return self.background * max(shape)

    def gram_of_all(self, circulation: Circulation, position: str, factor: Factor) -> Float32:
        """Precision (D, D) of a factor's rows from the sum over all pairs, at noise precision 1.

        Collective.
        """
        return self._grams(circulation, position)[factor]

    def _grams(self, circulation: Circulation, position: str) -> dict[Factor, Float32]:
        """For each factor, a0 times the Gram matrix (D, D) of the other factor's rows.

        Collective.
        """
        sums, weight = (
            circulation.ring.sum(_partial_grams(circulation, position)),
            np.float32(self.background),
        )
        return {
            factor: weight * sums[other.name].astype(np.float32) for factor, other in OTHER.items()
        }

    def common_precision(
        self, circulation: Circulation, position: str, prior: dict[Factor, Float64], tau: float
    ) -> tuple[dict[Factor, Float64], dict[Factor, float]]:
        """Precision that all rows of a factor share. Collective.

        Here: the precision of the prior, plus tau a0 H^T H.
        """

        def finish(sums: dict[str, Float64]) -> dict[str, Float64]:
            result = {}
            for factor, precision in prior.items():
                total = dense(precision) + tau * self.background * sums[OTHER[factor].name]
                root = np.sqrt(np.diag(total))
                result[factor.name] = total
                result[f"{factor.name}.curvature"] = np.linalg.eigvalsh(
                    total / np.outer(root, root)
                )[-1:]
            return result

        shapes: dict[str, tuple[int, ...]] = {
            factor.name: (len(precision),) * 2 for factor, precision in prior.items()
        }
        shapes |= {f"{factor.name}.curvature": (1,) for factor in prior}
        sums = circulation.ring.sum(_partial_grams(circulation, position), finish, shapes)
        return {f: sums[f.name] for f in prior}, {
            f: float(sums[f"{f.name}.curvature"][0]) for f in prior
        }

    # ------------------------------------------------------------------ new ratings

    @classmethod
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors.

        Here: distributions of the score over draws.
        """
        return cls.expectation(draws, centre, levels)


def _partial_grams(circulation: Circulation, position: str) -> Named:
    """Gram matrices of this process's blocks, (blocks, D, D) float64, by the factor's name."""
    partials = {}
    for rows in circulation.rows_by_factor():
        arrays = [block[position] for block in rows.blocks]
        partials[rows.factor.name] = np.array([inner(array, array) for array in arrays])
    return partials
