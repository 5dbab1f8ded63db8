"""The model of a chain: a likelihood and the parts that go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.parts import PARTS, Noise, Part, RowPriors
from dsgmcmc.model.parts.base import DrawContext, Place
from dsgmcmc.model.quantity import Quantities, Sampled, Sizes, sizes_of
from dsgmcmc.parallel.ring import Ring, shapes_of
from dsgmcmc.targets.state import arrays_of, take_all
from dsgmcmc.types import Array, Float64, Purpose


class FactorModel:
    """A chain's likelihood and parts.

    Parameters
    ----------
    likelihood : Law
        Distribution of a rating.
    noise : Noise
        Precision of the noise.
    rows : RowPriors
        Priors of the rows of both factors.
    others : sequence of Part
        Further parts, in the order in which they are drawn.
    sizes : Sizes, optional
        Lengths of the axes of the parts' quantities; by default those of axes that every model has.
    first : int
        Sweeps before the first draw of the parameters of priors and noise.
    """

    def __init__(
        self,
        likelihood: Law,
        noise: Noise,
        rows: RowPriors,
        *others: Part,
        sizes: Sizes | None = None,
        first: int = 1,
    ) -> None:
        self.likelihood, self.noise, self.rows = likelihood, noise, rows
        likelihood.noise_parameters = noise.parameters
        self.parts: tuple[Part, ...] = (likelihood, noise, rows, *others)
        self.effects = next((part for part in others if part.has_effects), None)
        self._first = first
        quantities = dict.fromkeys(quantity for part in self.parts for quantity in part.quantities)
        self.quantities = Quantities(tuple(quantities), sizes or sizes_of(rows.dimension, likelihood.n_levels))

    @staticmethod
    def read(config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> list[Any]:
        """Read from the ratings file what the parts need, once for all chains of a run. Collective."""
        return [part.read(config, ratings, blocks, ring) for part in (config.law, *PARTS)]

    @classmethod
    def of(cls, place: Place, data: list[Any]) -> FactorModel:
        """Make the model of a chain from what `read` has returned. Collective."""
        config = place.config
        parts = [part.of(place, read) for part, read in zip((config.law, *PARTS), data, strict=True)]
        return cls(*(part for part in parts if part), sizes=place.sizes, first=config.hyper_start)

    @property
    def replicated(self) -> Iterator[Sampled]:
        """Small parameters, the same on all processes."""
        return (parameters for part in self.parts for parameters in part.replicated)

    def turn(self, sweeps: int) -> int:
        """Number of the draw of hyperparameters that follows `sweeps` sweeps; 0 if there is none."""
        return 0 if sweeps < self._first else sweeps

    # ------------------------------------------------------------------ draws of its parameters

    def draw(self, context: DrawContext) -> None:
        """Draw the parameters of all parts that are due, except effects on ratings. Collective."""
        if context.is_turn():
            self.draw_shared(context)
        for part in self.parts:
            if part is not self.effects:
                part.draw(context)

    def draw_effects(self, context: DrawContext) -> None:
        """Draw the effects on single ratings. Collective."""
        if self.effects is not None:
            self.effects.draw(context)

    def draw_shared(self, context: DrawContext) -> None:
        """Draw the shared parameters from sums over all blocks, which are added in one message. Collective."""
        partials: dict[str, Float64] = {}
        drawn = []
        for part in self.parts:
            if sums := part.sums(context):
                partials |= sums
                drawn.append(part)
        if not drawn:
            return

        terms = {factor: term for part in self.parts for factor, term in part.precision_terms().items()}
        context = replace(context, terms=terms)
        replicated = [parameters for part in drawn for parameters in part.replicated]
        before = arrays_of(replicated)

        def draw(sums: dict[str, Float64]) -> dict[str, Float64]:
            take_all(replicated, {name: array.copy() for name, array in before.items()})
            rng = context.stream.generator(Purpose.HYPERPARAMETERS)
            for subchain in range(len(context.positions)):
                for part in drawn:
                    part.draw_shared(subchain, sums, context, rng)
            return arrays_of(replicated)

        take_all(replicated, context.circulation.ring.sum(partials, draw, shapes_of(before)))

    # ------------------------------------------------------------------ contents of a draw

    def parameters(self, subchain: int) -> dict[str, Float64]:
        """The small parameters of a draw, in the ratings' own unit."""
        unit, scale = self.rows.unit, self.rows.scale
        drawn = (pair for sampled in self.replicated for pair in sampled.drawn(subchain))
        return {quantity.name: quantity.in_rating_unit(value, unit, scale) for quantity, value in drawn}

    @cached_property
    def units(self) -> dict[str, Array | float]:
        """For every quantity of rows that a draw has, the factor that converts it to the ratings' own unit."""
        columns, rating = self.rows.unit, self.rows.scale
        units: dict[str, Array | float] = {}
        for quantity in self.quantities.drawn_of_rows:
            unit: Array | float = float(rating**quantity.rating)
            if quantity.columns:
                unit = quantity.in_rating_unit(np.ones(len(columns)), columns, rating).astype(np.float32)
            units[quantity.name] = unit
        return units
