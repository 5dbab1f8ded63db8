r"""Gaussian ratings: x_ij ~ N(eta_ij, 1 / tau), or with noise of its own for every user and item 1 / (tau g_i g'_j).

The score is tau (x - eta). Conjugate: given one factor, the other's rows are Gaussian with precision tau sum phi phi^T,
phi_j = (H_j, 1), and moment tau sum (x - b_j) phi_j.

The scales g are field ``weight`` of a block, of width 1; field ``row_error`` gathers, over a sweep, every row's squared
errors, times the other factor's scales.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.kernels.quantiles import summarise
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.likelihoods.base import WEIGHT, Counts, Likelihood, Prediction
from dsgmcmc.model.quantity import Quantity
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Float32, Float64, Int32

ROW_ERROR = Quantity("row_error", of_rows=True, drawn=False)


class Gaussian(Likelihood):
    """Gaussian ratings, with one noise for all or one for every user, item, or both."""

    score = "x - eta"
    noise_quantities: ClassVar[tuple[Quantity, ...]] = (WEIGHT, ROW_ERROR)

    # ------------------------------------------------------------------ of training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set all scales to 1."""
        for block in blocks if self.heteroscedastic else ():
            block["weight"].fill(1.0)

    def reset_errors(self, blocks: Iterable[ParameterBlock]) -> None:
        """See `Law.reset_errors`."""
        for block in blocks if self.heteroscedastic else ():
            block["row_error"].fill(0.0)

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """See `Law.add_gradient`; the squared errors are taken times g_i g'_j."""
        if not self.heteroscedastic:
            return super().add_gradient(cell, position, out, scale, share)
        ratings, blocks = cell.ratings, (cell.row, cell.column)
        errors = [np.zeros(len(block["weight"])) for block in blocks]
        arrays = [block[name] for name in (position, out) for block in blocks]
        arrays += [block.row("weight") for block in blocks]
        kernel = gradient_kernel(self.rank, self.biases, weighted=True, score=self.score)
        total = kernel(ratings.indptr, ratings.indices, ratings.values, *arrays, *errors, np.float32(scale))
        if share:
            for block, error in zip(blocks, errors, strict=True):
                block["row_error"][:, 0] += share * error
        return float(total)

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """See `Law.noise_scale`."""
        return block.row("weight") if self.heteroscedastic else super().noise_scale(block)

    def keep_errors(self, block: ParameterBlock, errors: Float64) -> None:
        """See `Law.keep_errors`."""
        if self.heteroscedastic:
            block["row_error"][:, 0] = errors

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """See `Law.counts`: sums of g_i g'_j and of its square."""
        if not self.heteroscedastic:
            return super().counts(circulation)
        return self.weighted_counts(circulation)

    @staticmethod
    def statistics(features: Float64, x: Float64, precision: Float64) -> tuple[Float64, Float64]:
        """See `Law.statistics`."""
        return (features.T * precision) @ features, features.T @ (precision * x)

    # ------------------------------------------------------------------ of new ratings

    @property
    def noise_varies(self) -> bool:
        """See `Law.noise_varies`."""
        return self.heteroscedastic

    def variance(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> Float32 | float:
        """See `Likelihood.variance`."""
        if not self.heteroscedastic:
            return 1 / tau
        precision = np.float32(tau) * cell.row.row("weight")[rows] * cell.column.row("weight")[columns]
        return np.reciprocal(precision, dtype=np.float32)

    @staticmethod
    def mean(eta: Float32) -> Float32:
        """See `Likelihood.mean`."""
        return eta

    @staticmethod
    def draw(eta: Array, sd: Array | float, rng: np.random.Generator) -> Array:
        """See `Likelihood.draw`."""
        found: Array = eta + sd * rng.standard_normal(len(eta))
        return found

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array) -> Array:
        """See `Likelihood.log_density`."""
        found: Array = -0.5 * (np.square(mean - x) / variance + np.log(2 * np.pi * variance))
        return found

    @classmethod
    def log_likelihood(cls, x: Array, mean: Array, variance: Array) -> float:
        """See `Likelihood.log_likelihood`; the logarithm of a variance that serves all is taken once."""
        squares = np.square(mean - x)
        squares /= variance
        logs = np.log(2 * np.pi * variance).sum(dtype=np.float64) * (1 if len(variance) == len(x) else len(x))
        return -0.5 * float(logs + squares.sum(dtype=np.float64))

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array) -> Float64:
        """See `Likelihood.cdf`."""
        from scipy.special import ndtr

        found: Float64 = ndtr((x - mean) / np.sqrt(variance))
        return found

    @staticmethod
    def quantile(p: float, mean: Array, variance: Array) -> Float64:
        """See `Likelihood.quantile`."""
        from scipy.special import ndtri

        found: Float64 = mean + ndtri(p) * np.sqrt(variance)
        return found

    @staticmethod
    def predictive(
        eta: Float32, variance: Float32, weights: Float64, levels: tuple[float, float], of_mean: bool = False
    ) -> Prediction:
        """See `Likelihood.predictive`: quantiles are those of the mixture of normals, not of one with its moments."""
        from statistics import NormalDist  # SciPy takes longer to import than a prediction

        z = (NormalDist().inv_cdf(levels[0]), NormalDist().inv_cdf(levels[1]))
        return Prediction(*summarise(eta, variance, weights, levels, z))
