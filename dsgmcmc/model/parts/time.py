r"""Effects of levels of time: what the ratings of a user, or an item, that were given together have in common.

With l the levels, g_l(ij) the group of rating ij at level l (`dsgmcmc.model.parts.time_levels`),

    eta_ij    =  a_i + b_j + W_i . H_j + sum_l d_{l, g_l(ij)}
    d_lg ~ N(0, 1 / lambda_l),      lambda_l ~ Gamma(1, rate RATE)

Every few sweeps one level after another is drawn given everything else: exactly where ratings are normal
(`dsgmcmc.model.parts.normal_effects`), elsewhere by Metropolis's rule (`dsgmcmc.model.parts.metropolis_effects`).
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
from dsgmcmc.model.parts.base import DrawContext, Effects, FeatureSizes, Place, SavedDraw
from dsgmcmc.model.parts.group_effects import EffectPrecision, GroupEffects
from dsgmcmc.model.parts.metropolis_effects import MetropolisDraws
from dsgmcmc.model.parts.normal_effects import NormalDraws
from dsgmcmc.model.parts.time_levels import TimeGroups, canonical, levels_of, no_times, read_groups
from dsgmcmc.model.quantity import Quantity
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Float32, Int32

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.model.likelihoods.base import Law  # which is a part itself
    from dsgmcmc.parallel.ring import Ring  # which loads MPI


class TimeSettings(BaseModel):
    """Settings of effects of time."""

    time_levels: str = setting(
        "Ratings of a user (or item) that share an effect: those of one second (page), or so many in a row.",
        "no",
        metavar="user|user:page,user:8,...",
    )

    @field_validator("time_levels")
    @classmethod
    def _levels(cls, value: str) -> str:
        return canonical(value)


class TimeEffects(Effects):
    """The effects of all levels of time, and the ratings without them, or with these for offsets.

    Parameters
    ----------
    groups : TimeGroups
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

    Settings = TimeSettings

    def __init__(
        self, groups: TimeGroups, ratings: RatingBlocks, ring: Ring, law: type[Law], rank: int, biases: bool
    ) -> None:
        self.groups, self._normal = groups, law.is_conditionally_gaussian()
        self._effects = GroupEffects(groups, ratings, ring, law.width)
        self._draw = (NormalDraws if self._normal else MetropolisDraws)(self._effects, rank, biases)
        self.ratings, self.parameters = copy(ratings), self._effects.parameters
        self.quantities = EffectPrecision.about(())
        self.test: dict[int, Float32] = {}
        self.start(())

    @classmethod
    def check(cls, config: Any) -> None:
        """See `Part.check`: effects are of ratings, need their scores, and change what gradients are of."""
        if config.time_levels == "no":
            return
        if not config.law.is_sum_over_ratings():
            raise InputError(
                f"with the {config.likelihood} likelihood pairs without a click count, too, and they have no time: "
                "leave out time_levels"
            )
        if not (config.law.is_conditionally_gaussian() or config.law.has_score()):
            raise InputError(
                f"effects of time need {config.law.__name__}.score_terms, as {config.likelihood} has a gradient of its "
                "own: define it, or leave out time_levels"
            )
        if config.interleaved or config.sampler.kind.estimator(config.sampler.config).fixed_likelihood:
            raise InputError(
                f"{config.sampler.name} keeps gradients, which effects of time would change: use another "
                f"{named('sampler')} or sampler.gradient, or {named('time_levels')} no"
            )

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """See `Part.check_ratings`."""
        if config.time_levels != "no" and ratings.times is None:
            raise no_times(ratings.path)

    @classmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """See `Part.quantities_of`."""
        return () if config.time_levels == "no" else EffectPrecision.about(())

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> TimeGroups | None:
        """See `Part.read`."""
        names = levels_of(config.time_levels, ratings.transposed)
        return read_groups(names, ratings, blocks, ring) if names else None

    @classmethod
    def of(cls, place: Place, data: TimeGroups | None) -> Self | None:
        """See `Part.of`."""
        if data is None:
            return None
        config = place.config
        return cls(data, place.ratings, place.ring, config.law, config.rank, config.biases)

    @property
    def replicated(self) -> tuple[EffectPrecision]:
        """See `Part.replicated`."""
        return (self.parameters,)

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """See `Part.start`."""
        self._effects.start()
        self._applied = False

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """See `Part.saved`: the effects."""
        for level, blocks in zip(self._effects.levels, self._effects.values, strict=True):
            for b, effects in blocks.items():
                yield Key("state", level.factor.name, b, f"time.{level.name.replace(':', '.')}"), effects

    def loaded(self) -> None:
        """See `Part.loaded`."""
        self._applied = False

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """See `Part.begin`: gives the ratings their effects, if these were set from outside."""
        if not self._applied:
            self._apply()

    def _apply(self) -> None:
        """Take the effects off the training ratings, or make offsets of them; and sum the test ratings'. Collective."""
        given = self._effects.given
        left = {
            cell: block.values.copy() if self._normal else np.zeros_like(block.values) for cell, block in given.items()
        }
        self.test = self._effects.subtract(left)
        self.ratings.train = {
            cell: replace(block, values=left[cell]) if self._normal else replace(block, offsets=-left[cell])
            for cell, block in given.items()
        }
        self._applied = True

    @classmethod
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[float, float]:
        """See `Part.of_ratings`: of a rating whose groups are not known."""
        precision = draw.shared.get("time.precision")
        return 0.0, 0.0 if precision is None else float((1 / precision).sum(axis=-1))

    def renews_data(self, turn: int) -> bool:
        """See `Part.renews_data`."""
        return turn > 0 and turn % self._draw.every == 1

    def draw(self, context: DrawContext) -> None:
        """See `Part.draw`: all effects and their precisions."""
        if context.is_turn(self._draw.every):
            self._draw(context)
            self._apply()
