"""What every likelihood is: the law of a rating x given its linear predictor eta = a_i + b_j + W_i . H_j.

A likelihood is one file. It says how the log density changes with eta, in the language of formulas, and the kernels are
compiled with that; held-out ratings, predictions, calibration and synthetic ratings ask it for the rest. Ratings and
predictors are less the training mean where the configuration subtracts it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.targets.factorisation.cell import RatingsCell
from dsgmcmc.targets.factorisation.circulation import Circulation
from dsgmcmc.targets.state import ParameterBlock, StateField
from dsgmcmc.types import Array, Float32, Float64, Int32

Counts = dict[ParameterBlock, Array]


class Prediction(NamedTuple):
    """Predictive distributions of ratings: mean, sd and two quantiles, (q,) each."""

    mean: Float32
    sd: Float32
    low: Float32
    high: Float32


class Likelihood(ABC):
    """Law of a rating.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    heteroscedastic : bool
        Whether users or items have noise of their own.
    """

    #: d log density / d eta at noise precision 1, in the language of formulas, of x and eta.
    score: ClassVar[str]
    #: Whether there is noise, whose precision tau is sampled, and which may differ between users and between items.
    has_noise: ClassVar[bool] = True
    #: Settings of the run that suit this likelihood, where they are not those of all.
    defaults: ClassVar[dict[str, Any]] = {}
    #: What a row brings besides theta: fields that travel with a block, and those of them that belong to a draw.
    fields: tuple[StateField, ...] = ()
    drawn: tuple[str, ...] = ()

    def __init__(self, rank: int, biases: bool, heteroscedastic: bool = False) -> None:
        self.rank, self.biases, self.heteroscedastic = rank, biases, heteroscedastic

    # ------------------------------------------------------------------ of training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:  # noqa: B027 (most have none)
        """Set the `fields` as they are before the first iteration."""

    def reset_errors(self, blocks: Iterable[ParameterBlock]) -> None:  # noqa: B027 (likewise)
        """Begin to gather the squared errors of a new sweep."""

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks.

        Parameters
        ----------
        cell : RatingsCell
            The blocks that meet, and their ratings.
        position, out : str
            Where the gradient is taken, and what it is added to.
        scale : float
            tau / p_t.
        share : float
            What the squared scores count for in the rows' own; 0 if they do not.

        Returns
        -------
        float
            Sum of the squared scores.
        """
        ratings, row, column = cell.ratings, cell.row, cell.column
        kernel = gradient_kernel(self.rank, self.biases, score=self.score)
        arrays = (row[position], column[position], row[out], column[out])
        return float(kernel(ratings.indptr, ratings.indices, ratings.values, *arrays, np.float32(scale)))

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """Sums over every row's ratings of how much each counts in the information, and of the squares. Collective.

        Where each counts 1, both are the number of ratings, (n,) float32.
        """
        n = {block: block.counts.astype(block.dtype) for block in circulation.blocks()}
        return n, n

    @staticmethod
    def statistics(features: Float64, x: Float64, precision: Float64) -> tuple[Float64, Float64] | None:
        """Sufficient statistics of a row's ratings given the other factor; None where its law is not Gaussian then.

        Parameters
        ----------
        features : (n, D) float64
            What multiplies the row in the predictor of each of its ratings: phi_j = (H_j, 1).
        x : (n,) float64
            Ratings, less what the predictor has besides.
        precision : (n,) float64
            Of their noise.

        Returns
        -------
        gram : (D, D) float64
            sum_j precision_j phi_j phi_j^T
        moment : (D,) float64
            sum_j precision_j x_j phi_j
        """
        return None

    # ------------------------------------------------------------------ of new ratings

    @property
    def noise_varies(self) -> bool:
        """Whether ratings differ in the variance of their noise; else one serves all."""
        return True

    @abstractmethod
    def variance(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> Float32 | float:
        """Variance of ratings about their expectation, for (q,) local rows and columns of a cell's blocks."""

    @staticmethod
    @abstractmethod
    def mean(eta: Float32) -> Float32:
        """Expected rating."""

    @staticmethod
    @abstractmethod
    def draw(eta: Array, sd: Array | float, rng: np.random.Generator) -> Array:
        """Draw ratings given their predictors and the standard deviation of their noise, if they have noise."""

    @staticmethod
    @abstractmethod
    def log_density(x: Array, mean: Array, variance: Array) -> Array:
        """Log density of ratings with these means and variances, in nats, elementwise."""

    @classmethod
    def log_likelihood(cls, x: Array, mean: Array, variance: Array) -> float:
        """Sum of the log densities of all ratings; `variance` may be one for all, (1,)."""
        return float(cls.log_density(x, mean, variance).sum(dtype=np.float64))

    @staticmethod
    @abstractmethod
    def cdf(x: Array, mean: Array, variance: Array) -> Float64:
        """Probability of a rating of at most `x`."""

    @staticmethod
    @abstractmethod
    def quantile(p: float, mean: Array, variance: Array) -> Float64:
        """Rating that a new one exceeds with probability 1 - `p`."""

    @staticmethod
    @abstractmethod
    def predictive(
        eta: Float32, variance: Float32, weights: Float64, levels: tuple[float, float], of_mean: bool = False
    ) -> Prediction:
        """Predictive distribution over draws: a mixture.

        Parameters
        ----------
        eta : (q, draws) float32
            Predictors.
        variance : (q, draws) float32
            Of what is added to the predictor at each draw: noise, if there is any, and where a row is not known its own
            uncertainty.
        weights : (draws,) float64
            Of the draws; they sum to 1.
        levels : pair of float
            Probabilities of the quantiles.
        of_mean : bool
            Of the expected rating, and not of a new one; `variance` has no noise then.
        """
