"""The contract of a part of the model: its settings, its refusals, its quantities, its draws.

A part is a class in a file of this folder, listed in `PARTS`; the likelihood is a part, too. Its settings are fields of
the run's configuration; its quantities are saved, read, shown and counted like all others. The class methods answer
for a run, before and after sampling. Every chain has an instance, which draws the part's parameters from their
conditional given everything else:

1. `Part.sums` returns partial sums for a row block and the column block paired with it. Those of all parts are added up
   in one message.
2. `Part.draw_shared` draws the parameters that all rows share, given the totals. It runs at the root: one process,
   which sends them to all.
3. `Part.draw` draws everything else, one part after another in the order of `PARTS`, the likelihood first. Effects on
   ratings come last, and in Gibbs sampling first.

A method that is *collective* has to be called by all processes of the chain, in the same order.

The rows' prior is theta_i ~ N(m + shift_i, Lambda^-1). Several parts may contribute to shift_i, field ``shift`` of a
block, which the gradient of the prior and the draws of (m, Lambda) use: a part adds to it the change of its own
contribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.kernels.effects import Score
from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.quantity import Quantity, Sampled, SavedDraw, Sizes
from dsgmcmc.targets.state import ParameterBlock, RandomStream
from dsgmcmc.types import Array, Factor, Float32, Float64, ImplicitName, Int32, ThresholdsName

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.model.blocks import RatingBlocks
    from dsgmcmc.parallel.named import Named
    from dsgmcmc.parallel.ring import Ring  # which loads MPI
    from dsgmcmc.storage.manifest import Key

#: Contribution of the rows' features to the shift.
DESCRIBED = Quantity("described", ("column",), of_rows=True, drawn=False)


def chosen_factors(whose: ImplicitName | ThresholdsName, transposed: bool) -> tuple[Factor, ...]:
    """Factors of the users, the items, or both; `transposed` says that the rows of W are items."""
    users, items = (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H)
    return {"no": (), "shared": (), "user": (users,), "item": (items,), "both": (Factor.W, Factor.H)}[whose]


def is_due(turn: int, every: int, first: int = 1) -> bool:
    """Whether a draw that is made every `every` turns, from turn `first` on, is due; at turn 1 every draw is."""
    return (turn == 1 or turn >= max(first, 1)) and turn % every == 1 % every


class PrecisionTerms(NamedTuple):
    """Extra sufficient statistics for drawing Lambda, from n vectors v that are N(0, Lambda^-1) given Lambda.

    Attributes
    ----------
    n : int
        Number of vectors.
    products : (D, D) float64, or None if there are none
        sum v v^T
    """

    n: int = 0
    products: Float64 | None = None

    def of(self, k: int) -> Float64:
        """`products` of the first k elements of the vectors, (k, k)."""
        return np.zeros((k, k)) if self.products is None else self.products[:k, :k]


NO_TERMS = PrecisionTerms()


class Intercept(NamedTuple):
    """Intercept of a likelihood: its value mu, and the precision lambda_0 of its prior, whose mean is 0."""

    value: float
    precision: float


#: Numbers of features and of groups of features, for each factor whose rows have features.
FeatureSizes = Mapping[Factor, tuple[int, int]]


class ScoredLaw(Protocol):
    """The members of a law (`dsgmcmc.model.likelihoods.base.Law`) that parts use in their draws.

    Attributes
    ----------
    drawn : tuple of str
        Fields of rows that the law depends on.
    draws_precision : bool
        Whether it draws the precision of the noise itself.
    """

    drawn: tuple[str, ...]
    draws_precision: ClassVar[bool]

    @property
    def intercept(self) -> Intercept | None:
        """The law's own intercept, or None: moved together with all biases of a factor, it changes no probability."""

    def move_intercept(self, blocks: Iterable[ParameterBlock], step: float) -> None:
        """Move the intercept by `step`, and everything in the blocks that follows from it."""

    @property
    def score_source(self) -> Score:
        """Source code of a rating's score at noise precision 1, for effects of groups if rows are not Gaussian."""

    def score_terms(self, cell: RatingsCell) -> Float32:
        """The other m arguments of `score_source` besides eta, for each training rating of a cell, (m, nnz) float32."""


