r"""Effects of levels of time: what the ratings of a user, or an item, that were given together have in common.

With l the levels, g_l(ij) the group of rating ij at level l (`dsgmcmc.model.parts.time_levels`),

    x_ij ~ N(eta_ij + sum_l d_{l, g_l(ij)}, 1 / (tau g_i g'_j))
    d_lg ~ N(0, 1 / lambda_l),      lambda_l ~ Gamma(1, rate RATE)

The chain's ratings have the effects taken off, so that all else is drawn as without; the residuals e are of them. Given
everything else, with N_g the sum of w = tau g g' over the training ratings of group g and B_g that of w (e + d_g), one
level after another, every `EVERY` sweeps:

    d_g | rest      ~ N(B_g / (N_g + lambda), 1 / (N_g + lambda))
    lambda | d      ~ Gamma(1 + G / 2, rate RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,  c ~ N(sum d_g B_g / S, 1 / S),  S = sum d_g^2 N_g

all exact. The last is a step in lambda^-1/2 given d lambda^1/2, accepted with the ratio of its priors; it moves effects
and precision together, which takes them where they belong where groups have few ratings, as the other two do where they
have many [Yu & Meng 2011]. Sums and G are over groups with training ratings; the others have their prior N(0, 1 /
lambda).

The groups of a row of W are all with its process, and cost no message; those of a column are drawn where its block is
at home, from sums that go round the ring, and go round themselves.

[Yu & Meng 2011] To center or not to center: that is not the question. J. Comput. Graph. Stat. 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, field_validator

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.groups import add_to_groups, residual_kernel, subtract_groups, weigh_ratings
from dsgmcmc.kernels.philox import normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import DrawContext, Effects, FeatureSizes, Place, SavedDraw
from dsgmcmc.model.parts.time_levels import TimeGroups, canonical, levels_of, no_times, read_groups
from dsgmcmc.model.quantity import WEIGHT, Quantity, Sampled
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Purpose

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings
    from dsgmcmc.parallel.ring import Ring  # which loads MPI

#: Sweeps between draws: one costs about as much as the gradients of three sweeps.
EVERY = 5
RATE = 0.1
START = 50.0

Cells = dict[tuple[int, int], Float32]


@dataclass
class TimePrecision(Sampled):
    """Precisions lambda of the effects of all levels, (L,) float64."""

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


class TimeSettings(BaseModel):
    """Settings of effects of time."""

    time_levels: str = setting(
        "Which ratings of a user (item) share an effect: those of one second (page), or so many in a row.",
        "no",
        metavar="user|user:page,user:8,...",
    )

    @field_validator("time_levels")
    @classmethod
    def _levels(cls, value: str) -> str:
        return canonical(value)


class TimeEffects(Effects):
    """The effects of all levels of time, and the ratings without them.

    Parameters
    ----------
    groups : TimeGroups
        Which ratings are together.
    ratings : RatingBlocks
        This process's ratings; they stay as they are.
    ring : Ring
        The processes of the chain.
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.
    """

    Settings = TimeSettings

    def __init__(self, groups: TimeGroups, ratings: RatingBlocks, ring: Ring, rank: int, biases: bool) -> None:
        self.groups, self.ring, self._given = groups, ring, ratings.train
        self.levels, self._residual_kernel = groups.levels, residual_kernel(rank, biases)
        self.ratings = copy(ratings)
        self.parameters, self.quantities = TimePrecision(np.zeros(0)), TimePrecision.about(())
        self._effects = [
            {b: np.zeros(self.groups.size(number, b), np.float32) for b in ring.blocks}
            for number in range(len(self.levels))
        ]
        self.test: dict[int, Float32] = {}
        self.start(())

    @classmethod
    def check(cls, config: Any) -> None:
        """See `Part.check`: effects are drawn from normal laws, and change the ratings."""
        if config.time_levels == "no":
            return
        if not (config.law.is_sum_over_ratings() and config.law.is_conditionally_gaussian()):
            raise InputError(
                f"effects of time are drawn from normal laws, which they do not have with the {config.likelihood} "
                "likelihood: leave out time_levels"
            )
        if config.interleaved or config.sampler.kind.estimator(config.sampler.config).fixed_likelihood:
            raise InputError(
                f"effects of time change the ratings that {config.sampler.name} remembers gradients of: use another "
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
        return () if config.time_levels == "no" else TimePrecision.about(())

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
        return cls(data, place.ratings, place.ring, place.config.rank, place.config.biases)

    @property
    def replicated(self) -> tuple[TimePrecision]:
        """See `Part.replicated`."""
        return (self.parameters,)

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """See `Part.start`."""
        for effects in (effects for blocks in self._effects for effects in blocks.values()):
            effects.fill(0.0)
        self.parameters.precision = np.full(len(self.levels), START)
        self._applied = False

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """See `Part.saved`: the effects."""
        for level, blocks in zip(self.levels, self._effects, strict=True):
            for b, effects in blocks.items():
                yield Key("state", level.factor.name, b, f"time.{level.name.replace(':', '.')}"), effects

    def loaded(self) -> None:
        """See `Part.loaded`."""
        self._applied = False

    # ------------------------------------------------------------------ the ratings without them

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """See `Part.begin`: takes the effects off the ratings, if they were set from outside."""
        if not self._applied:
            self._apply()

    def _apply(self) -> None:
        """Take the effects off the training ratings, and sum them for the test ratings. Collective."""
        values = {cell: block.values.copy() for cell, block in self._given.items()}
        self.test = {b: np.zeros(len(rows.values), np.float32) for b, rows in self.ratings.test.items()}
        for number, level in enumerate(self.levels):
            if level.factor == Factor.W:
                for b, effects in self._effects[number].items():
                    self.test[b] += effects[self.groups.test[number][b]]
            for (b, c), effects in self._round(number, self._effects[number]):
                subtract_groups(self.groups.train[number][b, c], effects, values[b, c])
                if level.factor == Factor.H:
                    chosen = self.ratings.test[b].by_column[c][0]
                    self.test[b][chosen] += effects[self.groups.test[number][b][chosen]]
        self.ratings.train = {cell: replace(block, values=values[cell]) for cell, block in self._given.items()}
        self._applied = True

    def _round(
        self, number: int, arrays: dict[int, Float32], returning: bool = False
    ) -> Iterator[tuple[tuple[int, int], Float32]]:
        """Show every cell an array of its block's groups; with `returning`, of two columns and changed. Collective."""
        if self.levels[number].factor == Factor.W:
            yield from (((b, c), arrays[b]) for b, c in self._given)
            return
        home = dict(arrays)
        for b, c, buffer in self.ring.tour(home, lambda c: (1 + returning) * self.groups.size(number, c), returning):
            yield (b, c), buffer
        if returning:
            arrays |= home

    # ------------------------------------------------------------------ drawing

    @classmethod
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[float, float]:
        """See `Part.of_ratings`: of a rating whose groups are not known."""
        precision = draw.shared.get("time.precision")
        return 0.0, 0.0 if precision is None else float((1 / precision).sum(axis=-1))

    def renews_data(self, turn: int) -> bool:
        """See `Part.renews_data`."""
        return turn > 0 and turn % EVERY == 1

    def draw(self, context: DrawContext) -> None:
        """See `Part.draw`: all effects and their precisions."""
        if not context.is_turn(EVERY):
            return
        residuals, weights = self._residuals(context)
        for number in range(len(self.levels)):
            sums = {b: np.zeros(2 * len(effects), np.float32) for b, effects in self._effects[number].items()}
            for cell, buffer in self._round(number, sums, returning=True):
                add_to_groups(self.groups.train[number][cell], residuals[cell], weights[cell], buffer.reshape(-1, 2))
            change = self._draw_level(number, sums, context.stream)
            for cell, effects in self._round(number, change):
                subtract_groups(self.groups.train[number][cell], effects, residuals[cell])
        self._apply()

    def _residuals(self, context: DrawContext) -> tuple[Cells, Cells]:
        """Residuals of the training ratings, and how precise each is. Collective."""
        tau, held = context.tau(), next(context.circulation.blocks()).arrays
        own = (WEIGHT.name,) if WEIGHT.name in held else ()
        residuals = {cell: np.empty_like(block.values) for cell, block in self._given.items()}
        weights = {cell: np.full_like(block.values, tau) for cell, block in self._given.items()}
        for row, column, ratings in context.circulation.tour((context.position, *own)):
            cell = row.index, column.index
            place = (ratings.indptr, ratings.indices)
            self._residual_kernel(
                *place, ratings.values, row[context.position], column[context.position], residuals[cell]
            )
            if own:
                scales = (row.row(WEIGHT.name), column.row(WEIGHT.name))
                weigh_ratings(*place, np.float32(tau) * scales[0], scales[1], weights[cell])
        return residuals, weights

    def _draw_level(self, number: int, sums: dict[int, Float32], stream: Stream) -> dict[int, Float32]:
        """Draw the effects of a level, given sums over its groups, and their precision; what they change by."""
        precisions, blocks = self.parameters.precision, self._effects[number]
        before = float(precisions[number])
        draws = {b: self._draw_block(number, b, sums[b].reshape(-1, 2), before, stream) for b in blocks}

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = stream.generator(Purpose.TIME_PRECISION, part=number)
            return dict(zip(("precision", "scale"), draw_precision(total["sums"], rng), strict=True))

        partials = [[{"sums": draw.sums}] for draw in draws.values()]
        drawn = self.ring.sum(partials, finish, {"precision": (1,), "scale": (1,)})
        precisions[number] = drawn["precision"][0]
        change = {}
        for b, draw in draws.items():
            effects = np.where(draw.seen, drawn["scale"] * draw.effects, draw.noise / np.sqrt(drawn["precision"]))
            change[b] = effects.astype(np.float32) - blocks[b]
            blocks[b][:] = effects
        return change

    def _draw_block(self, number: int, block: int, sums: Float32, precision: float, stream: Stream) -> _BlockDraw:
        """Draw the effects of a block given their precision."""
        level, old = self.levels[number], self._effects[number][block]
        noise = np.empty(len(old), np.float32)
        first = (number << 44) + int(self.groups.first[number][block])
        normals(noise, *stream.key(Purpose.TIME, level.factor, first))
        n = sums[:, 1].astype(np.float64)
        fit = sums[:, 0] + n * old
        new = fit / (n + precision) + noise / np.sqrt(n + precision)
        seen = n > 0
        own = new[seen]
        total = np.array([len(own), own @ own, own @ fit[seen], own * own @ n[seen]])
        return _BlockDraw(new, noise, seen, total)


class _BlockDraw(NamedTuple):
    """Effects of a block's groups, the normals that they were drawn with, who has training ratings, and sums of these.

    The sums are of 1, of d^2, of d B and of d^2 N.
    """

    effects: Float64
    noise: Float32
    seen: NDArray[np.bool_]
    sums: Float64


def draw_precision(sums: Float64, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Draw the precision of a level's effects, (1,), and what these are to be multiplied by, (1,).

    Parameters
    ----------
    sums : (4,) float64
        Over the groups with training ratings: G, sum d^2, sum d B, sum d^2 N.
    rng : Generator
        Source of randomness.
    """
    groups, squares, fit, weight = sums
    precision = rng.gamma(1 + groups / 2) / (RATE + squares / 2)
    scale = 1.0
    if weight > 0:
        proposal = rng.normal(fit / weight, 1 / np.sqrt(weight))
        ratio = RATE * precision * (1 - 1 / proposal**2) - 3 * np.log(abs(proposal))
        if np.log(rng.random()) < ratio:
            scale = proposal
    return np.array([precision / scale**2]), np.array([scale])
