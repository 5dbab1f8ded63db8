"""The contract of a part of the model: its settings, what it cannot be combined with, what it keeps, how it is drawn.

A part is a class in a file of this folder and a name in `PARTS`; the likelihood is one, too. Its settings are fields of
the run's configuration; its quantities are saved, read, shown and counted like all others. The object that a chain
makes of a part draws the part's parameters from their conditional given everything else:

1. `Part.sums` gives partial sums over a pair of blocks. Those of all parts are added in one message.
2. `Part.draw_shared` draws the parameters that all rows share from the totals, at the root.
3. `Part.draw` draws everything else.

Parts of the rows' prior means, theta_i ~ N(m + shift_i, Lambda^-1), add up to field ``shift`` of a block, which the
gradient of the prior and the draws of (m, Lambda) know of; each moves the shift by what it changes.
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
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.quantity import SHIFT, Quantity, Sampled, Sizes
from dsgmcmc.targets.state import ParameterBlock, RandomStream
from dsgmcmc.types import Array, Factor, Float32, Float64, ImplicitName, Int32, ThresholdsName

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.model.blocks import RatingBlocks
    from dsgmcmc.parallel.named import Named
    from dsgmcmc.parallel.ring import Ring  # which loads MPI
    from dsgmcmc.storage.manifest import Key

#: The part of the shift that follows from features of the rows.
DESCRIBED = Quantity("described", ("column",), of_rows=True, drawn=False)


def chosen_factors(whose: ImplicitName | ThresholdsName, transposed: bool) -> tuple[Factor, ...]:
    """Factors of the users, the items, or both; `transposed` says that the rows of W are items."""
    users, items = (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H)
    return {"no": (), "shared": (), "user": (users,), "item": (items,), "both": (Factor.W, Factor.H)}[whose]


class PrecisionTerms(NamedTuple):
    """Statistics for the draw of Lambda: a number of draws from N(0, Lambda^-1), and the sum of their squares.

    Attributes
    ----------
    n : int
    products : (D, D) float64, or None if there are none
    """

    n: int = 0
    products: Float64 | None = None

    def of(self, k: int) -> Float64:
        """Sum of the squares of the first k columns, (k, k)."""
        return np.zeros((k, k)) if self.products is None else self.products[:k, :k]


NO_TERMS = PrecisionTerms()

#: Features, and groups of features, of the rows of a factor that has some.
FeatureSizes = Mapping[Factor, tuple[int, int]]


class ScoredLaw(Protocol):
    """What effects of groups need of a law that is not normal; see `dsgmcmc.model.likelihoods.base.Law`.

    Attributes
    ----------
    drawn : tuple of str
        Fields of rows that it depends on.
    score_source : Score
        Score of a rating.
    """

    drawn: tuple[str, ...]

    @property
    def score_source(self) -> Score:
        """See `Law.score_source`."""

    def score_terms(self, cell: RatingsCell) -> Float32:
        """See `Law.score_terms`."""


@dataclass(frozen=True)
class DrawContext:
    """What a part needs to draw its parameters.

    Attributes
    ----------
    circulation : Circulation
        The blocks of both factors.
    prior : callable
        Gives a block's prior, shift included.
    positions : tuple of str
        The field that holds the factors of each interleaved sub-chain.
    stream : RandomStream
        Names the random numbers.
    tau : callable
        Gives the precision of the noise as it is now.
    turn : int
        Which draw the parameters of priors and noise have; 0 if they have none in this iteration.
    factor : Factor or None
        The factor whose rows are drawn next given their errors, by Gibbs sampling; None where all rows were moved.
    terms : dict of Factor to PrecisionTerms
        What parameters of the rows' means say of Lambda.
    law : ScoredLaw
        Of a rating.
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
        """The field that holds the factors."""
        return self.positions[0]

    def is_turn(self, every: int = 1) -> bool:
        """Whether what is drawn every so many turns is drawn now: at the first turn, too, so that it is rehearsed."""
        return self.turn > 0 and self.turn % every == 1 % every and self.factor != Factor.H


class SavedDraw(Protocol):
    """A saved draw, as parts see it.

    Attributes
    ----------
    shared : dict of str to float64 array
        What all rows share, by the names of quantities, with ``user`` or ``item`` in the place of the factor.
    rows : dict of kind to dict of str to (n, ...) float32 array
        What the rows of users and items have, by the names of quantities.
    """

    @property
    def shared(self) -> Mapping[str, Float64]: ...  # noqa: D102

    @property
    def rows(self) -> Mapping[str, Mapping[str, Float32]]: ...  # noqa: D102


