"""The contract of likelihoods: the law (distribution) of a rating x given its predictor eta = a_i + b_j + W_i . H_j.

A likelihood is one file. It states the *score*, the derivative of the log density with respect to eta, as a formula
that is compiled into the kernels. Its other methods serve held-out ratings, predictions, calibration and synthetic
ratings. If the configuration says so, the training mean is subtracted from ratings and predictors.

`Law` is the interface of all likelihoods, to the chain and to everything else: which settings and ratings they take,
and what they predict. A `Likelihood` is a law that its mean and variance determine; derive from it unless yours is
not of that kind. A law of ordered levels has probabilities of levels instead (`dsgmcmc.model.likelihoods.ordinal`).

A *link* is the transformation between eta and the expected rating or the levels' probabilities (log, logit). *Rows*
are the rows of W and H: users and items.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, log, log1p, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.data.ratings.format import row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import Score, formula_score
from dsgmcmc.kernels.gradient import gradient_kernel, weigh_kernel
from dsgmcmc.model.blocks import SLAB
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.parts.base import FeatureSizes, Intercept, Part, Place, chosen_factors
from dsgmcmc.model.parts.noise import heteroscedastic_factors
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws
from dsgmcmc.model.predictive.mixture import LawOfMoments, Mixture, Scores
from dsgmcmc.model.quantity import WEIGHT, Quantity
from dsgmcmc.settings import named
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.model.parts.noise import NoiseParameters

Counts = dict[ParameterBlock, Array]

#: Metropolis steps of one draw.
METROPOLIS_STEPS = 64
#: `Law.width` of laws whose predictors are on the scale of a link.
LINK_WIDTH = 4.0


class Levels(NamedTuple):
    """The different values of ratings, if there are few.

    Attributes
    ----------
    values : (R,) float64
        In ascending order.
    counts : (R,) int64
        Number of training ratings with each value.
    """

    values: Float64
    counts: Int64

    @classmethod
    def of(cls, ratings: Ratings) -> Self:
        """All different training ratings of an open file, however many; reads all of them."""
        values, counts = np.zeros(0), np.zeros(0, np.int64)
        for start, stop in row_slabs(ratings.row_indptr, SLAB):
            read, times_read = np.unique(ratings.slab("train", start, stop)[2].astype(np.float64), return_counts=True)
            values, place = np.unique(np.concatenate([values, read]), return_inverse=True)
            counts = np.bincount(place, np.concatenate([counts, times_read]), len(values)).astype(np.int64)
        return cls(values, counts)


def times(counts: tuple[Counts, Counts], weight: np.float32) -> tuple[Counts, Counts]:
    """Weigh all ratings alike: sums of their weights times `weight`, and of the squares times its square."""
    n, squares = counts
    return {b: weight * sums for b, sums in n.items()}, {b: weight**2 * sums for b, sums in squares.items()}


def metropolis(
    log_density: Callable[[Float64], float], start: Sequence[float], n: float, rng: np.random.Generator
) -> Float64:
    """Draw parameters of a law given n ratings, by `METROPOLIS_STEPS` Metropolis steps from where they are.

    The sizes of the steps vary from below 1 / sqrt(n) to a hundred times as much.
    """
    here = np.array(start)
    density, least, most = log_density(here), log(0.3 / sqrt(n)), log(100 / sqrt(n))
    normals, uniform = rng.standard_normal((METROPOLIS_STEPS, len(here))), rng.random((METROPOLIS_STEPS, 2)).tolist()
    for normal, (size, chance) in zip(normals, uniform, strict=True):
        new = here + exp(least + size * (most - least)) * normal
        there = log_density(new)
        if log1p(-chance) < there - density:
            here, density = new, there
    return here


class State(NamedTuple):
    """Distributions of q ratings given one state of the chain.

    Attributes
    ----------
    mean : (q,) float32
    variance : (q,) float32, or float
        Variances of the ratings, noise included; one number if it is the same for all.
    probability : (q, R) float32
        Probabilities of the levels; R is `Law.n_levels`.
    """

    mean: Float32
    variance: Float32 | float
    probability: Float32


class NoSettings(BaseModel):
    """No settings."""


class Law(Part):
    """Law (distribution) of a rating given its predictor, and what it predicts.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    factors : tuple of Factor
        Factors whose rows have noise scales of their own.
    levels : Levels, optional
        Possible ratings, if they are ordered levels.
    background : float, optional
        Weight a0 of the squared predictors of all pairs of a user and an item, if the unrated ones count, too.
    own_thresholds : Factor, optional
        Factor whose rows have thresholds of their own, if ratings are ordered levels.
    """

    #: Quantities of rows that are needed if rows have noise scales of their own, `WEIGHT` among them.
    noise_quantities: ClassVar[tuple[Quantity, ...]] = ()
    #: Whether there is noise, whose precision tau is sampled. Without, there is no unit of the ratings, and priors are
    #: always the proper ones.
    has_noise: ClassVar[bool] = True
    #: Whether minus the log likelihood is a sum over the ratings, so that a minibatch of them can estimate it.
    is_sum_over_ratings: ClassVar[bool] = True
    #: Whether predictions can be compared with ratings; else they are scores, of which only the order matters.
    can_be_evaluated: ClassVar[bool] = True
    #: Whether the expected rating is the predictor.
    is_linear: ClassVar[bool] = False
    #: The parameters that take the place of the training mean, if it is never subtracted from ratings; else None.
    in_place_of_mean: ClassVar[str | None] = None
    #: Settings that only this law has.
    Settings: ClassVar[type[BaseModel]] = NoSettings
    #: How much wider the priors of factors and biases are than with Gaussian ratings of sd 1.
    width: ClassVar[float] = 1.0
    #: Bound of a row's |log s|, where scales are not drawn from their conditional distribution.
    scale_bound: ClassVar[float] = 2.0
    #: Whether it draws the precision tau itself, in its own `draw_shared`.
    draws_precision: ClassVar[bool] = False
    #: Parameters of the noise that chains have; the model sets them.
    noise_parameters: NoiseParameters
    #: Number of levels, whose probabilities are recorded for held-out ratings; 0 if there are none.
    n_levels: int = 0
    #: Names of the parameters in `shape`, which the score may contain, and their values before they are drawn.
    starts: ClassVar[Mapping[str, float]] = {}
    #: Default settings of a run with this likelihood, where they differ from the general ones.
    defaults: ClassVar[dict[str, Any]] = {}
    #: Fields of rows that gather sums over a sweep, where rows have them.
    swept_fields: ClassVar[tuple[str, ...]] = ()
    #: Name in checkpoints, and shape, of sums over a sweep that are kept for every row block; empty if there are none.
    sums_name: str = ""
    sums_shape: tuple[int, ...] = ()

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
        #: Names of a row's quantities besides theta; `drawn` has those among them that belong to a draw.
        self.fields = tuple(quantity.name for quantity in of_rows)
        self.drawn = tuple(quantity.name for quantity in of_rows if quantity.drawn)
        self._sums: dict[int, Float64] = {}
        self._set_up(levels)
        self.start(())

    def momenta_of(self, factor: Factor) -> Mapping[str, str]:
        """Fields of a factor's rows with momenta of the law's own parameters, N(0, 1) each, by their names."""
        return {}

    @property
    def intercept(self) -> Intercept | None:
        """Intercept, or None; moving it and all biases of a factor by the same amount changes no probability."""
        return None

    def move_intercept(self, blocks: Iterable[ParameterBlock], step: float) -> None:
        """Move the intercept by `step`, and update the fields of blocks that depend on it."""

    def _set_up(self, levels: Levels | None) -> None:
        """Set up what else the law needs; called by `__init__`, with the levels of the ratings if they have some."""

    @classmethod
    def quantities_with(cls, factors: tuple[Factor, ...], own_thresholds: Factor | None = None) -> tuple[Quantity, ...]:
        """The quantities that it keeps, if rows of these factors have noise scales, or thresholds, of their own."""
        return cls.noise_quantities if factors else ()

    @classmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """The part's quantities; none if the run does not use the part."""
        cut_by = chosen_factors(config.thresholds, transposed)
        return cls.quantities_with(heteroscedastic_factors(config.noise, transposed), *cut_by)

    @classmethod
    def of(cls, place: Place, data: Levels | None) -> Self:
        """Make a chain's instance of the part; None if the run does not use the part. Collective."""
        config, transposed = place.config, place.transposed
        factors = heteroscedastic_factors(config.noise, transposed)
        cut_by = chosen_factors(config.thresholds, transposed)
        return cls(config.rank, config.biases, factors, data, config.zero_weight, *cut_by)

    @staticmethod
    def bias_mean(mean: float) -> float:
        """Prior mean of a bias, if the biases have to account for the training mean because it is not subtracted."""
        return 0.0

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse settings of a run (`dsgmcmc.config.run.ResolvedConfig`) that the part cannot be combined with."""
        cls._check_scale(config)
        if not cls.noise_quantities and config.noise != "shared":
            raise InputError(f"the {config.likelihood} likelihood has no noise: leave out noise")
        if config.thresholds != "shared" and "thresholds" not in cls.Settings.model_fields:
            raise InputError(f"the {config.likelihood} likelihood has no thresholds: leave out thresholds")
        if not (cls.in_place_of_mean is None or config.center):
            raise InputError(f"{config.likelihood} has {cls.in_place_of_mean} instead of a mean: leave out center")

    @classmethod
    def _check_scale(cls, config: Any) -> None:
        """Refuse a weight of zeros, and a precision and a unit where there is no noise."""
        if config.zero_weight is not None:
            raise InputError(
                f"zero_weight is for clicks, not for the {config.likelihood} likelihood: leave it out, or choose "
                f"{named('likelihood')} all-cells"
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
        """Yield warnings, which are no errors, if this law may not suit the values in a ratings file."""
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
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this law encodes them: for levels, the index of the nearest level; for clicks, 1."""
        return values

    # ------------------------------------------------------------------ what it is

    @classmethod
    def is_conditionally_gaussian(cls) -> bool:
        """Whether a row is normal given the other factor and the ratings: true for laws that override `statistics`."""
        return cls.statistics is not Law.statistics

    @classmethod
    def has_parameters(cls) -> bool:
        """Whether it has parameters of its own: true for laws that override `draw` or `draw_shared`."""
        return cls.draw is not Law.draw or cls.draw_shared is not Law.draw_shared

    @classmethod
    def has_score(cls) -> bool:
        """Whether scores of single ratings are defined, for effects of groups: true for laws with `score_terms`."""
        return cls.score_terms is not Law.score_terms

    @property
    def shape(self) -> tuple[float, ...]:
        """The current values of the law's parameters that `shape_of` reads from draws."""
        shared = {quantity.name: value for sampled in self.replicated for quantity, value in sampled.drawn()}
        values = self.shape_of(shared)
        return () if values is None else tuple(values.tolist())

    @classmethod
    def shape_of(cls, shared: Mapping[str, Float64]) -> Float64 | None:
        """Parameters of the law that predictions need besides mean and variance, (m,), of a draw; None if none.

        Parameters
        ----------
        shared : dict of str to float64 array
            Quantities of the draw that all rows share (`SavedDraw.shared`).
        """
        return None

    # ------------------------------------------------------------------ the state of a chain

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: scales of rows are 1, and their other fields 0.
        """
        for block in blocks:
            for name in self.fields:
                block[name].fill(1.0 if name == WEIGHT.name else 0.0)
            self.refresh_derived_fields(block)

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Prepare for an iteration; `first` says whether it is the first of a sweep. Collective.

        Here: sums over gradients are those of one sweep.
        """
        if not first:
            return
        for sums in self._sums.values():
            sums[:] = 0.0
        names = [name for name in self.swept_fields if name in self.fields]
        for block in blocks if names else ():
            for name in names:
                block[name].fill(0.0)

    def sums_of(self, row_block: int) -> Float64:
        """Sums over the sweep of a row block, of the shape `sums_shape`, to which gradients add."""
        return self._sums.setdefault(row_block, np.zeros(self.sums_shape))

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """Yield the sums over the sweep of these row blocks, to be saved in a checkpoint."""
        for b in row_blocks if self.sums_name else ():
            yield Key("state", "W", b, self.sums_name), self.sums_of(b)

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
            Field at which the gradient is computed, and field that it is added to.
        scale : float
            tau / p_t, with p_t the probability of this part of the data; 1 if the gradient is over all data, which is
            multiplied by tau later.
        share : float
            Weight of the squared scores in the sums that each row keeps for drawing its noise scale; 0 if they are not
            to be added.

        Returns
        -------
        float
            Sum of the squared scores, from which tau is drawn; not used where there is no noise.
        """

    @property
    def score_source(self) -> Score:
        """Source code of a rating's score at noise precision 1; effects of groups use it if rows are not Gaussian."""
        raise InputError(f"effects of groups need {type(self).__name__}.score_source: leave them out")

    def score_terms(self, cell: RatingsCell) -> Float32:
        """The m arguments of `score_source` other than eta, for each training rating of a cell, (m, nnz) float32.

        The cell's column block has only the fields in `drawn`.
        """
        raise InputError(f"effects of groups need {type(self).__name__}.score_terms: leave them out")

    def row_scale(self, block: ParameterBlock) -> Float32:
        """Field ``weight`` of a block's rows, (n,) float32; 1 where rows have no scales of their own."""
        return block.row(WEIGHT.name) if self.heteroscedastic else np.ones(len(block.counts), np.float32)

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all have the same noise.

        The information that a rating has about its predictor is taken as tau g_i g'_j, also by laws without noise.
        """
        return self.row_scale(block)

    def keep_errors(self, block: ParameterBlock, errors: Float64) -> None:
        """Keep sums of squared errors over each row's ratings, (n,), weighted by the other factor's g."""

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """For every row, sums over its ratings of their weights in its information, and of the squares. Collective.

        Here: a rating's weight is g_i g'_j. If all weights are 1, both are the number of ratings, (n,) float32.
        """
        if self.heteroscedastic:
            return self.weighted_counts(circulation)
        n = {block: block.n_data for block in circulation.blocks()}
        return n, n

    @staticmethod
    def weighted_counts(circulation: Circulation, power: int = 1) -> tuple[Counts, Counts]:
        """Like `counts`, where a rating weighs the product of both rows' ``weight``, to this power. Collective."""
        blocks = list(circulation.blocks())
        for block in blocks:
            block.arrays["sums"] = np.zeros((len(block.counts), 2), np.float32)
        for cell in circulation.tour(("weight", "sums"), returning=("sums",)):
            ratings, row, column = cell.ratings, cell.row, cell.column
            scales = (row.row("weight") ** power, column.row("weight") ** power)
            weigh_kernel()(*ratings.pattern, *scales, row["sums"], column["sums"])
        sums = {block: block.arrays.pop("sums") for block in blocks}
        total, squares = ({block: np.ascontiguousarray(both[:, k]) for block, both in sums.items()} for k in (0, 1))
        return total, squares

    @staticmethod
    def statistics(features: Float64, x: Float64, precision: Float64) -> tuple[Float64, Float64] | None:
        """Sufficient statistics of a row's ratings given the other factor; None if the row is not Gaussian then.

        Parameters
        ----------
        features : (n, D) float64
            Covariates of the row's n ratings, which multiply the row in their predictors: phi_j = (H_j, 1).
        x : (n,) float64
            Ratings, less all other terms of their predictors.
        precision : (n,) float64
            Precisions of the ratings' noise.

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
            Ratings; for ordered levels, the indices of these.
        eta : (n,) float64
            Predictors.
        scale : (n,) float64
            Products of the scales of rows and columns, 1 where they have none, and of the precision of the noise.
        thresholds : (R - 1,) or (n, R - 1) float, or None
            Thresholds between levels, the same for all ratings or one row for each. Of laws without levels, their
            `shape_of` the draw.
        """
        needed = f"{cls.__name__}.log_likelihood_of_predictors"
        raise InputError(f"a fold-in needs {needed}: sample again with the new ratings")

    # ------------------------------------------------------------------ of all pairs, rated or not

    def add_gradient_of_all(self, circulation: Circulation, position: str, out: str) -> None:
        """Add the gradient of what all pairs add to the energy, at noise precision 1, to `out` of all blocks.

        Here: nothing. Collective.
        """

    def curvature_of_all(self, shape: tuple[int, int]) -> float:
        """Bound on what all pairs add to a row's curvature, in units of the mean square of the covariates."""
        return 0.0

    def gram_of_all(self, circulation: Circulation, position: str, factor: Factor) -> Float32 | None:
        """Precision (D, D), at noise precision 1, that all pairs give a factor's rows; None if none. Collective."""
        return None

    def common_precision(
        self, circulation: Circulation, position: str, prior: dict[Factor, Float64], tau: float
    ) -> tuple[dict[Factor, Float64], dict[Factor, float]]:
        """Precision that all rows of a factor have in common. Collective.

        Parameters
        ----------
        circulation : Circulation
            The blocks of both factors.
        position : str
            Field that holds the state.
        prior : dict of Factor to (D,) or (D, D) float64
            Precision of the prior.
        tau : float
            Precision of the noise.

        Returns
        -------
        precision : dict of Factor to (D,) or (D, D) float64
        curvature : dict of Factor to float
            Largest curvature in the metric of its own diagonal, at least 1.
        """
        return prior, dict.fromkeys(prior, 1.0)

    # ------------------------------------------------------------------ of new ratings

    @property
    def noise_varies(self) -> bool:
        """Whether the noise variance differs between ratings; else all have the same."""
        return True

    @abstractmethod
    def state(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> State:
        """Distributions of q ratings at one state, given their predictors and their rows and columns in the cell."""

    @abstractmethod
    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions; the variance may be one for all, (1,)."""

    @classmethod
    @abstractmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors.

        Parameters
        ----------
        draws : PredictorDraws
        centre : float
            What was subtracted from the ratings, to be added again.
        levels : (R,) float64, optional
            Possible ratings, if known.
        """

    @classmethod
    @abstractmethod
    def expectation(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior distributions of the expected ratings, without noise; parameters as for `predictive`."""

    @classmethod
    @abstractmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Predictive distributions from moments over draws."""


class Likelihood(Law):
    """Law of a rating that is determined by its mean and variance."""

    #: d log density / d eta at noise precision 1: a formula in x and eta (`dsgmcmc.kernels.formula`).
    score: ClassVar[str]
    #: Class of the predictive distributions, which are mixtures over draws.
    mixture: ClassVar[type[Mixture]] = Mixture

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks."""
        ratings, row, column = cell.ratings, cell.row, cell.column
        kernel = gradient_kernel(self.rank, self.biases, score=self.score, offset=ratings.offsets is not None)
        arrays = (row[position], column[position], row[out], column[out])
        return float(kernel(*ratings.arrays, *arrays, np.float32(scale)))

    @classmethod
    def has_score(cls) -> bool:
        """Whether scores of single ratings are defined, for effects of groups: true for laws with `score_terms`.

        Here: an overridden gradient may differ from the formula, and needs `score_terms`.
        """
        has_terms = cls.score_terms is not Likelihood.score_terms
        return has_terms or cls.add_gradient is Likelihood.add_gradient

    @property
    def score_source(self) -> Score:
        """Source code of a rating's score at noise precision 1; effects of groups use it if rows are not Gaussian."""
        return formula_score(self.score)

    def score_terms(self, cell: RatingsCell) -> Float32:
        """The m arguments of `score_source` other than eta, for each training rating of a cell, (m, nnz) float32.

        Here: the rating.
        """
        return cell.ratings.values[None]

    # ------------------------------------------------------------------ of new ratings

    @staticmethod
    @abstractmethod
    def mean(eta: Array, *shape: Array | float) -> Array:
        """Expected rating given its predictor, elementwise."""

    @staticmethod
    @abstractmethod
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        """Variance of a rating given its predictor and the variance of its noise, 1 / (tau g g'), elementwise."""

    @staticmethod
    @abstractmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings with these means and variances, in nats, elementwise."""

    @staticmethod
    @abstractmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability of a rating of at most `x`, elementwise."""

    def state(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> State:
        """Distributions of q ratings at one state, given their predictors and their rows and columns in the cell."""
        variance = self.variance(eta, self.noise(cell, rows, columns, tau), *self.shape)
        return State(self.mean(eta, *self.shape), variance, np.zeros((len(eta), 0), np.float32))

    def noise(self, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> Float32 | float:
        """Noise variance of q ratings, given their rows and columns in the cell; one number if all have the same."""
        if not self.heteroscedastic:
            return 1 / tau
        precision = np.float32(tau) * cell.row.row(WEIGHT.name)[rows] * cell.column.row(WEIGHT.name)[columns]
        return np.reciprocal(precision, dtype=np.float32)

    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions; the variance may be one for all, (1,)."""
        logs = self.log_density(x, state.mean, np.asarray(state.variance), *self.shape)
        return float(logs.sum(dtype=np.float64))

    @classmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors."""
        shares, nodes = zip(*draws.over_effects(), strict=True)
        eta, noise = (np.concatenate([getattr(some, name) for some in nodes], axis=1) for name in ("eta", "noise"))
        weights = np.concatenate([share * some.weights for share, some in zip(shares, nodes, strict=True)])
        law, mean, variance, shape = cls.components(eta.astype(np.float64), noise, cls._shapes(list(nodes)))
        return cls.mixture(law, mean, variance, weights, centre, levels, shape)

    @classmethod
    def components(
        cls, eta: Float64, noise: Array, shape: Sequence[Array]
    ) -> tuple[type[LawOfMoments], Array, Array, Sequence[Array]]:
        """Components of a mixture over draws: their law, means, variances, and other parameters; elementwise."""
        return cls, cls.mean(eta, *shape), np.asarray(cls.variance(eta, noise, *shape)), shape

    @classmethod
    def _shapes(cls, nodes: Sequence[PredictorDraws]) -> list[Float64]:
        """Parameters in `shape` of the draws at all nodes, (q or 1, nodes times draws) each."""
        given = [some.shape for some in nodes if some.shape is not None]
        if not given:
            return [np.full((1, 1), start) for start in cls.starts.values()]
        return list(np.moveaxis(np.concatenate(given, axis=1), 2, 0))

    @classmethod
    def expectation(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior distributions of the expected ratings, without noise; parameters as for `predictive`."""
        nodes, draws = draws.over_effects(), draws.known()
        mean = np.zeros_like(draws.eta)
        for share, some in nodes:
            mean += np.float32(share) * cls.mean(some.eta, *cls._shapes([some]))
        return Scores(mean, draws.spread, draws.weights, centre)

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Predictive distributions from moments over draws."""
        mean, variance = (np.asarray(moment, np.float64)[:, None] for moment in moments[:2])
        return cls.mixture(cls, mean, variance, np.ones(1), levels=moments.levels)
