r"""A term of the energy for every pair of a user and an item, rated or not.

With s_ij = W_i . H_j and a weight a0, the term is

    (tau / 2) a0 sum_{all ij} s_ij^2  =  (tau / 2) a0 tr(W^T W H^T H)

Its gradient for W_i is tau a0 (H^T H) W_i, and every row of W gets the precision tau a0 H^T H. As
(x + y)^2 <= 2 (x^2 + y^2), the curvature in both factors together is at most twice that in each
alone, as for a sum over ratings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.formulas.formula import dense
from dsgmcmc.kernels.products import add_rotated, inner
from dsgmcmc.model.circulation import OTHER, Circulation
from dsgmcmc.types import Factor, Float32, Float64, Named


class CommonPrecision(NamedTuple):
    """Precision that all rows of a factor share.

    Attributes
    ----------
    precision : dict of Factor to (D,) or (D, D) float64
    curvature : dict of Factor to float
        Largest eigenvalue of the precision scaled to a diagonal of 1, at least 1.
    """

    precision: dict[Factor, Float64]
    curvature: dict[Factor, float]


@dataclass(frozen=True)
class Background:
    """The term of all pairs.

    Attributes
    ----------
    weight : float
        a0, the weight of the squared predictor of every pair.
    """

    weight: float

    def add_gradient(self, circulation: Circulation, position: str, out: str) -> None:
        """Add the gradient a0 H^T H W_i, at noise precision 1, to `out` of all blocks. Collective.

        Parameters
        ----------
        circulation : Circulation
            The blocks of both factors.
        position, out : str
            Field with the state, and field to which the gradient is added.
        """
        matrices = self._grams(circulation, position)
        with circulation.ring.phases("gradient"):
            for block in circulation.blocks():
                add_rotated(block[out], block[position], matrices[block.factor])

    def curvature(self, shape: tuple[int, int]) -> float:
        """Bound on a row's curvature, in units of the mean square of the covariates.

        `shape` is the number of rows and of columns of the rating matrix.
        """
        return self.weight * max(shape)

    def gram(self, circulation: Circulation, position: str, factor: Factor) -> Float32:
        """Precision (D, D) of a factor's rows, at noise precision 1. Collective."""
        return self._grams(circulation, position)[factor]

    def _grams(self, circulation: Circulation, position: str) -> dict[Factor, Float32]:
        """For each factor, a0 times the Gram matrix (D, D) of the other factor's rows.

        Collective.
        """
        sums = circulation.ring.sum(_partial_grams(circulation, position))
        weight = np.float32(self.weight)
        return {
            factor: weight * sums[other.name].astype(np.float32) for factor, other in OTHER.items()
        }

    def common_precision(
        self, circulation: Circulation, position: str, prior: Mapping[Factor, Float64], tau: float
    ) -> CommonPrecision:
        """The precision of the prior, plus tau a0 H^T H. Collective.

        In the metric of this matrix, the prior and the sum over all pairs together contribute
        curvature 1 to every row; in the metric of its diagonal, at most the `curvature` returned.

        Parameters
        ----------
        circulation : Circulation
            The blocks of both factors.
        position : str
            Field with the state.
        prior : dict of Factor to (D,) or (D, D) float64
            Precision of the prior of rows.
        tau : float
            Precision of the noise.
        """

        def finish(sums: dict[str, Float64]) -> dict[str, Float64]:
            result = {}
            for factor, precision in prior.items():
                total = dense(precision) + tau * self.weight * sums[OTHER[factor].name]
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
        return CommonPrecision(
            precision={factor: sums[factor.name] for factor in prior},
            curvature={factor: float(sums[f"{factor.name}.curvature"][0]) for factor in prior},
        )


def _partial_grams(circulation: Circulation, position: str) -> Named:
    """Gram matrices of this process's blocks, (blocks, D, D) float64, by the factor's name."""
    partials = {}
    for rows in circulation.rows_by_factor():
        arrays = [block[position] for block in rows.blocks]
        partials[rows.factor.name] = np.array([inner(array, array) for array in arrays])
    return partials
