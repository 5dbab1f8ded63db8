r"""Implicit features: what a user has rated shifts the user's prior mean [Koren 2008, eq. 15].

The values of the ratings do not matter. The model is SVD++, but for users and items, and in the
prior, so that the likelihood is unchanged:

    theta_i ~ N(m + rho_i sum_{j in R_i} y_j, Lambda^-1),    rho_i = |R_i|^-1/2
    y_jk    ~ N(0, 1 / beta_k),                              beta_k ~ Gamma(1, rate 0.2)

R_i is the set of columns with which row i has training ratings; y_j belongs to column j. The prior
means of columns are shifted likewise. y is drawn given everything
else or, after the burn-in of `dsgmcmc.samplers.baoab`, moves with the rows by a BAOAB step
(`dsgmcmc.model.parts.implicit_systems`).

For a row without ratings, R_i counts as unknown, not as empty: its shift has a normal distribution
with the mean and variance of the other shifts, and is drawn given the row's theta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.model.circulation import OTHER
from dsgmcmc.model.parts.base import (
    ChainFacts,
    DrawContext,
    FileFacts,
    ModelFacts,
    Part,
)
from dsgmcmc.model.parts.implicit_systems import (
    IMPLICIT,
    MOMENTUM,
    CoefficientDraw,
    CoefficientMove,
    ImplicitParameters,
)
from dsgmcmc.model.quantity import SHIFT, Quantity, SavedDraw
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.base import RowStep
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float64, ImplicitName, Int32

#: Sweeps between draws.
DRAW_EVERY = 5


def implicit_quantities(factors: Sequence[Factor], moves: bool) -> tuple[Quantity, ...]:
    """Quantities of a model that shifts the prior means of these factors' rows.

    `moves` says whether y moves; else it is drawn.
    """
    if not factors:
        return ()
    coefficients = [IMPLICIT]
    if moves:
        coefficients.append(MOMENTUM)
    if len(factors) == 1:  # only the other factor's rows have coefficients
        coefficients = [quantity.for_factor(OTHER[factors[0]]) for quantity in coefficients]
    return (SHIFT, *coefficients, *ImplicitParameters.about(factors))


class ImplicitSettings(BaseModel):
    """Settings of implicit features."""

    implicit_features: ImplicitName = setting(
        "Learn also from who rated what: about users, items, or both.", "no"
    )


class ImplicitFeatures(Part[ImplicitSettings]):
    """Implicit features of the users, the items, or both.

    Field ``implicit`` of a block is the y of its rows, which shift the prior means of the other
    factor's rows.

    Parameters
    ----------
    factors : tuple of Factor
        The factors whose rows' means are shifted.
    dimension : int
        Columns D of a factor.
    start : float
        Initial value of all beta.
    moves_from : int, optional
        First iteration in which y moves with the rows; None if the sampler does not move it.

    Attributes
    ----------
    spectra : dict of Factor to (D,) float64
        s (`dsgmcmc.model.parts.implicit_systems.Systems`), by the factor whose means are shifted.
    """

    Settings = ImplicitSettings
    prior_every = DRAW_EVERY
    parameters: ImplicitParameters

    def __init__(
        self,
        factors: tuple[Factor, ...],
        dimension: int,
        start: float,
        moves_from: int | None = None,
    ) -> None:
        self.factors = factors
        self._dimension = dimension
        self._start = start
        self._moves_from = moves_from
        self._move: CoefficientMove | None = None
        self.spectra: dict[Factor, Float64] = {}
        self.quantities = implicit_quantities(factors, moves_from is not None)
        self.parameters = ImplicitParameters({}, {}, {})
        self.start(())

    @classmethod
    @override
    def check(cls, settings: ImplicitSettings, model: ModelFacts) -> None:
        """Refuse interleaved chains."""
        if settings.implicit_features != "no" and model.sampler.interleaved:
            leave = f"use another {named('sampler')}, or {named('implicit_features')} no"
            raise InputError(
                f"{model.sampler.name} interleaves chains, which implicit features do not allow:"
                f" {leave}"
            )

    @classmethod
    @override
    def quantities_of(
        cls, settings: ImplicitSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        factors = sorted(file.orientation.factors_of(settings.implicit_features))
        return implicit_quantities(factors, model.sampler.moves_parts)

    @classmethod
    @override
    def create(cls, settings: ImplicitSettings, chain: ChainFacts, data: None) -> Self | None:
        factors = tuple(sorted(chain.orientation.factors_of(settings.implicit_features)))
        if not factors:
            return None
        model = chain.model
        return cls(factors, model.dimension, model.prior_precision, chain.moves_from)

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set all y and their momenta to 0, and their precisions to the initial value."""
        for block in blocks:
            for name in (IMPLICIT.name, MOMENTUM.name):
                if name in block.arrays:
                    block[name].fill(0.0)
        zeros = np.zeros(self._dimension)
        self.parameters.precision = dict.fromkeys(self.factors, zeros + self._start)
        self.parameters.average = {factor: zeros.copy() for factor in self.factors}
        self.parameters.variance = {factor: zeros.copy() for factor in self.factors}

    @classmethod
    @override
    def of_unseen(cls, draw: SavedDraw, entity: str) -> tuple[Float64, Float64] | None:
        """Mean and covariance of the shift of a row without ratings: those of rows with ratings."""
        if f"{entity}.implicit.mean" not in draw.shared:
            return None
        mean = draw.shared[f"{entity}.implicit.mean"]
        variance = draw.shared[f"{entity}.implicit.variance"]
        return mean, np.diag(variance)

    @classmethod
    @override
    def of_rated(cls, draw: SavedDraw, entity: str, others: Int32) -> Float64 | None:
        if f"{entity}.implicit.mean" not in draw.shared:
            return None
        other_entity = "item" if entity == "user" else "user"
        distinct = np.unique(others)
        y = draw.rows[other_entity][IMPLICIT.name][distinct]
        return np.asarray(y.sum(axis=0) / np.sqrt(len(distinct)))

    @override
    def draw(self, context: DrawContext) -> None:
        """Draw all y, if they do not move; beta, and the shifts of rows without ratings, if due.

        Collective.
        """
        if not context.is_due(DRAW_EVERY):
            return
        if self._is_moving(context):
            self._move_in(context).draw_others()
        else:
            systems = CoefficientDraw(self.factors, self.parameters, self.spectra, context)
            systems.draw_coefficients()
            systems.draw_others()

    def _is_moving(self, context: DrawContext) -> bool:
        """Whether y moves in this iteration."""
        return self._moves_from is not None and context.stream.iteration >= self._moves_from

    def _move_in(self, context: DrawContext) -> CoefficientMove:
        """The move of all y, at this state."""
        if self._move is None:
            self._move = CoefficientMove(self.factors, self.parameters, self.spectra, context)
        self._move.set_context(context)
        return self._move

    @override
    def momenta_of(self, factor: Factor) -> Mapping[str, str]:
        if self._moves_from is None or OTHER[factor] not in self.factors:
            return {}
        return {"implicit features": MOMENTUM.name}

    @override
    @contextmanager
    def moving(self, context: DrawContext, step: RowStep) -> Iterator[None]:
        if not self._is_moving(context):
            yield
            return
        move = self._move_in(context)
        move.move(step)
        yield
        move.move_rows()
