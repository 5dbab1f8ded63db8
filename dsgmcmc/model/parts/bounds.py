r"""Values of ratings that are known only to lie within bounds, by data augmentation.

A rating x_ij that is known to lie in [l, u] has a value z_ij, which is drawn given everything else
from the likelihood truncated to the bounds,

    z_ij ~ p(x_ij | eta_ij, tau, ...)  given  l <= z_ij <= u

All other parameters are drawn as if the values were recorded ratings [Tanner & Wong 1987]. The
random number of a value is a function of its row, its column and the iteration, and of its number
among the measurements of the pair.

[Tanner & Wong 1987] The calculation of posterior distributions by data augmentation, JASA 82.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Self

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.by_pair import uniforms
from dsgmcmc.kernels.prediction import predict_kernel
from dsgmcmc.model.circulation import RatingsCell
from dsgmcmc.model.parts.base import ChainFacts, DrawContext, FileFacts, ModelFacts, Part, is_due
from dsgmcmc.model.quantity import Quantity
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Purpose

#: Sweeps between draws for samplers that use full gradients, which a draw makes outdated.
DRAW_EVERY = 5


class NoSettings(BaseModel):
    """The part has no settings: a run has it if its ratings have bounds."""


class BoundedRatings(Part[NoSettings]):
    """The values of the ratings that are known to lie within bounds.

    Parameters
    ----------
    chain : ChainFacts
        Model, ratings and processes of the chain, whose ratings' values are changed.
    """

    Settings = NoSettings
    draws_ratings: ClassVar[bool] = True

    def __init__(self, chain: ChainFacts) -> None:
        self._cells = {
            cell: ratings for cell, ratings in chain.ratings.train.items() if ratings.bounds
        }
        self._every = 1 if chain.by_parts else DRAW_EVERY
        self._values: dict[int, Float32] = {}
        for b in chain.ring.blocks:
            pieces = [self._cells[cell].bounded_values() for cell in self._in_row(b)]
            self._values[b] = np.concatenate([np.zeros(0, np.float32), *pieces])
        self._first = {b: values.copy() for b, values in self._values.items()}

    def _in_row(self, b: int) -> list[tuple[int, int]]:
        """The cells of a row block, in the order of the column blocks."""
        return sorted(cell for cell in self._cells if cell[0] == b)

    @classmethod
    @override
    def check_ratings(cls, settings: NoSettings, model: ModelFacts, ratings: Ratings) -> None:
        """Refuse samplers that store gradients, which draws of values would change, and SGLD.

        SGLD's noise of minibatches raises the error of predictions, of which values and the noise
        precision are drawn: each raises the other, without end.
        """
        if not ratings.has_bounds:
            return
        sampler = model.sampler
        if sampler.name == "sgld":
            raise InputError(
                f"{ratings.path} has ratings that are known to lie within bounds, whose values"
                f" drift away under the noise of sgld: use another {named('sampler')}"
            )
        if sampler.interleaved or sampler.keeps_gradients:
            raise InputError(
                f"{ratings.path} has ratings that are known to lie within bounds, and"
                f" {sampler.name} keeps gradients, which draws of their values would"
                f" change: use another {named('sampler')} or sampler.gradient"
            )

    @classmethod
    @override
    def quantities_of(
        cls, settings: NoSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        return ()

    @classmethod
    @override
    def create(cls, settings: NoSettings, chain: ChainFacts, data: None) -> Self | None:
        if not chain.ratings.bounded:
            return None
        return cls(chain)

    # ------------------------------------------------------------------ the state of a chain

    @property
    def quantities(self) -> tuple[Quantity, ...]:  # type: ignore[override]
        """The part's quantities: none, as the values are not saved with draws."""
        return ()

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set all values to the stand-ins of the ratings file."""
        for b, values in self._values.items():
            values[:] = self._first[b]
        self.loaded()

    @override
    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        for b in row_blocks:
            yield Key("state", "W", b, "bounded"), self._values[b]

    @override
    def loaded(self) -> None:
        for b, values in self._values.items():
            begin = 0
            for cell in self._in_row(b):
                ratings = self._cells[cell]
                end = begin + len(ratings.bounded_values())
                ratings.set_bounded(values[begin:end])
                begin = end

    # ------------------------------------------------------------------ draws

    @override
    def renews_data(self, sweep: int) -> bool:
        return self._every > 1 and is_due(sweep, self._every)

    @override
    def draw(self, context: DrawContext) -> None:
        """Draw all values, if due. Collective."""
        every = 1 if context.factor is not None else self._every
        if not context.is_due(every):
            return
        drawn: dict[tuple[int, int], Float32] = {}
        for cell in context.circulation.tour((context.position, *context.law.drawn)):
            if cell.ratings.bounds:
                drawn[cell.row.index, cell.column.index] = self._draw_cell(cell, context)
        for b, values in self._values.items():
            pieces = [drawn[cell] for cell in self._in_row(b)]
            values[:] = np.concatenate([np.zeros(0, np.float32), *pieces])
        self.loaded()

    def _draw_cell(self, cell: RatingsCell, context: DrawContext) -> Float32:
        """Draw the values of a cell, (m,)."""
        law = context.law
        bounds = cell.ratings.bounds
        assert bounds is not None
        eta = np.empty(len(bounds.rows), np.float32)
        predict = predict_kernel(law.rank, law.biases)
        predict(
            bounds.rows,
            bounds.columns,
            cell.row[context.position],
            cell.column[context.position],
            eta,
        )
        state = law.state(eta, cell, bounds.rows, bounds.columns, tau=context.tau())
        variance = np.broadcast_to(np.asarray(state.variance, np.float64), len(eta))
        if cell.ratings.weights is not None:
            variance = variance / cell.ratings.weights[bounds.positions]
        chances = uniforms(
            cell.row.start + bounds.rows.astype(np.int64),
            cell.column.start + bounds.columns.astype(np.int64),
            bounds.repeats,
            context.stream.key(Purpose.BOUNDED, Factor.W, 0),
        )
        values = law.quantile_between(
            chances,
            state.mean.astype(np.float64),
            variance,
            (bounds.lower.astype(np.float64), bounds.upper.astype(np.float64)),
            *law.shape,
        )
        inside = np.clip(values.astype(np.float32), bounds.lower, bounds.upper)
        return np.asarray(inside, np.float32)
