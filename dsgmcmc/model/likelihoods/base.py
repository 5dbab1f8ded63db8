"""The contract of likelihoods: the law (distribution) of a rating x given its predictor eta = a_i + b_j + W_i . H_j.

A likelihood is one file. It gives the derivative of the log density with respect to eta as a formula, with which the
kernels are compiled. Its other methods serve held-out ratings, predictions, calibration and synthetic ratings. If the
configuration says so, the training mean is subtracted from ratings and predictors.

`Law` is the interface of all likelihoods, to the chain and to everything else: which settings and ratings they take,
and what they predict. A `Likelihood` is a law that its mean and variance determine. A law of ordered levels has
probabilities of levels instead (`dsgmcmc.model.likelihoods.ordinal`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import Score, formula_score
from dsgmcmc.kernels.gradient import gradient_kernel, weigh_kernel
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.parts.base import FeatureSizes, Part, Place, chosen_factors
from dsgmcmc.model.parts.noise import heteroscedastic_factors
from dsgmcmc.model.predictive.base import Predictive, PredictorDraws
from dsgmcmc.model.predictive.mixture import Mixture
from dsgmcmc.model.predictive.scores import Scores
from dsgmcmc.model.quantity import Quantity
from dsgmcmc.settings import named
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings

Counts = dict[ParameterBlock, Array]

#: Width of the priors of predictors that are in the unit of a link.
LINK_WIDTH = 4.0


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


class State(NamedTuple):
    """What a law says of some ratings at one state of the chain.

    Attributes
    ----------
    mean : (q,) float32
    variance : (q,) float32, or float
        Of the ratings about their means; one number if it is the same for all.
    probability : (q, R) float32
        Of the levels; R is `Law.n_levels`.
    """

    mean: Float32
    variance: Float32 | float
    probability: Float32


class NoSettings(BaseModel):
    """No settings."""


class Law(Part):
    """Law of a rating, as a chain sees it.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    factors : tuple of Factor
        Those whose rows have noise of their own.
    levels : Levels, optional
        What ratings can be, where they have levels.
    background : float, optional
        Weight a0 of the squared predictors of all cells, where these count.
    own_thresholds : Factor, optional
        Whose rows have thresholds of their own, where ratings are of levels.
    """

    #: Quantities of rows that noise of its own needs, `WEIGHT` among them.
    noise_quantities: ClassVar[tuple[Quantity, ...]] = ()
    #: Whether there is noise, whose precision tau is sampled.
    has_noise: ClassVar[bool] = True
    #: If the training mean is never subtracted from ratings: the parameters that take its place.
    in_place_of_mean: ClassVar[str | None] = None
    #: Settings that only this law has.
    Settings: ClassVar[type[BaseModel]] = NoSettings
    #: Width of the priors of predictors, in the unit of the link.
    width: ClassVar[float] = 1.0
    #: Whether the energy's curvature in the predictor is unbounded, so that kicks are clipped.
    clips_kicks: ClassVar[bool] = False
    #: Levels that ratings have, whose probabilities are kept of held-out ratings.
    n_levels: int = 0
    #: Default settings of a run with this likelihood, where they differ from the general ones.
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        rank: int,
        biases: bool,
        factors: tuple[Factor, ...] = (),
        levels: Levels | None = None,
        background: float | None = None,
        own_thresholds: Factor | None = None,
    ) -> None:
        self.background, self.own_thresholds = background, own_thresholds
        self.rank, self.biases, self.factors, self.heteroscedastic = rank, biases, factors, bool(factors)
        self.quantities = self.quantities_with(factors, own_thresholds)
        of_rows = [quantity for quantity in self.quantities if quantity.of_rows]
        #: Names of a row's quantities besides theta, and of those among them that belong to a draw.
        self.fields = tuple(quantity.name for quantity in of_rows)
        self.drawn = tuple(quantity.name for quantity in of_rows if quantity.drawn)
        self._set_up(levels)

    def _set_up(self, levels: Levels | None) -> None:
        """Make what else the law needs, given the levels of the ratings where they have some."""

    @classmethod
    def quantities_with(cls, factors: tuple[Factor, ...], own_thresholds: Factor | None = None) -> tuple[Quantity, ...]:
        """The quantities that it keeps, if rows of these factors have noise, or thresholds, of their own."""
        return cls.noise_quantities if factors else ()

    @classmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """See `Part.quantities_of`."""
        own = chosen_factors(config.thresholds, transposed)
        return cls.quantities_with(heteroscedastic_factors(config.noise, transposed), *own)

    @classmethod
    def of(cls, place: Place, data: Levels | None) -> Self:
        """See `Part.of`."""
        config, transposed = place.config, place.transposed
        factors = heteroscedastic_factors(config.noise, transposed)
        own = chosen_factors(config.thresholds, transposed)
        return cls(config.rank, config.biases, factors, data, config.zero_weight, *own)

    @classmethod
    def is_centred(cls) -> bool:
        """Whether the training mean may be subtracted from ratings."""
        return cls.in_place_of_mean is None

    @staticmethod
    def bias_mean(mean: float) -> float:
        """Prior mean of a bias, if the biases have to account for the training mean because it is not subtracted."""
        return 0.0

    # ------------------------------------------------------------------ of settings, and of files of ratings

    @classmethod
    def check(cls, config: Any) -> None:
        """See `Part.check`."""
        cls._check_scale(config)
        if not cls.noise_quantities and config.noise != "shared":
            raise InputError(f"the {config.likelihood} likelihood has no noise: leave out noise")
        if config.thresholds != "shared" and "thresholds" not in cls.Settings.model_fields:
            raise InputError(f"the {config.likelihood} likelihood has no thresholds: leave out thresholds")
        if not (cls.is_centred() or config.center):
            raise InputError(
                f"the {cls.in_place_of_mean} of {config.likelihood} take the mean's place: leave out "
                f"{named('no_center')}"
            )

    @classmethod
    def _check_scale(cls, config: Any) -> None:
        """Refuse a weight of zeros, and a precision and a unit where there is no noise."""
        if config.zero_weight is not None:
            raise InputError(
                f"zero_weight is of clicks, and the {config.likelihood} likelihood has no zeros that count: leave it "
                f"out, or choose {named('likelihood')} all-cells"
            )
        if not cls.has_noise and (config.noise_precision, config.standardise) != (1.0, False):
            raise InputError(
                f"the {config.likelihood} likelihood has no noise: leave out noise_precision and standardise"
            )

    @classmethod
    def check_new(cls, values: Array) -> None:
        """Refuse new ratings that cannot come from this law; raises InputError."""

    @classmethod
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Say what may be wrong with this law for the values of a file of ratings, though it is no error."""
        if ratings.minimum == ratings.maximum:
            yield (
                f"all ratings are {ratings.minimum:g}, so their values say nothing: where it counts who has one, try "
                "--likelihood all-cells"
            )

    @classmethod
    def levels_of(cls, ratings: Ratings) -> Float64 | None:
        """Levels of the training ratings, (R,) float64, where this law has thresholds between them."""
        return None

    @classmethod
    def has_proper_priors(cls, n_data: int) -> bool:
        """Whether `n_data` training ratings are too few for the published priors, whatever the settings say."""
        return False

    @classmethod
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this law encodes them: for levels, the number of the nearest level; for clicks, 1."""
        return values

    # ------------------------------------------------------------------ what it is

    @classmethod
    def is_conditionally_gaussian(cls) -> bool:
        """Whether rows are normal given the other factor: true for laws that override `statistics`."""
        return cls.statistics is not Law.statistics

    @classmethod
    def has_parameters(cls) -> bool:
        """Whether it has parameters of its own that are drawn or moved: true for laws that override `draw`."""
        return cls.draw is not Law.draw

    @classmethod
    def has_score(cls) -> bool:
        """Whether scores of single ratings are known, as effects of groups need them: true with `score_terms`."""
        return cls.score_terms is not Law.score_terms

    @classmethod
    def is_sum_over_ratings(cls) -> bool:
        """Whether its energy is a sum over the ratings, so that it can be estimated from some of them."""
        return True

    @classmethod
    def can_be_evaluated(cls) -> bool:
        """Whether predictions can be compared with ratings; else they are scores, of which only the order matters."""
        return True

    @classmethod
    def is_linear(cls) -> bool:
        """Whether the expected rating is the predictor."""
        return False

    # ------------------------------------------------------------------ of training ratings

    def refresh_derived_fields(self, block: ParameterBlock) -> None:
        """Recompute fields of a block that depend on others or on `replicated`, after these were set from outside."""

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
            Weight of the squared scores in the sums that each row keeps; 0 if they are not to be added.

        Returns
        -------
        float
            Sum of the squared scores; of no meaning where there is no noise.
        """

    @property
    def score_source(self) -> Score:
        """The score of a rating at noise precision 1, as effects of groups need it where rows are not Gaussian."""
        raise NotImplementedError

    def score_terms(self, cell: RatingsCell) -> Float32:
        """What the score of each training rating of a cell is of besides its predictor, (m, nnz) float32.

        The cell's column has the fields in `drawn`, and no others.
        """
        raise NotImplementedError

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 where all have the same noise.

        A rating counts tau g_i g'_j in the information of its predictor, also where there is no noise.
        """
        return np.ones(len(block.counts), np.float32)

    def keep_errors(self, block: ParameterBlock, errors: Float64) -> None:
        """Take the squared errors of a block's rows: (n,), sums over their ratings times the other factor's g."""

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """For every row, sums over its ratings of their weights in the information, and of the squares. Collective.

        If all weights are 1, both are the number of ratings, (n,) float32.
        """
        n = {block: block.counts.astype(block.dtype) for block in circulation.blocks()}
        return n, n

    @staticmethod
    def weighted_counts(circulation: Circulation, power: int = 1) -> tuple[Counts, Counts]:
        """The same with weights w_ij, the product of both rows' ``weight``, raised to a power. Collective."""
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
        """Sufficient statistics of a row's ratings given the other factor; None if the row is not Gaussian then.

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
        """Log density of ratings given their predictors, (n,) float64, for laws that are log-concave but not Gaussian.

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

    # ------------------------------------------------------------------ of new ratings

    @property
    def noise_varies(self) -> bool:
        """Whether the noise variance differs between ratings; else all have the same."""
        return True

    @abstractmethod
    def state(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> State:
        """The law of ratings at one state, given their predictors, for (q,) local rows and columns of a cell."""

    @abstractmethod
    def log_likelihood(self, x: Float32, found: State) -> float:
        """Sum of the log densities of ratings at a state; the variance may be one for all, (1,)."""

    @classmethod
    @abstractmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Predictive distributions of ratings, over draws of their predictors.

        Parameters
        ----------
        draws : PredictorDraws
        centre : float
            What was subtracted from the ratings.
        levels : (R,) float64, optional
            What ratings can be, where that is known.
        """

    @classmethod
    @abstractmethod
    def expectation(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posteriors of expected ratings; parameters as of `predictive`."""

    @classmethod
    @abstractmethod
    def predictive_of_moments(
        cls, mean: Float64, variance: Float64, probability: Float64 | None = None, levels: Float64 | None = None
    ) -> Predictive:
        """Predictive distributions from their moments, (q,), and, for levels, their probabilities, (q, R)."""


class Likelihood(Law):
    """Law of a rating that is determined by its mean and variance; see `Law`."""

    #: d log density / d eta at noise precision 1, in the language of formulas, of x and eta.
    score: ClassVar[str]
    #: Class of the predictive distributions, which are mixtures over draws.
    mixture: ClassVar[type[Mixture]] = Mixture

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """See `Law.add_gradient`."""
        ratings, row, column = cell.ratings, cell.row, cell.column
        kernel = gradient_kernel(self.rank, self.biases, score=self.score, offset=ratings.offsets is not None)
        arrays = (row[position], column[position], row[out], column[out])
        return float(kernel(*ratings.arrays, *arrays, np.float32(scale)))

    @classmethod
    def has_score(cls) -> bool:
        """See `Law.has_score`: a gradient of its own is of more than the formula."""
        own = cls.score_terms is not Likelihood.score_terms
        return own or cls.add_gradient is Likelihood.add_gradient

    @property
    def score_source(self) -> Score:
        """See `Law.score_source`."""
        return formula_score(self.score)

    def score_terms(self, cell: RatingsCell) -> Float32:
        """See `Law.score_terms`: the rating."""
        return cell.ratings.values[None]

    # ------------------------------------------------------------------ of new ratings

    @staticmethod
    @abstractmethod
    def mean(eta: Array) -> Array:
        """Expected rating given its predictor, elementwise."""

    @staticmethod
    @abstractmethod
    def variance(eta: Array, noise: Array | float) -> Array | float:
        """Variance of a rating given its predictor and the variance of its noise, 1 / (tau g g'), elementwise."""

    @staticmethod
    @abstractmethod
    def log_density(x: Array, mean: Array, variance: Array) -> Array:
        """Log density of ratings with these means and variances, in nats, elementwise."""

    @staticmethod
    @abstractmethod
    def cdf(x: Array, mean: Array, variance: Array) -> Float64:
        """Probability of a rating of at most `x`, elementwise."""

    def state(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> State:
        """See `Law.state`."""
        variance = self.variance(eta, self.noise(cell, rows, columns, tau))
        return State(self.mean(eta), variance, np.zeros((len(eta), 0), np.float32))

    def noise(self, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> Float32 | float:
        """Variance of the noise of ratings of local rows and columns, (q,); one number where it serves all."""
        return 1 / tau

    def log_likelihood(self, x: Float32, found: State) -> float:
        """See `Law.log_likelihood`."""
        return float(self.log_density(x, found.mean, np.asarray(found.variance)).sum(dtype=np.float64))

    @classmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """See `Law.predictive`."""
        shares, nodes = zip(*draws.over_effects(), strict=True)
        eta, noise = (np.concatenate([getattr(some, name) for some in nodes], axis=1) for name in ("eta", "noise"))
        weights = np.concatenate([share * some.weights for share, some in zip(shares, nodes, strict=True)])
        eta = eta.astype(np.float64)
        return cls.mixture(cls, cls.mean(eta), np.asarray(cls.variance(eta, noise)), weights, centre, levels)

    @classmethod
    def expectation(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """See `Law.expectation`."""
        nodes, draws = draws.over_effects(), draws.known()
        mean = sum((np.float32(share) * cls.mean(some.eta) for share, some in nodes), np.zeros_like(draws.eta))
        return Scores(mean, draws.spread, draws.weights, centre)

    @classmethod
    def predictive_of_moments(
        cls, mean: Float64, variance: Float64, probability: Float64 | None = None, levels: Float64 | None = None
    ) -> Predictive:
        """See `Law.predictive_of_moments`."""
        mean, variance = (np.asarray(each, np.float64)[:, None] for each in (mean, variance))
        return cls.mixture(cls, mean, variance, np.ones(1), levels=levels)
