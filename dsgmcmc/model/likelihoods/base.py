"""What every likelihood is: the law of a rating x given its linear predictor eta = a_i + b_j + W_i . H_j.

A likelihood is one file. It says how the log density changes with eta, in the language of formulas, and the kernels are
compiled with that; held-out ratings, predictions, calibration and synthetic ratings ask it for the rest. Ratings and
predictors are less the training mean where the configuration subtracts it.

`Law` is what the chain asks of any of them. A `Likelihood` is a law whose predictive distributions are known by their
mean and variance; one of ordered levels has probabilities (`dsgmcmc.model.likelihoods.ordinal`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.gradient import gradient_kernel, weigh_kernel
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64

if TYPE_CHECKING:
    from dsgmcmc.storage.manifest import Key

#: Scale of a row's noise.
WEIGHT = Quantity("weight", of_rows=True, started=True)

Counts = dict[ParameterBlock, Array]


class Prediction(NamedTuple):
    """Predictive distributions of ratings: mean, sd and two quantiles, (q,) each."""

    mean: Float32
    sd: Float32
    low: Float32
    high: Float32


class Levels(NamedTuple):
    """Ratings that occur, where there are few.

    Attributes
    ----------
    values : (R,) float64
        In ascending order.
    counts : (R,) int64
        How many training ratings have each.
    """

    values: Float64
    counts: Int64


class Law(ABC):
    """Law of a rating, as a chain sees it.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    heteroscedastic : bool
        Whether users or items have noise of their own.
    levels : Levels, optional
        What ratings can be, where they have levels.
    factors : tuple of Factor
        Those whose rows have noise of their own, if any.
    background : float, optional
        Weight a0 of the squared predictors of all cells, where these count (`all_cells`).
    own_thresholds : Factor, optional
        Whose rows have thresholds of their own, where ratings are of levels.
    """

    #: Quantities of rows that noise of its own needs, `WEIGHT` among them.
    noise_quantities: ClassVar[tuple[Quantity, ...]] = ()
    #: Whether ratings are of ordered levels, which are found in the training ratings.
    has_levels: ClassVar[bool] = False
    #: Whether there is noise, whose precision tau is sampled.
    has_noise: ClassVar[bool] = True
    #: Whether ratings are counts: whole numbers from 0 on.
    of_counts: ClassVar[bool] = False
    #: Whether ratings are clicks, all 1 whatever their values, and all other cells count as zeros.
    all_cells: ClassVar[bool] = False
    #: Settings of the run that suit this likelihood, where they are not those of all.
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        rank: int,
        biases: bool,
        heteroscedastic: bool = False,
        levels: Levels | None = None,
        factors: tuple[Factor, ...] = tuple(Factor),
        background: float | None = None,
        own_thresholds: Factor | None = None,
    ) -> None:
        self.background, self.own_thresholds = background, own_thresholds
        self.rank, self.biases, self.heteroscedastic = rank, biases, heteroscedastic
        self.levels, self.factors = levels, factors if heteroscedastic else ()
        self.quantities = self.quantities_of(self.factors, own_thresholds)
        of_rows = [quantity for quantity in self.quantities if quantity.of_rows]
        #: Names of what a row brings besides theta, and of what of it belongs to a draw.
        self.fields = tuple(quantity.name for quantity in of_rows)
        self.drawn = tuple(quantity.name for quantity in of_rows if quantity.drawn)
        #: Parameters of the law that are sampled besides, the same on all processes.
        self.replicated: tuple[Sampled, ...] = ()

    @classmethod
    def quantities_of(cls, factors: tuple[Factor, ...], own_thresholds: Factor | None = None) -> tuple[Quantity, ...]:
        """What is sampled of it, where rows of these factors have noise, or thresholds, of their own."""
        return cls.noise_quantities if factors else ()

    @classmethod
    def is_centred(cls) -> bool:
        """Whether the training mean may be subtracted from ratings; else thresholds or biases have its place."""
        return not (cls.has_levels or cls.of_counts)

    @staticmethod
    def bias_mean(mean: float) -> float:
        """Prior mean of a bias, where the mean of the training ratings is not subtracted but there to be explained."""
        return 0.0

    # ------------------------------------------------------------------ of training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:  # noqa: B027 (most have none)
        """Set what rows bring as it is before the first iteration."""

    def settle(self, block: ParameterBlock) -> None:  # noqa: B027 (likewise)
        """Set the fields of a block that follow from others, and from `replicated`, which were set from outside."""

    def reset_errors(self, blocks: Iterable[ParameterBlock]) -> None:  # noqa: B027 (likewise)
        """Begin to gather the squared errors of a new sweep."""

    def all_data_seen(self, circulation: Circulation, stream: Stream) -> None:  # noqa: B027 (likewise)
        """Draw or move `replicated`, once a sweep, from what `add_gradient` has gathered in it. Collective."""

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """What is gathered over a sweep at these row blocks, for a checkpoint."""
        yield from ()

    @abstractmethod
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
            Sum of the squared scores; of no meaning where there is no noise.
        """

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 where all have the same noise.

        A rating counts tau g_i g'_j in the information of its predictor, also where there is no noise.
        """
        return np.ones(len(block.counts), np.float32)

    def keep_errors(self, block: ParameterBlock, errors: Float64) -> None:  # noqa: B027 (most have no use for them)
        """Take the squared errors of a block's rows: (n,), sums over their ratings times the other factor's g."""

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """Sums over every row's ratings of how much each counts in the information, and of the squares. Collective.

        Where each counts 1, both are the number of ratings, (n,) float32.
        """
        n = {block: block.counts.astype(block.dtype) for block in circulation.blocks()}
        return n, n

    @staticmethod
    def weighted_counts(circulation: Circulation, power: int = 1) -> tuple[Counts, Counts]:
        """The same where each counts w_ij, the product of the rows' ``weight`` to a power. Collective."""
        blocks = list(circulation.blocks())
        for block in blocks:
            block.arrays["sums"] = np.zeros((len(block.counts), 2), np.float32)
        for cell in circulation.tour(("weight", "sums"), returning=("sums",)):
            ratings, row, column = cell.ratings, cell.row, cell.column
            scales = (row.row("weight") ** power, column.row("weight") ** power)
            weigh_kernel()(ratings.indptr, ratings.indices, *scales, row["sums"], column["sums"])
        sums = {block: block.arrays.pop("sums") for block in blocks}
        total, squares = ({block: np.ascontiguousarray(both[:, k]) for block, both in sums.items()} for k in (0, 1))
        return total, squares

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

    @classmethod
    def log_likelihood_of_predictors(
        cls, x: Float64, eta: Float64, scale: Float64, thresholds: Array | None
    ) -> Float64:
        """Log density of ratings given their predictors, (n,) float64, where it is not Gaussian, but concave.

        Parameters
        ----------
        x : (n,) float64
            Ratings; where they are of levels, the numbers of these.
        eta : (n,) float64
        scale : (n,) float64
            Products of the scales of rows and columns; 1 where they have none.
        thresholds : (R - 1,) or (n, R - 1) float, or None
            Between levels, of all ratings or of each.
        """
        needed = f"{cls.__name__}.log_likelihood_of_predictors"
        raise InputError(f"a fold-in needs {needed}: sample again with the new ratings")

    @classmethod
    def is_conditionally_gaussian(cls) -> bool:
        """Whether rows have normal laws given the other factor: those that give `statistics` do."""
        return cls.statistics is not Law.statistics

    # ------------------------------------------------------------------ of new ratings

    @property
    def noise_varies(self) -> bool:
        """Whether ratings differ in the variance of their noise; else one serves all."""
        return True


class Likelihood(Law):
    """Law of a rating whose predictive distributions are known by their mean and variance; see `Law`."""

    #: d log density / d eta at noise precision 1, in the language of formulas, of x and eta.
    score: ClassVar[str]

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """See `Law.add_gradient`."""
        ratings, row, column = cell.ratings, cell.row, cell.column
        kernel = gradient_kernel(self.rank, self.biases, score=self.score)
        arrays = (row[position], column[position], row[out], column[out])
        return float(kernel(ratings.indptr, ratings.indices, ratings.values, *arrays, np.float32(scale)))

    # ------------------------------------------------------------------ of new ratings

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

    @classmethod
    def below(cls, bound: Array, mean: Array, variance: Array) -> Float64:
        """Probability of a rating below `bound`."""
        return cls.cdf(bound, mean, variance)

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