@dataclass(frozen=True)
class DrawContext:
    """The state, the random numbers and the turn with which a part draws its parameters.

    Attributes
    ----------
    circulation : Circulation
        The blocks of both factors.
    prior : callable
        Returns a block's prior, shift included.
    positions : tuple of str
        For each interleaved sub-chain, the field of blocks that holds its state of the factors.
    stream : RandomStream
        Seed, chain and iteration, from which random numbers are computed.
    tau : callable
        Returns the current precision of the noise.
    turn : int
        Number of this draw of the hyperparameters (of priors and noise), from 1; 0 if they are not drawn in this
        iteration.
    factor : Factor or None
        With Gibbs sampling, the factor whose rows are drawn next; None with other samplers, whose rows have all moved.
    terms : dict of Factor to PrecisionTerms
        Extra sufficient statistics for drawing Lambda.
    law : ScoredLaw
        The law of a rating.
    """

    circulation: Circulation
    prior: Callable[[ParameterBlock], RowPrior]
    positions: tuple[str, ...]
    stream: RandomStream
    tau: Callable[[], float]
    turn: int
    factor: Factor | None
    terms: Mapping[Factor, PrecisionTerms]
    law: ScoredLaw

    @property
    def position(self) -> str:
        """Field that holds the state of the factors; of several sub-chains, that of the first."""
        return self.positions[0]

    def is_turn(self, every: int = 1, first: int = 1) -> bool:
        """Whether what `is_due` every `every` turns, from `first` on, is to be drawn now.

        Gibbs sampling draws before the rows of W and again before those of H; only the first counts as a turn.
        """
        return is_due(self.turn, every, first) and self.factor != Factor.H


class Place(NamedTuple):
    """Settings, ratings and processes of a chain, from which its parts are made.

    Attributes
    ----------
    config : ResolvedConfig
        Settings of the run (`dsgmcmc.config.run`).
    transposed : bool
        Whether the rows of W are items.
    ratings : RatingBlocks
        This process's ratings.
    ring : Ring
        The processes of the chain.
    sizes : Sizes
        Lengths of the axes of the model's quantities.
    subchains : int
        Number of sub-chains that the sampler interleaves.
    by_parts : bool
        Whether an iteration uses one part of the ratings, a minibatch; else it uses all, as Gibbs sampling does.
    """

    config: Any
    transposed: bool
    ratings: RatingBlocks
    ring: Ring
    sizes: Sizes
    subchains: int = 1
    by_parts: bool = True


