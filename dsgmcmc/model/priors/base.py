"""The contract of a part of the rows' prior means: theta_i ~ N(m + shift_i, Lambda^-1).

The parts add up to field ``shift`` of a block, which the gradient of the prior and the draws of (m, Lambda) know of. A
part draws its own parameters from their conditional given everything else, and then moves the shift by their change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Factor, Float64, ImplicitName, ThresholdsName

#: The part of the shift that follows from features of the rows.
DESCRIBED = Quantity("described", ("column",), of_rows=True, drawn=False)


def chosen_factors(whose: ImplicitName | ThresholdsName, transposed: bool) -> tuple[Factor, ...]:
    """Factors of the users, the items, or both; `transposed` says that the rows of W are items."""
    users, items = (Factor.H, Factor.W) if transposed else (Factor.W, Factor.H)
    return {"no": (), "shared": (), "user": (users,), "item": (items,), "both": (Factor.W, Factor.H)}[whose]


class Conditions(NamedTuple):
    """What the parameters of a part are drawn given.

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
    """What the parameters of a part say of Lambda: so many draws from N(0, Lambda^-1), and the sum of their squares.

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


class PriorMean(Protocol):
    """A part of the rows' prior means.

    Attributes
    ----------
    quantities : tuple of Quantity
        What it keeps with a block, and what else it samples.
    """

    quantities: tuple[Quantity, ...]

    @property
    def parameters(self) -> Sampled:
        """What all rows share of it."""

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set its fields and parameters as they are before the first iteration; it shifts nothing then."""

    def draw(self, given: Conditions, turn: int) -> None:
        """Draw its parameters, in every so many turns from the first on, and move the shift of all rows. Collective."""

    def precision_terms(self) -> dict[Factor, PrecisionTerms]:
        """What its parameters say of Lambda, where their prior knows of it; of a factor one part at most."""
