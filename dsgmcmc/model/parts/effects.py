r"""Effects of groups of ratings that were given together in time.

With l the levels of time and g_l(ij) the group of rating ij at level l (`dsgmcmc.model.parts.groups`),

    eta_ij    =  a_i + b_j + W_i . H_j + sum_l d_{l, g_l(ij)}
    d_lg ~ N(0, 1 / lambda_l),      lambda_l ~ Gamma(1, rate RATE)

Every few sweeps one level after another is drawn given everything else: exactly where ratings are normal, elsewhere by
Metropolis's rule (`dsgmcmc.model.parts.effect_draws`).
Normal ratings have the effects taken off, so that all else is drawn as without; others have them for offsets of their
predictors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import BaseModel, field_validator

from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import DrawContext, FeatureSizes, Part, Place
from dsgmcmc.model.parts.effect_draws import MetropolisDraws, NormalDraws
from dsgmcmc.model.parts.group_effects import EffectParameters, GroupEffects
from dsgmcmc.model.parts.groups import RatingGroups, canonical_levels, no_times, read_groups, time_levels_of
from dsgmcmc.model.quantity import Quantity, SavedDraw
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Float32, Int32

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

    @field_validator("time_levels")
    @classmethod
    def _levels(cls, value: str) -> str:
        return canonical_levels(value)


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
        self.ratings, self.quantities = copy(ratings), EffectParameters.about(())
        self.test: dict[int, Float32] = {}
        self.start(())

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse settings of a run (`dsgmcmc.config.run.ResolvedConfig`) that the part cannot be combined with.

        Here: effects are of ratings, need their scores, and change what gradients are of.
        """
        if config.time_levels == "no":
            return
        leave = f"leave out {named('time_levels')}"
        if not config.law.is_sum_over_ratings():
            raise InputError(
                f"with the {config.likelihood} likelihood pairs without a click count, too, which have no time: {leave}"
            )
        if not (config.law.is_conditionally_gaussian() or config.law.has_score()):
            raise InputError(
                f"effects of time need {config.law.__name__}.score_terms, as {config.likelihood} has a "
                f"gradient of its own: define it, or {leave}"
            )
        if config.interleaved or config.sampler.kind.estimator(config.sampler.config).fixed_likelihood:
            raise InputError(
                f"{config.sampler.name} keeps gradients, which effects of time would change: "
                f"use another {named('sampler')} or sampler.gradient, or {leave}"
            )

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file that lacks what the part needs. Called before anything is allocated."""
        if config.time_levels != "no" and ratings.times is None:
            raise no_times(ratings.path)

    @classmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """The quantities that the part keeps; none if the run does not use it."""
        return () if config.time_levels == "no" else EffectParameters.about(())

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> RatingGroups | None:
        """Read what the part needs from the ratings file, once for all chains of a run. Collective."""
        levels = time_levels_of(config.time_levels, ratings.transposed)
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
        """What else the part keeps for these row blocks, to be saved in a checkpoint: the effects."""
        for level, blocks in zip(self.effects.levels, self.effects.values, strict=True):
            yield from ((Key("state", level.factor.name, b, level.field), each) for b, each in blocks.items())

    def loaded(self) -> None:
        """Update derived state, after a checkpoint has replaced the fields of blocks and `replicated`."""
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
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[float, float]:
        """Mean and variance of what the part adds to the predictors of new ratings, at one draw.

        Here: their groups are not known, so that all effects have their prior.
        """
        precisions = draw.shared.get("time.precision", np.zeros(0))
        return 0.0, float((1 / precisions).sum())

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