class Part(ABC):
    """A part of the model that a run may have.

    Attributes
    ----------
    Settings : type of BaseModel
        Its settings, declared by `dsgmcmc.settings.setting`; a base of `dsgmcmc.config.run.ModelConfig`.
    has_effects : bool
        Whether it adds effects to the predictors of ratings: it then defines `of_ratings`, `ratings` and `test`. A
        model has at most one such part.
    quantities : tuple of Quantity
        Quantities that a chain keeps of it.
    parameters : Sampled, optional
        Its parameters that are the same on all processes.
    ratings : RatingBlocks
        With effects: the training ratings for everything else that is sampled, less the effects, or with the effects
        as offsets.
    test : dict of int to (q,) float32
        With effects: for every row block, the effects on the predictors of its test ratings.
    """

    Settings: ClassVar[type[BaseModel]]
    has_effects: ClassVar[bool] = False
    quantities: tuple[Quantity, ...]
    parameters: Sampled | None = None
    ratings: RatingBlocks
    test: dict[int, Float32]

    # ------------------------------------------------------------------ of settings, and of files of ratings

    @classmethod  # noqa: B027 (some go with everything)
    def check(cls, config: Any) -> None:
        """Refuse settings of a run (`dsgmcmc.config.run.ResolvedConfig`) that the part cannot be combined with.

        Raises
        ------
        InputError
            Says what cannot be combined, and which setting to change.
        """

    @classmethod  # noqa: B027 (likewise)
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file from which the part cannot be made. Called before anything is allocated.

        Raises
        ------
        InputError
            Says what is missing.
        """

    @classmethod
    @abstractmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """The quantities that the part keeps; none if the run does not use it.

        Parameters
        ----------
        config : ResolvedConfig
        transposed : bool
            Whether the rows of W are items.
        features : dict of Factor to (int, int)
            Numbers of features, and of groups of them, in the ratings file.
        """

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> Any:
        """Read the part's data from the ratings file, once for all chains of a run. Collective."""
        return None

    @classmethod
    @abstractmethod
    def of(cls, place: Place, data: Any) -> Self | None:
        """Make the part of a chain; None if the run does not use it. Collective.

        Parameters
        ----------
        place : Place
        data : object
            Result of `read`.
        """

    # ------------------------------------------------------------------ the state of a chain

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """All of the part's parameters that are the same on all processes: by default `parameters`."""
        return () if self.parameters is None else (self.parameters,)

    def start(self, blocks: Iterable[ParameterBlock]) -> None:  # noqa: B027 (some keep nothing)
        """Set the part's fields of the blocks and its shared parameters to their initial values."""

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:  # noqa: B027 (likewise)
        """Prepare for an iteration; `first` says whether it is the first of a sweep. Collective."""

    def move(self, context: DrawContext) -> None:  # noqa: B027 (likewise)
        """Move the state where the likelihood stays as it is, before a sweep begins, if it is due. Collective.

        `DrawContext.turn` is that of the last draw of the hyperparameters.
        """

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """Further arrays of the part for these row blocks, to be saved in a checkpoint."""
        yield from ()

    def loaded(self) -> None:  # noqa: B027 (likewise)
        """Update derived state, after a checkpoint has replaced the fields of blocks and `replicated`."""

    # ------------------------------------------------------------------ drawing it

    def renews_data(self, turn: int) -> bool:
        """Whether the draw at this turn changes the data of the likelihood, so that gradients must be recomputed."""
        return False

    def renews_prior(self, turn: int) -> bool:
        """Whether the draw at this turn changes the prior means of single rows, which are given its newest values.

        Momenta then get the two halves of their kick apart, each with the prior of its time.
        """
        return False

    def precision_terms(self) -> dict[Factor, PrecisionTerms]:
        """Extra sufficient statistics for drawing Lambda, if the part's prior depends on it; of one part per factor."""
        return {}

    def sums(self, context: DrawContext) -> Named | None:
        """Partial sums from which `draw_shared` draws, (blocks here, ...) each, in block order; None if none."""
        return None

    def draw_shared(  # noqa: B027 (most share nothing)
        self, subchain: int, sums: Mapping[str, Float64], context: DrawContext, rng: np.random.Generator
    ) -> None:
        """Draw a sub-chain's parameters in `replicated`, given the totals of all `sums`; runs at the root.

        Parameters
        ----------
        subchain : int
        sums : dict of str to float64 array
            Over all blocks.
        context : DrawContext
        rng : Generator
        """

    def draw(self, context: DrawContext) -> None:  # noqa: B027 (some have nothing else)
        """Draw the parameters that `draw_shared` does not draw, if they are due (`DrawContext.is_turn`). Collective."""

    # ------------------------------------------------------------------ rows and ratings that were not sampled

    @classmethod
    def of_unseen(cls, draw: SavedDraw, kind: str) -> tuple[Float64, Float64] | None:
        """Contributions of the part to the prior of a row without ratings, to its mean and to its covariance.

        Parameters
        ----------
        draw : SavedDraw
        kind : {"user", "item"}

        Returns
        -------
        mean : (D,) float64
        covariance : (D, D) float64
        """
        return None

    @classmethod
    def of_rated(cls, draw: SavedDraw, kind: str, others: Int32) -> Float64 | None:
        """Contribution of the part to the prior mean of a row with ratings of the other side's rows `others`, (D,)."""
        return None

    @classmethod
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[Float32 | float, Float32 | float]:
        """Mean and variance of the part's contribution to the predictors of new ratings, at one draw.

        Parameters
        ----------
        draw : SavedDraw
        users, items : (q,) int32
            Rows; -1 where a user or an item was not sampled.

        Returns
        -------
        mean, variance : (q,) float32, or one number for all
        """
        return 0.0, 0.0
