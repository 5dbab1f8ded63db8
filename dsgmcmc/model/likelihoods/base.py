"""Likelihoods as chains see them: distributions of a rating x given eta = a_i + b_j + W_i . H_j.

`Law` is the interface that all likelihoods share. It is an `Observation`, which has distributions
of ratings given their predictors, and a `Part` of the model, with parameters in the chain and the
gradient of the energy. With the setting ``center``, the training mean is subtracted from ratings
and predictors.

Most likelihoods are determined by their mean, their variance and a few parameters of all ratings:
they are a `dsgmcmc.model.likelihoods.likelihood.Likelihood`. Ordered levels have a probability for
each level instead (`dsgmcmc.model.likelihoods.ordinal.ordinal`).

A *link* is the transformation between eta and the expected rating or the levels' probabilities.
*Rows* are the rows of W and H: users and items.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.kernels.effects import Score
from dsgmcmc.kernels.gradient import weigh_kernel
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.background import Background
from dsgmcmc.model.likelihoods.observation import Observation
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.likelihoods.ordinal.logit_weights import NormalRatings
from dsgmcmc.model.parts.base import (
    ChainFacts,
    DrawContext,
    FileFacts,
    Intercept,
    ModelFacts,
    Part,
)
from dsgmcmc.model.parts.noise import NoiseParameters
from dsgmcmc.model.quantity import WEIGHT, Quantity
from dsgmcmc.orientation import Orientation
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Mask

#: `Law.width` of likelihoods whose predictors are on the scale of a link.
LINK_WIDTH = 4.0


class RatingWeights(NamedTuple):
    """For every row, sums over its ratings of their weights in the information.

    Attributes
    ----------
    sums, squares : dict of ParameterBlock to (n,) array
        Sums of the weights, and of their squares.
    """

    sums: dict[ParameterBlock, Array]
    squares: dict[ParameterBlock, Array]

    def times(self, weight: np.float32) -> RatingWeights:
        """The same if the weight of every rating is multiplied by `weight`."""
        return RatingWeights(
            sums={block: weight * values for block, values in self.sums.items()},
            squares={block: weight**2 * values for block, values in self.squares.items()},
        )


def _taken(blocks: Iterable[ParameterBlock]) -> RatingWeights:
    """The sums of weights and of squares in array ``sums``, (n, 2), of blocks, which is deleted."""
    sums = {}
    squares = {}
    for block in blocks:
        both = block.arrays.pop("sums")
        sums[block] = np.ascontiguousarray(both[:, 0])
        squares[block] = np.ascontiguousarray(both[:, 1])
    return RatingWeights(sums, squares)


def score_terms(*terms: Array | float) -> Float32:
    """Stack the arguments of a score, (terms, nnz) float32; each is (nnz,), or a number for all."""
    return np.stack(np.broadcast_arrays(*(np.asarray(term, np.float32) for term in terms)))


class State(NamedTuple):
    """Distributions of q ratings given one state of the chain.

    Attributes
    ----------
    mean : (q,) float32
    variance : (q,) float32, or float
        Variances of the ratings, noise included; one number if all ratings have the same variance.
    probability : (q, R) float32
        Probabilities of the levels; R is `Law.n_levels`.
    """

    mean: Float32
    variance: Float32 | float
    probability: Float32

    def at(self, chosen: Mask | slice) -> State:
        """The distributions of some ratings; a variance of all, (1,), stays as it is."""
        variance = np.atleast_1d(np.asarray(self.variance))
        if len(variance) == len(self.mean):
            variance = variance[chosen]
        return State(self.mean[chosen], variance, self.probability[chosen])


class Law(Observation, Part[Any]):
    """A likelihood: the distribution of a rating, and its parameters in a chain.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    factors : tuple of Factor
        Factors whose rows each have a noise scale.
    levels : Levels, optional
        Possible ratings, if they are ordered levels.
    cut_by : Factor, optional
        Factor whose rows each have a set of thresholds, if ratings are ordered levels; None if all
        rows share one set.
    """

    #: Row quantities needed if each row has a noise scale; they include `WEIGHT`.
    noise_quantities: ClassVar[tuple[Quantity, ...]] = ()
    #: Whether there is noise, whose precision tau is fixed or sampled. Without noise, ratings have
    #: no unit, and priors are always the standardised ones (`dsgmcmc.model.parts.rows`).
    has_noise: ClassVar[bool] = True
    #: Whether minus the log likelihood is a sum over the ratings, so that a minibatch of them can
    #: estimate it.
    is_sum_over_ratings: ClassVar[bool] = True
    #: Whether the likelihood has parameters in place of the training mean, which is then not
    #: subtracted from ratings.
    replaces_mean: ClassVar[bool] = False
    #: Settings that only this likelihood has.
    Settings: ClassVar[type[BaseModel]] = BaseModel
    #: Factor by which priors of factors and biases are wider than with Gaussian ratings of sd 1.
    width: ClassVar[float] = 1.0
    #: Bound on |log s| of a row's scale s, where scales are not drawn from their conditional
    #: distribution.
    scale_bound: ClassVar[float] = 2.0
    #: Whether its `draw_shared` draws the precision tau.
    draws_precision: ClassVar[bool] = False
    #: The energy's sum over all pairs of a user and an item, if it has one.
    background: Background | None = None
    #: Parameters of the chain's noise; the model sets this attribute.
    noise_parameters: NoiseParameters
    #: Number of levels, whose probabilities are recorded for held-out ratings; 0 if ratings are not
    #: levels.
    n_levels: int = 0
    #: Names of the parameters in `shape`, and the values that they have if neither data nor draws
    #: provide others.
    starts: ClassVar[Mapping[str, float]] = {}
    #: Settings of the run whose defaults this likelihood changes.
    defaults: ClassVar[dict[str, Any]] = {}
    #: Fields of rows that accumulate sums over a sweep, where rows have these fields.
    swept_fields: ClassVar[tuple[str, ...]] = ()
    #: Name (in checkpoints) and shape of the sums over a sweep that each row block keeps; empty if
    #: there are none.
    sums_name: str = ""
    sums_shape: tuple[int, ...] = ()

    def __init__(
        self,
        rank: int,
        biases: bool,
        factors: tuple[Factor, ...] = (),
        levels: Levels | None = None,
        *,
        cut_by: Factor | None = None,
    ) -> None:
        self.rank = rank
        self.biases = biases
        self.factors = factors
        self.heteroscedastic = bool(factors)
        self.cut_by = cut_by
        self.quantities = self.quantities_with(factors, cut_by)
        row_quantities = [quantity for quantity in self.quantities if quantity.of_rows]
        #: Names of a row's quantities other than theta; `drawn` names the ones saved with draws.
        self.fields = tuple(quantity.name for quantity in row_quantities)
        self.drawn = tuple(quantity.name for quantity in row_quantities if quantity.drawn)
        self._sums: dict[int, Float64] = {}
        self._set_up(levels)
        self.start(())

    def _set_up(self, levels: Levels | None) -> None:
        """Finish the set-up of a subclass, given the ratings' levels, if there are any."""

    @classmethod
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        """The quantities of a chain.

        Parameters
        ----------
        factors : tuple of Factor
            Factors whose rows have noise scales.
        cut_by : Factor, optional
            Factor whose rows have thresholds.
        """
        if factors:
            return cls.noise_quantities
        return ()

    @classmethod
    @override
    def quantities_of(
        cls, settings: BaseModel, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        factors = file.orientation.factors_of(model.noise)
        return cls.quantities_with(factors, cls.cut_factor(settings, file.orientation))

    @classmethod
    @override
    def create(cls, settings: Any, chain: ChainFacts, data: Levels | None) -> Self:
        model = chain.model
        return cls(
            model.rank,
            model.biases,
            chain.orientation.factors_of(model.noise),
            data,
            cut_by=cls.cut_factor(settings, chain.orientation),
        )

    @classmethod
    def cut_factor(cls, settings: Any, orientation: Orientation) -> Factor | None:
        """Factor whose rows each have a set of thresholds; None without such thresholds.

        Parameters
        ----------
        settings : BaseModel
            The likelihood's settings.
        orientation : Orientation
            Which factor's rows stand for users.
        """
        return None

    @property
    def intercept(self) -> Intercept | None:
        """Intercept, or None if the likelihood has none.

        Moving it and all biases of a factor by the same amount changes no probability.
        """
        return None

    def move_intercept(self, blocks: Iterable[ParameterBlock], step: float) -> None:
        """Move the intercept by `step`, and update the fields of blocks that depend on it."""

    @staticmethod
    def bias_mean(mean: float) -> float:
        """Prior mean of a bias, given the training mean.

        Biases must account for the training mean if it is not subtracted from ratings.
        """
        return 0.0

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def unused_settings(cls) -> dict[str, Any]:
        """Settings of a run that the likelihood does not use, and their neutral values."""
        unused: dict[str, Any] = {"zero_weight": None, "thresholds": "shared"}
        for name in cls.Settings.model_fields:
            unused.pop(name, None)
        if not cls.noise_quantities:
            unused["noise"] = "shared"
        if not cls.has_noise:
            unused["noise_precision"] = 1.0
            unused["standardise"] = False
        if cls.replaces_mean:
            unused["center"] = True
        if not cls.is_linear:
            unused["scale"] = "identity"
        return unused

    @classmethod
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Yield warnings if this likelihood may not suit the values in a ratings file."""
        if ratings.minimum == ratings.maximum:
            yield (
                f"all ratings are {ratings.minimum:g}: if they are clicks, try"
                f" {named('likelihood')} all-cells"
            )

    # ------------------------------------------------------------------ properties

    @classmethod
    def has_normal_rows(cls) -> bool:
        """Whether rows are normal given the other factor, the ratings and `draw_weights`.

        Here: whether they are without weights.
        """
        return cls.is_conditionally_gaussian()

    @classmethod
    def has_parameters(cls) -> bool:
        """Whether the likelihood has parameters: true if `draw` or `draw_shared` is overridden."""
        return cls.draw is not Law.draw or cls.draw_shared is not Law.draw_shared

    @classmethod
    def has_score(cls) -> bool:
        """Whether effects of groups can use the scores of single ratings.

        Here: whether `scores` is overridden.
        """
        return cls.scores is not Law.scores

    @property
    def shape(self) -> tuple[float, ...]:
        """Current values of the parameters that `shape_of` reads from draws."""
        shared = {
            quantity.name: value
            for sampled in self.replicated
            for quantity, value in sampled.drawn()
        }
        values = self.shape_of(shared)
        if values is None:
            return ()
        return tuple(values.tolist())

    # ------------------------------------------------------------------ the state of a chain

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: noise scales become 1, other fields 0.
        """
        for block in blocks:
            for name in self.fields:
                initial = 1.0 if name == WEIGHT.name else 0.0
                block[name].fill(initial)
            self.refresh_derived_fields(block)

    @override
    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Prepare for an iteration; `first` says whether it is the first of a sweep. Collective.

        Here: set the sums over a sweep to zero when a sweep begins.
        """
        if not first:
            return
        for sums in self._sums.values():
            sums[:] = 0.0
        names = [name for name in self.swept_fields if name in self.fields]
        for block in blocks:
            for name in names:
                block[name].fill(0.0)

    def sums_of(self, row_block: int) -> Float64:
        """Sums of a row block over the sweep, of shape `sums_shape`, to which gradients add."""
        return self._sums.setdefault(row_block, np.zeros(self.sums_shape))

    def block_sums(self, circulation: Circulation) -> Float64:
        """`sums_of` all row blocks of this process, (local blocks, ...) in block order."""
        return np.array([self.sums_of(b) for b in circulation.rows])

    @override
    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """Yield these row blocks' sums over the sweep, for a checkpoint."""
        if self.sums_name:
            for b in row_blocks:
                yield Key("state", "W", b, self.sums_name), self.sums_of(b)

    # ------------------------------------------------------------------ training ratings

    def refresh_derived_fields(self, rows: Rows) -> None:
        """Recompute derived fields of rows, after other fields or `replicated` have changed."""

    @abstractmethod
    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, *, scale: float, share: float
    ) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks.

        Parameters
        ----------
        cell : RatingsCell
            A row block and a column block, with their ratings.
        position, out : str
            Field with the state, and field to which the gradient is added.
        scale : float
            tau / p_t, where p_t is the probability of this part of the data; 1 for a gradient over
            all data, which is multiplied by tau later.
        share : float
            Weight of this cell's terms in the sums over the sweep, such as those from which noise
            scales are drawn; 0 to leave the sums unchanged.

        Returns
        -------
        float
            Sum of squared errors, each times g_i g'_j, from which the noise draws tau; not used for
            likelihoods without noise, or whose `draw_shared` draws tau.
        """

    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments.

        Effects of groups use it if rows are not Gaussian.

        Returns
        -------
        score : Score
            Source code of a rating's score, the same for all cells.
        terms : (m, nnz) float32
            Its m arguments other than eta, for each training rating of the cell. They can depend
            only on fields in `drawn`, as the cell's column block has no other fields.
        """
        raise NotImplementedError

    def row_scale(self, block: ParameterBlock) -> Float32:
        """Field ``weight`` of a block's rows, (n,) float32; 1 if rows have no noise scales."""
        if self.heteroscedastic:
            return block.row(WEIGHT.name)
        return block.ones

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        A rating's Fisher information on its predictor is taken to be tau g_i g'_j, also by
        likelihoods without noise.
        """
        return self.row_scale(block)

    def conditional_scale(self, block: ParameterBlock) -> Float32:
        """Numbers by which tau times a row's statistics are multiplied, (n,) float32.

        Here: the noise scales.
        """
        return self.noise_scale(block)

    def draw_weights(self, context: DrawContext) -> None:
        """Draw the ratings' weights, if there are any, given the rows of both factors. Collective.

        Called in Gibbs sampling, before the statistics of the rows of W are computed.
        """

    def normal_ratings(self, cell: RatingsCell, factor: Factor) -> NormalRatings | None:
        """Ratings of a cell as normal variables, given their weights.

        None if a rating's precision is the product of its rows' noise scales. The rows of the
        result are those of `factor`.
        """
        return None

    def keep_errors(self, block: ParameterBlock, errors: Float64) -> None:
        """Store each row's sum of squared errors, (n,), weighted by the other factor's scales g."""

    def counts(self, circulation: Circulation) -> RatingWeights:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is g_i g'_j, times its own if it has one. If all weights are 1, both
        sums are the number of ratings, (n,) float32.
        """
        if circulation.ratings.weighted:
            return self._counts_of_weights(circulation)
        if self.heteroscedastic:
            return self.weighted_counts(circulation)
        n = {block: block.n_data for block in circulation.blocks()}
        return RatingWeights(n, n)

    def _counts_of_weights(self, circulation: Circulation) -> RatingWeights:
        """Return `counts` if ratings have weights of their own. Collective."""
        blocks = list(circulation.blocks())
        for block in blocks:
            block.arrays["sums"] = np.zeros((len(block.counts), 2), np.float32)
        fields = [name for name in (WEIGHT.name,) if self.heteroscedastic]
        for cell in circulation.tour((*fields, "sums"), returning=("sums",)):
            weights = self.rating_precisions(cell)
            owners = ((cell.row, cell.ratings.rows), (cell.column, cell.ratings.indices))
            for block, rows in owners:
                for power in (1, 2):
                    sums = np.bincount(rows, weights**power, len(block.counts))
                    block["sums"][:, power - 1] += sums.astype(np.float32)
        return _taken(blocks)

    def rating_precisions(self, cell: RatingsCell) -> Float32:
        """Precision of every rating of a cell over tau, g_i g'_j times its weight, (nnz,)."""
        ratings = cell.ratings
        row_scale = self.row_scale(cell.row)[ratings.rows]
        precisions = row_scale * self.row_scale(cell.column)[ratings.indices]
        if ratings.weights is not None:
            precisions *= ratings.weights
        return precisions

    @staticmethod
    def weighted_counts(circulation: Circulation, power: int = 1) -> RatingWeights:
        """Return `counts` if a rating's weight is the product of both rows' ``weight`` ** `power`.

        Collective.
        """
        blocks = list(circulation.blocks())
        for block in blocks:
            block.arrays["sums"] = np.zeros((len(block.counts), 2), np.float32)
        for row, column, ratings in circulation.tour(("weight", "sums"), returning=("sums",)):
            row_scale = row.row("weight") ** power
            column_scale = column.row("weight") ** power
            weigh_kernel()(*ratings.pattern, row_scale, column_scale, row["sums"], column["sums"])
        return _taken(blocks)

    # ------------------------------------------------------------------ new ratings

    @property
    def noise_varies(self) -> bool:
        """Whether the noise variance differs between ratings."""
        return self.heteroscedastic or not self.is_linear

    @abstractmethod
    def state(
        self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, *, tau: float
    ) -> State:
        """Distributions of q ratings at the chain's current state.

        Parameters
        ----------
        eta : (q,) float32
            Predictors of the ratings.
        cell : RatingsCell
        rows, columns : (q,) int32
            Rows and columns of the ratings in the cell.
        tau : float
            Precision of the noise.
        """

    @abstractmethod
    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions.

        All ratings may share one variance, (1,).
        """

    def log_between(self, bounds: tuple[Array, Array], state: State) -> Float64:
        """Log probabilities that ratings lie between bounds, (q,), given their distributions.

        Not needed unless `takes_bounds`.
        """
        raise NotImplementedError
