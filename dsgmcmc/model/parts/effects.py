r"""Effects of groups of ratings: of ratings given together in time, and of ratings with the same context.

With l the levels, g_l(ij) the group of rating ij at level l: levels of time (`dsgmcmc.model.parts.groups`), then terms
of the context (`dsgmcmc.model.parts.context`),

    eta_ij    =  a_i + b_j + W_i . H_j + sum_l d_{l, g_l(ij)}
    d_lg ~ N(0, 1 / lambda_l),      lambda_l ~ Gamma(1, rate RATE)

Every few sweeps one level after another is drawn given everything else: exactly where ratings are normal, elsewhere by
Metropolis's rule (`dsgmcmc.model.parts.effect_draws`).
Normal ratings have the effects taken off, so that all else is drawn as without; others have them for offsets of their
predictors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import BaseModel, field_validator

from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import DrawContext, FeatureSizes, Part, Place
from dsgmcmc.model.parts.context import ContextTerm, GivenTerm, canonical_terms, check_columns, terms_of
from dsgmcmc.model.parts.effect_draws import MetropolisDraws, NormalDraws
from dsgmcmc.model.parts.group_effects import EffectParameters, GroupEffects
from dsgmcmc.model.parts.groups import (
    Level,
    RatingGroups,
    canonical_levels,
    no_times,
    read_groups,
    time_levels_of,
)
from dsgmcmc.model.quantity import Quantity, SavedDraw
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Int32

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.model.likelihoods.base import Law  # which is a part itself
    from dsgmcmc.parallel.ring import Ring  # which loads MPI


class EffectSettings(BaseModel):
    """Settings of effects of groups of ratings."""

    time_levels: str = setting(
        "Ratings of a user (or item) that share an effect: those of one second (page), or so many in a row.",
        "no",
        metavar="user|user:page,user:8,...",
    )

    context: str = setting(
        "Context columns whose categories have effects, for all ratings or within each user or item.",
        "no",
        metavar="COLUMN|user:COLUMN|item:COLUMN,...",
    )

    @field_validator("time_levels")
    @classmethod
    def _levels(cls, value: str) -> str:
        return canonical_levels(value)

    @field_validator("context")
    @classmethod
    def _terms(cls, value: str) -> str:
        return canonical_terms(value)


def levels_of(config: Any, transposed: bool) -> tuple[Level, ...]:
    """All levels of a run's configuration; `transposed` says that the rows of W are items."""
    times = time_levels_of(config.time_levels, transposed)
    return (*times, *terms_of(config.context, transposed))


def quantities_of(levels: Sequence[Level]) -> tuple[Quantity, ...]:
    """What a chain keeps of levels."""
    terms = [level for level in levels if isinstance(level, ContextTerm)]
    there = {
        "of_time": len(terms) < len(levels),
        "of_context": bool(terms),
        "shared": None in [t.factor for t in terms],
    }
    parameters = EffectParameters.about((), without=[name for name, is_there in there.items() if not is_there])
    return (*parameters, *(term.quantity for term in terms if term.factor is not None))