class Place(NamedTuple):
    """Where a part is made: what the chain has that it belongs to.

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
        How many states the sampler interleaves.
    by_parts : bool
        Whether an iteration uses a part of the ratings; else all, and Gibbs sampling, too.
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
        Its settings, by `dsgmcmc.settings.setting`; a base of `dsgmcmc.config.run.ModelConfig`.
    quantities : tuple of Quantity
        What a chain has of it.
    """

    Settings: ClassVar[type[BaseModel]]
    quantities: tuple[Quantity, ...]

    # ------------------------------------------------------------------ of settings, and of files of ratings

    @classmethod  # noqa: B027 (some go with everything)
    def check(cls, config: Any) -> None:
        """Refuse settings of a run (`dsgmcmc.config.run.ResolvedConfig`) that it cannot be combined with.

        Raises
        ------
        InputError
            Saying with what, and which setting helps.
        """

    @classmethod  # noqa: B027 (likewise)
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file that lacks what the part needs. Called before anything is allocated.

        Raises
        ------
        InputError
            Saying what is missing.
        """

    @classmethod
    @abstractmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """The quantities that it keeps; none if the run does not use it.

        Parameters
        ----------
        config : ResolvedConfig
        transposed : bool
            Whether the rows of W are items.
        features : dict of Factor to (int, int)
            What the ratings have.
        """

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> Any:
        """Read from the ratings file what it needs, once for all chains of a run; None if nothing. Collective."""
        return None

    @classmethod
    @abstractmethod
    def of(cls, place: Place, data: Any) -> Self | None:
        """Make what a chain has of it; None where its run does not have it. Collective.

        Parameters
        ----------
        place : Place
        data : object
            What `read` has returned.
        """

    # ------------------------------------------------------------------ the state of a chain

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """Its parameters that are the same on all processes."""
        return ()

    def start(self, blocks: Iterable[ParameterBlock]) -> None:  # noqa: B027 (some keep nothing)
        """Set its fields of the blocks and its parameters to their initial values."""

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:  # noqa: B027 (likewise)
        """Begin an iteration, the `first` of a sweep or another one. Collective."""

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """What else it keeps at these row blocks, for a checkpoint."""
        yield from ()

    def loaded(self) -> None:  # noqa: B027 (likewise)
        """Take notice that `saved` arrays and `replicated` were replaced by those of a checkpoint."""

    # ------------------------------------------------------------------ drawing it

    def renews_data(self, turn: int) -> bool:
        """Whether its draw at this turn changes what gradients of the likelihood are made of."""
        return False

    def sums(self, row: ParameterBlock, column: ParameterBlock, context: DrawContext) -> Named | None:
        """What its shared parameters are drawn from, for a row block and the column block with it; or nothing."""
        return None

    def draw_shared(  # noqa: B027 (most share nothing)
        self, subchain: int, sums: Mapping[str, Float64], context: DrawContext, rng: np.random.Generator
    ) -> None:
        """Set what a sub-chain has in `replicated` given the totals of all `sums`; runs at the root.

        Parameters
        ----------
        subchain : int
        sums : dict of str to float64 array
            Over all blocks.
        context : DrawContext
        rng : Generator
        """

    def draw(self, context: DrawContext) -> None:  # noqa: B027 (some have nothing else)
        """Draw all else, if it is its turn. Collective."""

    # ------------------------------------------------------------------ rows and ratings that were not sampled

    @classmethod
    def of_unseen(cls, draw: SavedDraw, kind: str) -> tuple[Float64, Float64] | None:
        """What it adds to a row of which nothing is known.

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
        """What it adds to the prior mean of a row that has ratings of these rows of the other side, (D,) float64."""
        return None

    @classmethod
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[Float32 | float, Float32 | float]:
        """What it adds to the predictors of new ratings, and the variance of that.

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


class PriorMean(Part):
    """A part of the rows' prior means, as a chain has it.

    Attributes
    ----------
    parameters : Sampled
        What all rows share of it.
    """

    parameters: Sampled

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """See `Part.replicated`."""
        return (self.parameters,)

    def precision_terms(self) -> dict[Factor, PrecisionTerms]:
        """Terms for the draw of Lambda, if the prior of its parameters depends on it; at most one part per factor."""
        return {}

    @staticmethod
    def shifting(quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
        """Its quantities, and the shift that they add to; nothing if it has none."""
        return (SHIFT, *quantities) if quantities else ()


class Effects(Part):
    """A part that adds to the predictors of single ratings.

    Attributes
    ----------
    ratings : RatingBlocks
        The ratings less its effects, or with these for offsets, which everything else is drawn from.
    test : dict of int to (q,) float32
        What it adds to the predictors of the test ratings of a row block.
    """

    ratings: RatingBlocks
    test: dict[int, Float32]

    @classmethod
    @abstractmethod
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[Float32 | float, Float32 | float]:
        """See `Part.of_ratings`: no predictions without."""
