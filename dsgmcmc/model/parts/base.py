"""The contract of a part of the model: its settings, what it cannot be combined with, what it keeps, how it is drawn.

A part is a class in a file of this folder and a name in `PARTS`. Its settings are fields of the run's configuration;
its quantities are saved, read, shown and counted like all others. The object that a chain makes of a part draws the
part's parameters from their conditional given everything else.

Parts of the rows' prior means, theta_i ~ N(m + shift_i, Lambda^-1), add up to field ``shift`` of a block, which the
gradient of the prior and the draws of (m, Lambda) know of; each moves the shift by what it changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Factor, Float64, ImplicitName, ThresholdsName

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.model.blocks import RatingBlocks
    from dsgmcmc.parallel.ring import Ring  # which loads MPI

#: The part of the shift that follows from features of the rows.
DESCRIBED = Quantity("described", ("column",), of_rows=True, drawn=False)


def chosen_factors(whose: ImplicitName | ThresholdsName, transposed: bool) -> tuple[Factor, ...]:
    """Factors of the users, the items, or both; `transposed` says that the rows of W are items."""
    users, items = (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H)
    return {"no": (), "shared": (), "user": (users,), "item": (items,), "both": (Factor.W, Factor.H)}[whose]


class DrawContext(NamedTuple):
    """What a part needs to draw its parameters.

    Attributes
    ----------
    circulation : Circulation
        The blocks of both factors.
    prior : callable
        Gives a block's prior, shift included.
    position : str
        The field that holds the factors.
    stream : Stream
        Names the random numbers.
    """

    circulation: Circulation
    prior: Callable[[ParameterBlock], RowPrior]
    position: str
    stream: Stream


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
Terms = Mapping[Factor, PrecisionTerms]


#: Features, and groups of features, of the rows of a factor that has some.
FeatureSizes = Mapping[Factor, tuple[int, int]]


class Part(ABC):
    """A part of the model that a run may have.

    Attributes
    ----------
    Settings : type of BaseModel
        Its settings, by `dsgmcmc.settings.setting`; a base of `dsgmcmc.config.run.ModelConfig`.
    """

    Settings: ClassVar[type[BaseModel]]

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


class PriorMean(Part):
    """A part of the rows' prior means, as a chain has it.

    Attributes
    ----------
    quantities : tuple of Quantity
        What it keeps with a block, and what else it samples.
    parameters : Sampled
        What all rows share of it.
    """

    quantities: tuple[Quantity, ...]
    parameters: Sampled

    @classmethod
    @abstractmethod
    def of(cls, config: Any, transposed: bool, ratings: RatingBlocks, ring: Ring) -> Self | None:
        """Make what a chain has of it; None where its run does not have it.

        Parameters
        ----------
        config : ResolvedConfig
        transposed : bool
            Whether the rows of W are items.
        ratings : RatingBlocks
            This process's ratings, and the features of its rows.
        ring : Ring
            The processes of the chain.
        """

    @abstractmethod
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set its fields and parameters to their initial values, with which it shifts nothing."""

    @abstractmethod
    def draw(self, context: DrawContext, turn: int) -> None:
        """Draw its parameters and move the shift of all rows, at the first turn and then periodically. Collective."""

    def precision_terms(self) -> dict[Factor, PrecisionTerms]:
        """Terms for the draw of Lambda, if the prior of its parameters depends on it; at most one part per factor."""
        return {}