class RatingEffects(Part):
    """The effects of all levels, and the ratings without them, or with these for offsets.

    Parameters
    ----------
    groups : RatingGroups
        Which ratings are together.
    ratings : RatingBlocks
        This process's ratings; they stay as they are.
    ring : Ring
        The processes of the chain.
    law : type of Law
        Of a rating.
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    """

    Settings = EffectSettings
    has_effects = True

    def __init__(
        self, groups: RatingGroups, ratings: RatingBlocks, ring: Ring, law: type[Law], rank: int, biases: bool
    ) -> None:
        self.groups, self._normal = groups, law.is_conditionally_gaussian()
        self.effects = GroupEffects(groups, ratings, ring, law.width)
        self._draw = (NormalDraws if self._normal else MetropolisDraws)(self.effects, rank, biases)
        self.ratings, self.quantities = copy(ratings), quantities_of(groups.levels)
        self.test: dict[int, Float32] = {}
        self.start(())

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse settings of a run (`dsgmcmc.config.run.ResolvedConfig`) that the part cannot be combined with.

        Here: effects are of ratings, need their scores, and change what gradients are of.
        """
        used = [name for name in EffectSettings.model_fields if getattr(config, name) != "no"]
        if not used:
            return
        leave = f"leave out {' and '.join(map(named, used))}"
        if not config.law.is_sum_over_ratings():
            raise InputError(
                f"with the {config.likelihood} likelihood pairs without a click count, too, which have no time and "
                f"no context: {leave}"
            )
        if not (config.law.is_conditionally_gaussian() or config.law.has_score()):
            raise InputError(
                f"effects of time and of context need {config.law.__name__}.score_terms, as {config.likelihood} has a "
                f"gradient of its own: define it, or {leave}"
            )
        if config.interleaved or config.sampler.kind.estimator(config.sampler.config).fixed_likelihood:
            raise InputError(
                f"{config.sampler.name} keeps gradients, which effects of time and of context would change: "
                f"use another {named('sampler')} or sampler.gradient, or {leave}"
            )

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file that lacks what the part needs. Called before anything is allocated."""
        if config.time_levels != "no" and ratings.times is None:
            raise no_times(ratings.path)
        check_columns(config.context, ratings)

    @classmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """The quantities that the part keeps; none if the run does not use it."""
        return quantities_of(levels_of(config, transposed))

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> RatingGroups | None:
        """Read what the part needs from the ratings file, once for all chains of a run. Collective."""
        levels = levels_of(config, ratings.transposed)
        return read_groups(levels, ratings, blocks, ring) if levels else None

    @classmethod
    def of(cls, place: Place, data: RatingGroups | None) -> Self | None:
        """Make the part of a chain; None if the run does not use it. Collective."""
        if data is None:
            return None
        config = place.config
        return cls(data, place.ratings, place.ring, config.law, config.rank, config.biases)

    @property
    def replicated(self) -> tuple[EffectParameters]:
        """The part's parameters that are the same on all processes."""
        return (self.effects.parameters,)

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields of the blocks and its shared parameters to their initial values."""
        self.effects.start()
        self._applied = False

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """What else the part keeps for these row blocks, to be saved in a checkpoint.

        Here: the effects of groups that belong to rows.
        """
        for level, blocks in zip(self.effects.levels, self.effects.values, strict=True):
            if level.factor is not None:
                yield from ((Key("state", level.factor.name, b, level.field), each) for b, each in blocks.items())

    def at_home(self) -> Iterator[tuple[Factor, int, str, Float32]]:
        """Quantities of rows that stay with their block's home (`Quantity.at_home`).

        Here: the effects of every row's categories.
        """
        for level, blocks in zip(self.effects.levels, self.effects.values, strict=True):
            if isinstance(level, ContextTerm) and level.factor is not None:
                for b, effects in blocks.items():
                    start, stop = self.ratings.bounds(level.factor, b)
                    yield level.factor, b, level.field, effects.reshape(stop - start, -1)

    def loaded(self) -> None:
        """Update derived state, after a checkpoint has replaced the fields of blocks and `replicated`."""
        self.effects.loaded()
        self._applied = False

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Prepare for an iteration; `first` says whether it is the first of a sweep. Collective.

        Here: gives the ratings their effects, if these were set from outside.
        """
        if not self._applied:
            self._apply()

    def _apply(self) -> None:
        """Take the effects off the training ratings, or make offsets of them; and sum the test ratings'. Collective."""
        given = self.effects.given
        left = {
            cell: np.array(block.values) if self._normal else np.zeros(len(block.indices), np.float32)
            for cell, block in given.items()
        }
        self.test = self.effects.subtract(left)
        self.ratings.train = {
            cell: block.with_values(left[cell]) if self._normal else replace(block, offsets=-left[cell])
            for cell, block in given.items()
        }
        self._applied = True

    @classmethod
    def of_ratings(
        cls, draw: SavedDraw, users: Int32, items: Int32, given: Sequence[GivenTerm]
    ) -> tuple[Float32 | float, Float32 | float]:
        """Mean and variance of what the part adds to the predictors of new ratings, at one draw.

        Here: groups in time are not known, categories may be.
        """
        precisions = draw.shared.get("time.precision", np.zeros(0))
        mean: Float32 | float = 0.0
        variance: Float32 | float = float((1 / precisions).sum())
        for term, precision in zip(given, draw.shared.get("context.precision", ()), strict=True):
            effects, spread = term.effects(draw, users, items, float(precision))
            mean, variance = mean + effects, variance + spread
        return mean, variance

    def renews_data(self, turn: int) -> bool:
        """Whether the draw at this turn changes the data of the likelihood, so that gradients must be recomputed."""
        return turn > 0 and turn % self._draw.every == 1

    def draw(self, context: DrawContext) -> None:
        """Draw everything that `draw_shared` does not draw, if it is due (`DrawContext.is_turn`).

        Here: all effects and their precisions. Collective.
        """
        if context.is_turn(self._draw.every):
            self._draw(context)
            self._apply()
