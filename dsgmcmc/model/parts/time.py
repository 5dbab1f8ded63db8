r"""Effects of groups of ratings that were given together in time.

With g_l(ij) the group of rating ij at level l (`dsgmcmc.model.parts.time_groups`),

    eta_ij   =  a_i + b_j + W_i . H_j + sum_l d_{l, g_l(ij)}
    d_lg     ~  N(0, 1 / lambda_l)
    lambda_l ~  Gamma(1, rate PRECISION_RATE)

If ratings are normal given their predictors, the effects are subtracted from them, so that other
parameters are drawn as in a model without effects. Under other likelihoods, the effects are offsets
of the predictors. Every few sweeps, one level after another is drawn given all other parameters
(`dsgmcmc.model.parts.time_draws`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import AfterValidator, BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels import effects as passes
from dsgmcmc.model.blocks import CellRatings, RatingBlocks
from dsgmcmc.model.parts.base import ChainFacts, DrawContext, FileFacts, ModelFacts, Part, is_due
from dsgmcmc.model.parts.time_draws import ByCell, MetropolisDraw, NormalDraw
from dsgmcmc.model.parts.time_groups import (
    PAGE,
    GroupEffects,
    RatingGroups,
    counted_times,
    read_groups,
    time_levels_of,
)
from dsgmcmc.model.quantity import Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32

#: Initial precision of every level's effects, for likelihoods of `width` 1.
START_PRECISION = 50.0

#: Levels that the name of an entity alone stands for; measurements showed that they improve
#: predictions.
DEFAULT_LEVELS = {"user": "user:page,user:8,user:64", "item": "item:32"}


def canonical_levels(text: str) -> str:
    """Return the names of all levels in a setting's text, in the order of their draws, or ``no``.

    Raises
    ------
    ValueError
        If a name is unknown, or occurs twice.
    """
    if text == "no":
        return text
    names = []
    for word in text.split(","):
        name = word.strip()
        names += DEFAULT_LEVELS.get(name, name).split(",")
    for name in names:
        if not _is_level(name):
            raise ValueError(
                f"{name!r} is not known: expected no, user, item, or levels like"
                f" {DEFAULT_LEVELS['user']}"
            )
    if len(set(names)) < len(names):
        raise ValueError("names a level twice")
    return ",".join(names)


def _is_level(name: str) -> bool:
    entity, _, size = name.partition(":")
    if entity not in DEFAULT_LEVELS:
        return False
    return size == PAGE or (size.isdecimal() and 2 <= int(size) < 2**31)


class TimeSettings(BaseModel):
    """Settings of effects of time."""

    time_levels: Annotated[str, AfterValidator(canonical_levels)] = setting(
        "Ratings of a user (or item) that share a time effect: ratings of one second (page), or N"
        " successive ratings.",
        "no",
        metavar="user|user:page,user:8,...",
    )

    @property
    def times(self) -> tuple[str, ...]:
        """Names of the time levels."""
        if self.time_levels == "no":
            return ()
        return tuple(self.time_levels.split(","))


@dataclass
class TimeParameters(Sampled):
    """Precision lambda of the effects of each level, (L,) float64."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "precision": Quantity(
            "time.precision",
            ("time_level",),
            rating=-2,
            positive=True,
            diagnosed="time_sd_{label}",
            as_sd=True,
        )
    }

    precision: Float64


