"""The interface of a part of the model: its settings, its checks, its quantities, its draws.

A part is a class; the likelihood is one, too. Class methods are called once for a run. Every chain
has an instance, which draws the part's parameters given everything else:

1. `Part.sums` returns partial sums for each row block and the column block paired with it. The sums
   of all parts are added in one message.
2. `Part.draw_shared` draws the parameters that all rows share, given the totals, on one process,
   the root, which sends them to all processes.
3. `Part.draw` draws the other parameters, in the order of `PARTS`, the likelihood first. Effects on
   ratings are drawn last, but first in Gibbs sampling.

All processes of a chain must call *collective* methods, in the same order. The rows' prior is
theta_i ~ N(m + shift_i, Lambda^-1); several parts may contribute to shift_i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import BaseModel

from dsgmcmc.kernels.formulas.formula import RowPrior
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.quantity import Quantity, Sampled, SavedDraw, Sizes
from dsgmcmc.orientation import Orientation
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.base import RowStep
from dsgmcmc.targets.state import ParameterBlock, RandomStream
from dsgmcmc.types import (
    Array,
    Factor,
    Float32,
    Float64,
    Int32,
    Named,
    NoiseName,
)

#: Contribution of a row's features to the row's shift.
DESCRIBED = Quantity("described", ("column",), of_rows=True, drawn=False)


def is_due(sweep: int, every: int, first: int = 1) -> bool:
    """Whether a draw that recurs every `every` sweeps, from sweep `first` on, is due.

    In sweep 1 every draw is due; in sweep 0 (`DrawContext.hyper_sweep`) none is.
    """
    has_begun = sweep == 1 or sweep >= max(first, 1)
    return has_begun and sweep % every == 1 % every


class PrecisionTerms(NamedTuple):
    """Additional sufficient statistics for drawing Lambda, of n vectors v ~ N(0, Lambda^-1).

    Attributes
    ----------
    n : int
        Number of vectors.
    products : (D, D) float64, or None if there are none
        sum v v^T
    """

    n: int = 0
    products: Float64 | None = None

    def leading(self, k: int) -> Float64:
        """The leading (k, k) block of `products`; zeros if there are none."""
        if self.products is None:
            return np.zeros((k, k))
        return self.products[:k, :k]


NO_TERMS = PrecisionTerms()


class Intercept(NamedTuple):
    """Intercept of a likelihood.

    Attributes
    ----------
    value : float
        mu.
    precision : float
        Precision lambda_0 of its prior N(0, 1 / lambda_0).
    """

    value: float
    precision: float


#: For each factor whose rows have features, the number of features and the number of groups of
#: features.
FeatureSizes = Mapping[Factor, tuple[int, int]]


class DrawContext(NamedTuple):
    """The state, the random numbers and the number of the sweep for the draws of parts.

    Attributes
    ----------
    circulation : Circulation
        The blocks of both factors.
    prior : callable
        Returns a block's prior, shift included.
    position : str
        Field that holds the factors.
    stream : RandomStream
        Seed, chain and iteration, from which random numbers are computed.
    tau : callable
        Returns the current precision of the noise.
    hyper_sweep : int
        Number of sweeps so far, including the sweep of this draw; 0 in the first sweeps, which do
        not draw hyperparameters, the parameters of priors and noise (setting `hyper_start`).
    factor : Factor or None
        In Gibbs sampling, the factor whose rows are drawn next; None with other samplers, which
        have moved all rows.
    law : Law
        The likelihood (`dsgmcmc.model.likelihoods.base`), which is a part, too.
    momentum : str
        Field of the factors' momenta; empty if there are none.
    terms : dict of Factor to PrecisionTerms
        Additional sufficient statistics for drawing Lambda; set only while shared parameters are
        drawn.
    precision_limit : float
        Largest precision of the noise (`dsgmcmc.model.rounding`); set only while shared parameters
        are drawn.
    """

    circulation: Circulation
    prior: Callable[[ParameterBlock], RowPrior]
    position: str
    stream: RandomStream
    tau: Callable[[], float]
    hyper_sweep: int
    factor: Factor | None
    law: Any
    momentum: str = ""
    terms: Mapping[Factor, PrecisionTerms] = MappingProxyType({})
    precision_limit: float = inf

    def is_due(self, every: int = 1, first: int = 1) -> bool:
        """Whether a draw that recurs every `every` sweeps, from sweep `first` on, is due here.

        Gibbs sampling calls `Part.draw` twice, before the rows of W and before the rows of H; the
        first call counts.
        """
        return is_due(self.hyper_sweep, every, first) and self.factor != Factor.H


class SamplerFacts(NamedTuple):
    """What parts of the model know of the sampler of a run.

    Attributes
    ----------
    name : str
    interleaved : bool
        Whether a chain has several states, which the sampler advances in turns.
    keeps_gradients : bool
        Whether gradients of the likelihood are used again in later iterations.
    draws_conditionals : bool
        Whether rows are drawn from their conditional distributions.
    moves_parts : bool
        Whether the sampler moves parts at the same time as rows (`Part.moving`).
    """

    name: str
    interleaved: bool
    keeps_gradients: bool
    draws_conditionals: bool
    moves_parts: bool


@dataclass(frozen=True)
class ModelFacts:
    """What a part of the model knows of a run besides its own settings.

    Attributes
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    likelihood : str
        Name of the likelihood.
    law : type of Law
        Class of the likelihood (`dsgmcmc.model.likelihoods.base`).
    noise : NoiseName
        Whose rows have noise scales.
    coupled_noise : bool
        Whether these scales also multiply the precision of the rows' priors.
    prior_precision : float
        Initial precision of the rows' priors.
    sampler : SamplerFacts
    """

    rank: int
    biases: bool
    likelihood: str
    law: type[Any]
    noise: NoiseName
    coupled_noise: bool
    prior_precision: float
    sampler: SamplerFacts

    @property
    def dimension(self) -> int:
        """Number D of columns of a factor, with the column of the biases."""
        return self.rank + int(self.biases)


class FileFacts(NamedTuple):
    """What the quantities of a model depend on in a ratings file.

    Attributes
    ----------
    orientation : Orientation
        Which factor's rows stand for users.
    features : dict of Factor to (int, int)
        Number of features and number of groups of features, for every factor whose rows have
        features.
    """

    orientation: Orientation
    features: FeatureSizes


@dataclass(frozen=True)
class ChainFacts:
    """Model, ratings and processes of a chain: the facts from which its parts are made.

    Attributes
    ----------
    model : ModelFacts
    orientation : Orientation
        Which factor's rows stand for users.
    ratings : RatingBlocks
        This process's ratings.
    ring : Ring
        The processes of the chain.
    sizes : Sizes
        Lengths of the axes of the model's quantities.
    by_parts : bool
        Whether an iteration uses one part of the ratings, a minibatch, instead of all ratings.
    moves_from : int or None
        First iteration in which the sampler moves parts at the same time as rows (`Part.moving`);
        None: it never does.
    """

    model: ModelFacts
    orientation: Orientation
    ratings: RatingBlocks
    ring: Ring
    sizes: Sizes
    by_parts: bool = True
    moves_from: int | None = None


#: The settings of a part.
S = TypeVar("S", bound=BaseModel)


class Part(ABC, Generic[S]):
    """A part of the model that a run may have, with settings `S`.

    A part that changes its contribution to the rows' prior means adds the difference to the field
    ``shift`` of blocks, which the gradient of the prior and the draws of (m, Lambda) use.

    Attributes
    ----------
    Settings : type of BaseModel
        The part's settings, declared by `dsgmcmc.settings.setting`. They are among the settings of
        a run.
    has_effects : bool
        Whether the part adds effects to the predictors of ratings. It then defines `of_ratings`,
        `ratings` and `test`. A model has at most one part with effects.
    draws_ratings : bool
        Whether the part draws values of ratings. It is then drawn when effects on ratings are.
    prior_every : int
        Turns between draws that change prior means of single rows, given the rows' current values;
        0 without such draws.
    quantities : tuple of Quantity
        The part's quantities, which a chain keeps.
    parameters : Sampled, optional
        The part's parameters that are the same on all processes, if it has any.
    ratings : RatingBlocks
        With effects: the training ratings from which all other parameters are sampled, either less
        the effects or with the effects as offsets.
    test : dict of int to (q,) float32
        With effects: for every row block, the effects on the predictors of its test ratings.
    """

    Settings: ClassVar[type[BaseModel]]
    has_effects: ClassVar[bool] = False
    draws_ratings: ClassVar[bool] = False
    prior_every: ClassVar[int] = 0
    quantities: tuple[Quantity, ...]
    parameters: Sampled | None = None
    ratings: RatingBlocks
    test: dict[int, Float32]

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def check(cls, settings: S, model: ModelFacts) -> None:
        """Refuse settings with which the part cannot be combined.

        Parameters
        ----------
        settings : BaseModel
            The part's settings, an instance of `Settings`.
        model : ModelFacts

        Raises
        ------
        InputError
            If settings cannot be combined; the message names the setting to change.
        """

    @classmethod
    def check_ratings(cls, settings: S, model: ModelFacts, ratings: Ratings) -> None:
        """Refuse a ratings file that lacks the part's data. Called before anything is allocated.

        Raises
        ------
        InputError
            If data are missing; the message names them.
        """

    @classmethod
    @abstractmethod
    def quantities_of(cls, settings: S, model: ModelFacts, file: FileFacts) -> tuple[Quantity, ...]:
        """The part's quantities; none if the run does not use the part.

        Parameters
        ----------
        settings : BaseModel
            The part's settings.
        model : ModelFacts
        file : FileFacts
        """

    @classmethod
    def read(cls, settings: S, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> Any:
        """Read the part's data from the ratings file, once for all chains of a run. Collective."""
        return None

    @classmethod
    @abstractmethod
    def create(cls, settings: S, chain: ChainFacts, data: Any) -> Self | None:
        """Make a chain's instance of the part; None if the run does not use the part. Collective.

        Parameters
        ----------
        settings : BaseModel
            The part's settings.
        chain : ChainFacts
        data : object
            Result of `read`.
        """

    # ------------------------------------------------------------------ the state of a chain

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """The part's parameters that are the same on all processes; by default `parameters`."""
        if self.parameters is None:
            return ()
        return (self.parameters,)

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values."""

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Prepare for an iteration; `first` says whether it is the first of a sweep. Collective."""

    def move(self, context: DrawContext) -> None:
        """Move the state without changing the likelihood, before a sweep, if due. Collective.

        Here `DrawContext.hyper_sweep` is that of the last sweep.
        """

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """The part's arrays for these row blocks, to be saved in a checkpoint.

        Fields of blocks and `replicated` are saved anyway.
        """
        yield from ()

    def loaded(self) -> None:
        """Update derived state, after a checkpoint was loaded into fields and `replicated`."""

    # ------------------------------------------------------------------ draws

    def renews_data(self, sweep: int) -> bool:
        """Whether the draw in this sweep (`DrawContext.hyper_sweep`) changes the likelihood's data.

        Gradients must then be computed again.
        """
        return False

    def renews_prior(self, sweep: int) -> bool:
        """Whether the draw in this sweep changes prior means of single rows, given the rows.

        The sampler then makes the two half kicks of a momentum separately: one with the old prior,
        one with the new.
        """
        return self.prior_every > 0 and is_due(sweep, self.prior_every)

    def precision_terms(self) -> dict[Factor, PrecisionTerms]:
        """Additional statistics for drawing Lambda, if the part's prior depends on it.

        At most one part has them for a factor.
        """
        return {}

    def sums(self, context: DrawContext) -> Named | None:
        """Partial sums for `draw_shared`; None if the part needs none.

        Each is (local blocks, ...), in block order.
        """
        return None

    def draw_shared(
        self,
        sums: Mapping[str, Float64],
        context: DrawContext,
        rng: np.random.Generator,
    ) -> None:
        """Draw the parameters in `replicated`; runs at the root.

        Parameters
        ----------
        sums : dict of str to float64 array
            Totals of all `sums` over all blocks.
        context : DrawContext
        rng : Generator
            Source of randomness, used by one part after another.
        """

    def draw(self, context: DrawContext) -> None:
        """Draw the parameters that `draw_shared` does not draw, if they are due. Collective.

        `DrawContext.is_due` says whether they are.
        """

    def moving(self, context: DrawContext, step: RowStep) -> AbstractContextManager[None]:
        """Move the part's parameters; the rows move in the ``with`` block. Collective."""
        return nullcontext()

    def momenta_of(self, factor: Factor) -> Mapping[str, str]:
        """Fields of a factor's rows with N(0, 1) momenta, by the name of what they move."""
        return {}

    # --------------------------------------------------- rows and ratings outside the training data

    @classmethod
    def of_unseen(cls, draw: SavedDraw, entity: str) -> tuple[Float64, Float64] | None:
        """The part's contributions to the prior mean and covariance of a row without ratings.

        Parameters
        ----------
        draw : SavedDraw
        entity : {"user", "item"}
            What the row stands for.

        Returns
        -------
        mean : (D,) float64
        covariance : (D, D) float64
            None instead of both if the part contributes nothing.
        """
        return None

    @classmethod
    def of_rated(cls, draw: SavedDraw, entity: str, others: Int32) -> Float64 | None:
        """The part's contribution, (D,), to the prior mean of a new row with ratings, or None.

        `entity` is what the new row stands for, as in `of_unseen`; `others` are the rows of the
        other factor with which it has ratings.
        """
        return None

    @classmethod
    def of_ratings(
        cls, draw: SavedDraw, users: Int32, items: Int32
    ) -> tuple[Float32 | float, Float32 | float]:
        """Mean and variance of the part's contribution to predictors of new ratings at one draw.

        Parameters
        ----------
        draw : SavedDraw
        users, items : (q,) int32
            Row numbers; -1 for a user or an item that was not in the training data.

        Returns
        -------
        mean, variance : (q,) float32, or one number for all
        """
        return 0.0, 0.0
