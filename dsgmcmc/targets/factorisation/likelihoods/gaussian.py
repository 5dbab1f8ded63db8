"""The Gaussian likelihood of a block of ratings: its gradient, with or without noise of its own for users and items.

With such noise rating (i, j) has the variance 1 / (tau g_i g'_j). The weights g are field ``weight`` of a side, of
width 1; field ``row_error`` gathers, over a sweep, every row's squared errors, weighted by the other side's weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.gamma import weigh_kernel
from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.targets.factorisation.blocks import TrainBlock
from dsgmcmc.targets.state import Field

Float32 = npt.NDArray[np.float32]
Arrays = Mapping[str, Float32]

WEIGHT_FIELDS = (Field("weight", 1), Field("row_error", 1))


class Likelihood:
    """Gradients of squared errors for one rank.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    weighted : bool
        Whether users or items have noise of their own.
    """

    def __init__(self, rank: int, biases: bool, weighted: bool) -> None:
        self.weighted = weighted
        self._gradient = gradient_kernel(rank, biases, weighted)

    def add_gradient(
        self, ratings: TrainBlock, row: Arrays, column: Arrays, position: str, out: str, scale: float, share: float
    ) -> float:
        """Add the gradient of a block's energy, times `scale`, to `out` of both sides.

        Parameters
        ----------
        ratings : TrainBlock
            The block.
        row, column : mapping of str to (n, D) float32
            Arrays of the sides that meet.
        position, out : str
            Where the gradient is taken, and what it is added to.
        scale : float
            tau / p_t.
        share : float
            What the squared errors count for in ``row_error``; 0 if they do not.

        Returns
        -------
        float
            Sum of the weighted squared errors.
        """
        arrays = (row[position], column[position], row[out], column[out])
        if not self.weighted:
            return float(self._gradient(ratings.indptr, ratings.indices, ratings.values, *arrays, np.float32(scale)))
        sides = (row, column)
        errors = [np.zeros(len(side["weight"])) for side in sides]
        weights = [side["weight"].reshape(-1) for side in sides]
        total = self._gradient(
            ratings.indptr, ratings.indices, ratings.values, *arrays, *weights, *errors, np.float32(scale)
        )
        if share:
            for side, error in zip(sides, errors, strict=True):
                side["row_error"][:, 0] += share * error
        return float(total)

    def weigh(self, ratings: TrainBlock, row: Arrays, column: Arrays, out: str) -> None:
        """Add the sums of weights and of their squares over a block's ratings to `out`, (n, 2), of both sides."""
        weights = (row["weight"].reshape(-1), column["weight"].reshape(-1))
        weigh_kernel()(ratings.indptr, ratings.indices, *weights, row[out], column[out])