class TimeEffects(Part[TimeSettings]):
    """The effects of all levels of time, and the ratings without them or with them as offsets.

    Parameters
    ----------
    groups : RatingGroups
        The group of every rating at every level.
    chain : ChainFacts
        Model, ratings and processes of the chain; its ratings are not changed.

    Attributes
    ----------
    original : dict of (int, int) to CellRatings
        The training ratings without effects subtracted or offsets set, by cell.
    values : list of dict of int to (G,) float32
        By level, the effects of each block of the level's factor whose home is this process.
    """

    Settings = TimeSettings
    has_effects = True
    parameters: TimeParameters

    def __init__(self, groups: RatingGroups, chain: ChainFacts) -> None:
        law = chain.model.law
        self.groups = groups
        self.original = chain.ratings.train
        self.ratings = copy(chain.ratings)
        self.quantities = TimeParameters.about(())
        self.test: dict[int, Float32] = {}
        self._start_precision = START_PRECISION / law.width**2
        self._effects = GroupEffects(groups, chain.ring, self.original)
        self.values = self._effects.values
        self._is_normal = law.is_conditionally_gaussian()
        self._draw_type: type[NormalDraw | MetropolisDraw] = MetropolisDraw
        if self._is_normal:
            self._draw_type = NormalDraw
        self.start(())

    @classmethod
    @override
    def check(cls, settings: TimeSettings, model: ModelFacts) -> None:
        """Refuse likelihoods without scores, and samplers that store gradients.

        Effects change stored gradients.
        """
        if settings.time_levels == "no":
            return
        law = model.law
        sampler = model.sampler
        leave = f"leave out {named('time_levels')}"
        has_score = law.is_conditionally_gaussian() or law.has_score()
        if not (has_score and law.is_sum_over_ratings):
            raise InputError(
                f"effects of time need {law.__name__}.scores, the score of every rating: {leave}"
            )
        if sampler.interleaved or sampler.keeps_gradients:
            change = f"use another {named('sampler')} or sampler.gradient, or {leave}"
            raise InputError(
                f"{sampler.name} keeps gradients, which effects of time would change: {change}"
            )

    @classmethod
    @override
    def check_ratings(cls, settings: TimeSettings, model: ModelFacts, ratings: Ratings) -> None:
        """Refuse a ratings file without times."""
        if settings.time_levels != "no":
            counted_times(ratings, Factor.W)

    @classmethod
    @override
    def quantities_of(
        cls, settings: TimeSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        if settings.time_levels == "no":
            return ()
        return TimeParameters.about(())

    @classmethod
    @override
    def read(
        cls, settings: TimeSettings, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> RatingGroups | None:
        """Read the groups of ratings, once for all chains of a run. Collective."""
        levels = time_levels_of(settings.times, ratings.orientation)
        if not levels:
            return None
        return read_groups(levels, ratings, blocks, ring)

    @classmethod
    @override
    def create(
        cls, settings: TimeSettings, chain: ChainFacts, data: RatingGroups | None
    ) -> Self | None:
        if data is None:
            return None
        return cls(data, chain)

    # ------------------------------------------------------------------ the state of a chain

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set all effects to 0, and their precisions to the initial value."""
        for by_block in self.values:
            for effects in by_block.values():
                effects.fill(0.0)
        self.parameters = TimeParameters(np.full(len(self.groups.levels), self._start_precision))
        self._is_applied = False

    @override
    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """All effects, to be saved in a checkpoint."""
        for level, by_block in zip(self.groups.levels, self.values, strict=True):
            for b, effects in by_block.items():
                yield Key("state", level.factor.name, b, level.field), effects

    @override
    def loaded(self) -> None:
        """Mark the effects as not applied, after a checkpoint has replaced them."""
        self._is_applied = False

    @override
    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Apply the effects to the ratings, if `start` or a checkpoint has replaced the effects.

        Collective.
        """
        if not self._is_applied:
            self._apply()

    def _apply(self) -> None:
        """Apply the effects to training ratings, and add up those on test ratings. Collective."""
        adjusted: ByCell = {}
        for cell, block in self.original.items():
            if self._is_normal:
                adjusted[cell] = np.array(block.values)
            else:
                adjusted[cell] = np.zeros(len(block.indices), np.float32)
        self.test = {
            b: np.zeros(len(rows.values), np.float32) for b, rows in self.ratings.test.items()
        }
        for number, values in enumerate(self.values):
            train_groups = self.groups.train[number]
            test_groups = self.groups.test[number]
            for (b, c), effects in self._effects.visit(number, values):
                passes.subtract_groups(train_groups[b, c], effects, adjusted[b, c])
                chosen = self.ratings.test[b].by_column[c].selection
                self.test[b][chosen] += effects[test_groups[b][chosen]]
        self.ratings.train = {
            cell: self._with_effects(block, adjusted[cell]) for cell, block in self.original.items()
        }
        self._is_applied = True

    def _with_effects(self, block: CellRatings, adjusted: Float32) -> CellRatings:
        """A cell with the adjusted values or, if ratings are not normal, offsets."""
        if self._is_normal:
            return block.with_values(adjusted)
        return replace(block, offsets=-adjusted)

    # ------------------------------------------------------------------ draws, and predictions

    @override
    def renews_data(self, sweep: int) -> bool:
        return is_due(sweep, self._draw_type.every)

    @override
    def draw(self, context: DrawContext) -> None:
        """Draw all effects and their precisions, one level after another, if due. Collective."""
        if not context.is_due(self._draw_type.every):
            return
        drawing = self._draw_type(self._effects, self.parameters.precision, context)
        for number, groups in enumerate(self.groups.train):
            for cell, changes in self._effects.visit(number, drawing.level(number)):
                passes.subtract_groups(groups[cell], changes, drawing.kept[cell])
        self._apply()

    @classmethod
    @override
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[float, float]:
        """Mean and variance of the sum of effects on a new rating, whose groups are unknown."""
        precisions = draw.shared.get("time.precision", np.zeros(0))
        return 0.0, float((1 / precisions).sum())
