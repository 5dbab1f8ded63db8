r"""Effects of groups of ratings that were given together in time.

A *level of time* divides the ratings of every row of a factor into groups. It is named after its
side and the size of its groups: ``user:page`` has a group for each second in which a user rated,
``user:8`` a group for every eight ratings of a user in the order of time. Levels of items are named
likewise. Each kind of level helps beside the other (docs/time.md). Test ratings belong to groups as
training ratings do. With g_l(ij) the group of rating ij at level l,

    eta_ij    =  a_i + b_j + W_i . H_j + sum_l d_{l, g_l(ij)}
    d_lg ~ N(0, 1 / lambda_l),      lambda_l ~ Gamma(1, rate PRECISION_RATE)

If ratings are normal given their predictors, the effects are subtracted from them, so that other
parameters are drawn as in a model without effects. Under other likelihoods, the effects are offsets
of the predictors. The groups of a row of W are on the row's process and need no messages; the
groups of a column are on the home of its block, and go round the ring. Every few sweeps, one level
after another is drawn given all other parameters.

*Ratings that are normal given their predictors*: effects are drawn exactly, from their
conditionals. Let e be the residual of a rating with all effects subtracted, and w = tau g g' its
precision. Let N_g be the sum of w over the training ratings of group g, and B_g the sum of w (e +
d_g). Then

    d_g | rest      ~ N(B_g / (N_g + lambda), 1 / (N_g + lambda))
    lambda | d      ~ Gamma(1 + G / 2, rate PRECISION_RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,  c ~ N(sum d_g B_g / S, 1 / S),  S = sum d_g^2 N_g

The last line is a step in lambda^-1/2 given d lambda^1/2, accepted with the ratio of the prior
densities of lambda^-1/2. It moves effects and precision together, which mixes well if groups have
few ratings; the first two lines mix well if groups have many [Yu & Meng 2011]. The sums and the
number G of groups cover the groups with training ratings; all other effects are drawn from the
prior N(0, 1 / lambda).

*Any other likelihood with a known score*: effects are proposed by noisy Newton steps. S_g and I_g
are the sums, over the training ratings of group g, of the score and the curvature of the log
density in the predictor (`dsgmcmc.kernels.effects`). L_g(d') is the change of these ratings' log
density if d_g becomes d'. All groups of a level are drawn at once, as they are independent given
all else:

    d' ~ N(d + (S_g - lambda d) / P, 1 / P),      P = I_g + lambda

accepted with probability min(1, exp(L_g(d') - lambda (d'^2 - d^2) / 2) q(d | d') / q(d' | d)),
where S and I are computed again at d' for the reverse density q(d | d'). The effect of a group
without training ratings is thus drawn from its prior. Then

    lambda | d      ~ Gamma(1 + G / 2, rate PRECISION_RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,      c ~ N(1 + T / V, 1 / V),  T = sum d_g S_g,  V = sum d_g^2 I_g

where the last line is accepted with probability min(1, exp(L(c d) + b lambda (1 - c^-2)) c^-4 q(1 /
c | c d) / q(c | d)), b = PRECISION_RATE. The factor c^-4 has two sources: c^-3 comes from the
measure c^-3 dc on the line of all c, and 1 / c from the density, as a function of c, of the reverse
step from c d, which multiplies by 1 / c.

[Yu & Meng 2011] To center or not to center: that is not the question. J. Comput. Graph. Stat. 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import inf, log
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import AfterValidator, BaseModel

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings_format import SIDES, SLAB, Split, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.kernels import effects as passes
from dsgmcmc.kernels.philox import normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import DrawContext, FeatureSizes, ModelFacts, Part, is_due
from dsgmcmc.model.quantity import Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import ParameterBlock, RandomStream
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64, Purpose

#: Rate of the prior of a precision, Gamma(1, rate PRECISION_RATE).
PRECISION_RATE = 0.1
#: Initial precision of every level's effects, for likelihoods of `width` 1.
START_PRECISION = 50.0

PAGE = "page"
#: Levels that the name of a side alone stands for; measurements showed that they improve
#: predictions.
DEFAULT_LEVELS = {"user": "user:page,user:8,user:64", "item": "item:32"}

#: One number for each training rating, (nnz,) float32 by cell.
ByCell = dict[tuple[int, int], Float32]
#: Changes of the effects of a level, and S, I and L there, (G, 4) float32 by block, as in
#: `dsgmcmc.kernels.effects`.
Sums = dict[int, Float32]


def counted_times(ratings: Ratings, factor: Factor) -> tuple[Int32, Int32]:
    """Number of ratings, and of different seconds with ratings, of every row of a factor, (n,)
    each.

    Raises
    ------
    InputError
        If the ratings file has no times.
    """
    if ratings.times is None:
        raise InputError(
            f"{ratings.path} has no times for {named('time_levels')}: prepare it again with"
            " --timestamps"
        )
    return ratings.times[SIDES[factor]]


def canonical_levels(text: str) -> str:
    """Return the names of all levels in a setting's text, in the order of their draws; ``no`` for
    none.

    Raises
    ------
    ValueError
        If a name is unknown, or occurs twice.
    """
    if text == "no":
        return text
    names = []
    for word in text.split(","):
        names += DEFAULT_LEVELS.get(word.strip(), word.strip()).split(",")
    for name in names:
        kind, _, size = name.partition(":")
        if kind not in DEFAULT_LEVELS or not (
            size == PAGE or (size.isdecimal() and 2 <= int(size) < 2**31)
        ):
            raise ValueError(
                f"{name!r} is not known: expected no, user, item, or levels like"
                f" {DEFAULT_LEVELS['user']}"
            )
    if len(set(names)) < len(names):
        raise ValueError("names a level twice")
    return ",".join(names)


class TimeLevel(NamedTuple):
    """One level of time.

    Attributes
    ----------
    name : str
        Such as ``user:8``.
    factor : Factor
        The factor to whose rows the groups belong.
    run : int
        Number of ratings in a group; 0 if groups are pages.
    """

    name: str
    factor: Factor
    run: int

    @property
    def field(self) -> str:
        """Name on disk of the level's effects."""
        return f"time.{self.name.replace(':', '.')}"

    def counts(self, ratings: Ratings) -> Int32:
        """Number of groups of every row of the level's factor, (n,)."""
        places, pages = counted_times(ratings, self.factor)
        return -(-places // np.int32(self.run)) if self.run else pages

    def within(self, ratings: Ratings, split: Split, start: int, stop: int) -> Int32:
        """Groups of the ratings in rows `start` to `stop` of a split, (m,), counted from 0 in every
        user or item.
        """
        times = ratings.times_slab(split, SIDES[self.factor], start, stop)
        return times.place // np.int32(self.run) if self.run else times.page


def time_levels_of(names: Iterable[str], transposed: bool) -> tuple[TimeLevel, ...]:
    """Levels of canonical names; `transposed` says that the rows of W are items."""
    levels = []
    for name in names:
        kind, _, size = name.partition(":")
        factor = Factor.W if (kind == "item") == transposed else Factor.H
        levels.append(TimeLevel(name, factor, 0 if size == PAGE else int(size)))
    return tuple(levels)


def costs_of(levels: Sequence[TimeLevel], ratings: Ratings, normal: bool) -> tuple[int, int]:
    """Bytes for the groups of all ratings in memory, and for their effects in a checkpoint.

    `normal` says whether ratings are normal given their predictors.
    """
    if not levels:
        return 0, 0
    counts = [level.counts(ratings).sum(dtype=np.int64).item() for level in levels]
    effects = 4 * sum(counts)
    # every rating has its groups and the sum of their effects; while effects are drawn, it also has
    # a residual and a weight, or a predictor and three terms of its score, and every group of one
    # level has twelve sums
    kept = (ratings.nnz + ratings.nnz_test) * 4 * (len(levels) + 1)
    drawing = ratings.nnz * 8 if normal else ratings.nnz * 16 + 48 * max(counts)
    return kept + drawing + effects, effects


class RatingGroups(NamedTuple):
    """Groups of the ratings that a process holds.

    Attributes
    ----------
    levels : tuple of TimeLevel
    first : list of (B + 1,) int64
        By level, the number of the first group of each block of the level's factor.
    train : list of dict of (int, int) to (nnz,) int32
        By level, the group of every training rating of a cell, counted from 0 in the block of the
        level's factor.
    test : list of dict of int to (q,) int32
        By level, the group of every test rating of a row block, counted likewise.
    """

    levels: tuple[TimeLevel, ...]
    first: list[Int64]
    train: list[dict[tuple[int, int], Int32]]
    test: list[dict[int, Int32]]

    def size(self, level: int, block: int) -> int:
        """Number of groups in a block of the level's factor."""
        return int(self.first[level][block + 1] - self.first[level][block])


def read_groups(
    levels: tuple[TimeLevel, ...], ratings: Ratings, blocks: RatingBlocks, ring: Ring
) -> RatingGroups:
    """Read the groups of the ratings that a process holds. Collective.

    Parameters
    ----------
    levels : tuple of TimeLevel
    ratings : Ratings
        Open ratings file, with times.
    blocks : RatingBlocks
        The ratings in this process's rows.
    ring : Ring
        The processes of the chain.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    groups = RatingGroups(levels, [], [], [])

    def read() -> None:
        for level in levels:
            reader = _Reader(level, ratings, blocks)
            groups.first.append(reader.first)
            groups.train.append(
                {(b, c): group for b in ring.blocks for c, group in enumerate(reader.train(b))}
            )
            groups.test.append(
                {b: reader.groups("test", *blocks.bounds(Factor.W, b))[0] for b in ring.blocks}
            )

    ring.agree(read, "reading groups of ratings")
    return groups


class _Reader:
    """Reads the groups of one level."""

    def __init__(self, level: TimeLevel, ratings: Ratings, blocks: RatingBlocks) -> None:
        self._level, self._ratings = level, ratings
        self._blocks = blocks
        self._begins = np.concatenate([[0], np.cumsum(level.counts(ratings), dtype=np.int64)])
        self._bounds = (blocks.row_bounds, blocks.column_bounds)[level.factor]
        self.first: Int64 = self._begins[self._bounds]

    def train(self, block: int) -> list[Int32]:
        """Groups of the training ratings of a row block, by column block."""
        start, stop = self._blocks.bounds(Factor.W, block)
        slabs: list[list[Int32]] = [[] for _ in self._blocks.column_bounds[1:]]
        for first, last in row_slabs(self._ratings.row_indptr[start : stop + 1], SLAB):
            groups, columns = self.groups("train", start + first, start + last)
            column_block = np.searchsorted(self._blocks.column_bounds, columns, side="right") - 1
            order = np.argsort(column_block, kind="stable")
            ends = np.searchsorted(column_block[order], np.arange(1, len(slabs)))
            for pieces, chosen in zip(slabs, np.split(order, ends), strict=True):
                pieces.append(groups[chosen])
        return [np.concatenate(pieces) for pieces in slabs]

    def groups(self, split: Split, start: int, stop: int) -> tuple[Int32, Int32]:
        """Groups, counted from 0 in every block, and columns of the ratings in rows `start` to
        `stop` of a split.
        """
        ratings = self._ratings
        columns = ratings.columns(split, start, stop)
        within = self._level.within(ratings, split, start, stop)
        owners = columns
        if self._level.factor == Factor.W:
            indptr = ratings.row_indptr if split == "train" else ratings.test_indptr
            owners = np.repeat(
                np.arange(start, stop, dtype=np.int32), np.diff(indptr[start : stop + 1])
            )
        block = np.searchsorted(self._bounds, owners, side="right") - 1
        return (self._begins[owners] - self.first[block] + within).astype(np.int32), columns


# ---------------------------------------------------------------------- the part


class TimeSettings(BaseModel):
    """Settings of effects of time."""

    time_levels: Annotated[str, AfterValidator(canonical_levels)] = setting(
        "Ratings of a user (or item) that share a time effect: ratings of one second (page), or N"
        " successive ratings.",
        "no",
        metavar="user|user:page,user:8,...",
    )


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


class TimeEffects(Part):
    """The effects of the groups of all levels, and the ratings less these effects or with the
    effects as offsets.

    Parameters
    ----------
    groups : RatingGroups
        The group of every rating at every level.
    model : ModelFacts
        Settings, ratings and processes of the chain; its ratings are not changed.

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

    def __init__(self, groups: RatingGroups, model: ModelFacts) -> None:
        law = model.config.law
        self.groups, self.ring = groups, model.ring
        self.original, self.ratings = model.ratings.train, copy(model.ratings)
        self.quantities = TimeParameters.about(())
        self.test: dict[int, Float32] = {}
        self._start_precision = START_PRECISION / law.width**2
        self.values = [
            {b: np.zeros(groups.size(number, b), np.float32) for b in model.ring.blocks}
            for number in range(len(groups.levels))
        ]
        self._normal = law.is_conditionally_gaussian()
        self._draws: type[NormalDraw | MetropolisDraw] = (
            NormalDraw if self._normal else MetropolisDraw
        )
        self.start(())

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse likelihoods without ratings or scores, and samplers that store gradients, which
        effects change.
        """
        if config.time_levels == "no":
            return
        leave = f"leave out {named('time_levels')}"
        known = config.law.is_conditionally_gaussian() or config.law.has_score()
        if not (known and config.law.is_sum_over_ratings):
            raise InputError(
                f"effects of time need {config.law.__name__}.scores, the score of every rating:"
                f" {leave}"
            )
        if (
            config.interleaved
            or config.sampler.kind.estimator(config.sampler.config).fixed_likelihood
        ):
            change = f"use another {named('sampler')} or sampler.gradient, or {leave}"
            raise InputError(
                f"{config.sampler.name} keeps gradients, which effects of time would change:"
                f" {change}"
            )

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse a ratings file without times."""
        if config.time_levels != "no":
            counted_times(ratings, Factor.W)

    @classmethod
    def quantities_of(
        cls, config: Any, transposed: bool, features: FeatureSizes
    ) -> tuple[Quantity, ...]:
        """The part's quantities; none if the run does not use the part."""
        return () if config.time_levels == "no" else TimeParameters.about(())

    @classmethod
    def read(
        cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> RatingGroups | None:
        """Read the groups of ratings, once for all chains of a run. Collective."""
        levels = time_levels_of(config.times, ratings.transposed)
        return read_groups(levels, ratings, blocks, ring) if levels else None

    @classmethod
    def of(cls, model: ModelFacts, data: RatingGroups | None) -> Self | None:
        """Make a chain's instance of the part; None if the run does not use the part.

        Collective.
        """
        return None if data is None else cls(data, model)

    # ------------------------------------------------------------------ the state of a chain

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set all effects to 0, and their precisions to the initial value."""
        for effects in (effects for by_block in self.values for effects in by_block.values()):
            effects.fill(0.0)
        self.parameters = TimeParameters(np.full(len(self.groups.levels), self._start_precision))
        self._applied = False

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """All effects, to be saved in a checkpoint."""
        for level, by_block in zip(self.groups.levels, self.values, strict=True):
            yield from (
                (Key("state", level.factor.name, b, level.field), effects)
                for b, effects in by_block.items()
            )

    def loaded(self) -> None:
        """Mark the effects as not applied, after a checkpoint has replaced them."""
        self._applied = False

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Apply the effects to the ratings, if `start` or a checkpoint has replaced the effects.

        Collective.
        """
        if not self._applied:
            self._apply()

    def _apply(self) -> None:
        """Make the effects offsets of training ratings, or subtract them; sum effects on test
        ratings. Collective.
        """
        adjusted = {
            cell: (
                np.array(block.values) if self._normal else np.zeros(len(block.indices), np.float32)
            )
            for cell, block in self.original.items()
        }
        self.test = {
            b: np.zeros(len(rows.values), np.float32) for b, rows in self.ratings.test.items()
        }
        for number, values in enumerate(self.values):
            for (b, c), effects in self.visit(number, values):
                passes.subtract_groups(self.groups.train[number][b, c], effects, adjusted[b, c])
                chosen = self.ratings.test[b].by_column[c][0]
                self.test[b][chosen] += effects[self.groups.test[number][b][chosen]]
        self.ratings.train = {
            cell: (
                block.with_values(adjusted[cell])
                if self._normal
                else replace(block, offsets=-adjusted[cell])
            )
            for cell, block in self.original.items()
        }
        self._applied = True

    def visit(
        self, number: int, arrays: dict[int, Float32], width: int = 1, returning: bool = False
    ) -> Iterator[tuple[tuple[int, int], Float32]]:
        """Yield every cell with the array for a level's groups in the cell's block of the level's
        factor. Collective.

        Parameters
        ----------
        number : int
            Number of the level.
        arrays : dict of int to (width G,) float32
            By block.
        width : int
            Number of elements per group.
        returning : bool
            Whether the caller changes the arrays that are yielded, so that these must come back
            into `arrays`.

        Yields
        ------
        cell : (int, int)
        array : (width G,) float32
        """
        if self.groups.levels[number].factor == Factor.W:
            yield from (((b, c), arrays[b]) for b, c in self.original)
            return
        home = dict(arrays)
        for b, c, buffer in self.ring.tour(
            home, lambda c: width * self.groups.size(number, c), returning
        ):
            yield (b, c), buffer
        if returning:
            arrays |= home

    def normals(
        self, number: int, block: int, stream: RandomStream, purpose: Purpose, width: int = 1
    ) -> Float32:
        """Draw `width` standard normal numbers for each group of a level in a block, (width G,)
        float32.
        """
        numbers = np.empty(width * self.groups.size(number, block), np.float32)
        first = (number << 44) + width * int(self.groups.first[number][block])
        normals(numbers, stream.key(purpose, self.groups.levels[number].factor, first))
        return numbers

    # ------------------------------------------------------------------ draws, and predictions

    def renews_data(self, turn: int) -> bool:
        """Whether the draw at this turn changes the likelihood's data, so that gradients must be
        computed again.
        """
        return is_due(turn, self._draws.every)

    def draw(self, context: DrawContext) -> None:
        """Draw all effects and their precisions, one level after another, if they are due.

        Collective.
        """
        if not context.is_turn(self._draws.every):
            return
        drawing = self._draws(self, context)
        for number, groups in enumerate(self.groups.train):
            for cell, changes in self.visit(number, drawing.level(number)):
                passes.subtract_groups(groups[cell], changes, drawing.kept[cell])
        self._apply()

    @classmethod
    def of_ratings(cls, draw: SavedDraw, users: Int32, items: Int32) -> tuple[float, float]:
        """Mean and variance of the sum of effects on a new rating: from the prior, as its groups
        are unknown.
        """
        precisions = draw.shared.get("time.precision", np.zeros(0))
        return 0.0, float((1 / precisions).sum())


def precision_given(groups: float, squares: float, rng: np.random.Generator) -> float:
    """Draw lambda given the number `groups` of effects, G, and their sum of `squares`, sum d^2."""
    return rng.gamma(1 + groups / 2) / (PRECISION_RATE + squares / 2)


# ---------------------------------------------------------------------- ratings that are normal


class NormalDraw:
    """One draw of the effects of all levels where ratings are normal given their predictors.

    Collective.

    Attributes
    ----------
    every : int
        Sweeps between draws.
    kept : ByCell
        The training ratings less their predictors and all current effects.
    """

    every = 5

    def __init__(self, part: TimeEffects, context: DrawContext) -> None:
        self._part, self._stream = part, context.stream
        law, tau = context.law, context.tau()
        residual = passes.predictor_kernel(law.rank, law.biases, "-")
        self.kept = {
            cell: np.empty(len(block.indices), np.float32) for cell, block in part.original.items()
        }
        self._weights = {cell: np.full_like(values, tau) for cell, values in self.kept.items()}
        for row, column, ratings in context.circulation.tour((context.position, *law.drawn)):
            cell = row.index, column.index
            positions = row[context.position], column[context.position]
            residual(*ratings.pattern, ratings.values, *positions, self.kept[cell])
            if law.heteroscedastic:
                row_scale, column_scale = (
                    np.float32(tau) * law.row_scale(row),
                    law.row_scale(column),
                )
                self._weights[cell] = row_scale[ratings.rows] * column_scale[ratings.indices]

    def level(self, number: int) -> dict[int, Float32]:
        """Draw the effects of a level and their precision; return the effects' changes.

        Collective.
        """
        part, groups = self._part, self._part.groups.train[number]
        blocks = part.values[number]
        sums = {
            b: np.zeros(2 * len(values), np.float32) for b, values in blocks.items()
        }  # sum w e and sum w, by group
        for cell, buffer in part.visit(number, sums, 2, returning=True):
            passes.add_to_groups(
                groups[cell], self.kept[cell], self._weights[cell], buffer.reshape(-1, 2)
            )
        precision = float(part.parameters.precision[number])
        noise = {b: part.normals(number, b, self._stream, Purpose.TIME) for b in blocks}
        new, seen, partials = {}, {}, []
        for b, old in blocks.items():
            by_group = sums[b].reshape(-1, 2)
            n = by_group[:, 1].astype(np.float64)
            fit = by_group[:, 0] + n * old
            new[b] = fit / (n + precision) + noise[b] / np.sqrt(n + precision)
            seen[b] = n > 0
            d = new[b][seen[b]]
            partials.append(np.array([len(d), d @ d, d @ fit[seen[b]], d * d @ n[seen[b]]]))

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            return {
                "drawn": draw_precision(
                    total["sums"], self._stream.generator(Purpose.TIME_PRECISION, part=number)
                )
            }

        drawn = part.ring.sum({"sums": np.array(partials)}, finish, {"drawn": (2,)})["drawn"]
        part.parameters.precision[number] = drawn[0]
        change = {}
        for b, old in blocks.items():
            effects = np.where(seen[b], drawn[1] * new[b], noise[b] / np.sqrt(drawn[0]))
            change[b] = effects.astype(np.float32) - old
            old[:] = effects
        return change


def draw_precision(sums: Float64, rng: np.random.Generator) -> Float64:
    """Draw the precision of a level's effects, and the factor c by which these effects are
    multiplied, (2,).

    Parameters
    ----------
    sums : (4,) float64
        Over the groups with training ratings: G, sum d^2, sum d B, sum d^2 N.
    rng : Generator
        Source of randomness.
    """
    groups, squares, fit, weight = sums
    precision = precision_given(groups, squares, rng)
    scale = 1.0
    if weight > 0:
        proposal = rng.normal(fit / weight, 1 / np.sqrt(weight))
        ratio = PRECISION_RATE * precision * (1 - 1 / proposal**2) - 3 * np.log(abs(proposal))
        if np.log(rng.random()) < ratio:
            scale = proposal
    return np.array([precision / scale**2, scale])


# ---------------------------------------------------------------------- other likelihoods


class MetropolisDraw:
    """One draw of the effects of all levels under any likelihood with a known score. Collective.

    Attributes
    ----------
    every : int
        Sweeps between draws.
    kept : ByCell
        The predictors of the training ratings, with all current effects.
    """

    every = 10

    def __init__(self, part: TimeEffects, context: DrawContext) -> None:
        law, position = context.law, context.position
        predict = passes.predictor_kernel(law.rank, law.biases, "+")
        self._part, self._stream = part, context.stream
        self._tau = context.tau()
        self.kept: ByCell = {}
        self._terms: ByCell = {}
        for cell in context.circulation.tour((position, *law.drawn)):
            indptr, indices, _, _, offsets = cell.ratings.arrays
            number = cell.row.index, cell.column.index
            self.kept[number] = np.empty_like(offsets)
            predict(
                indptr,
                indices,
                offsets,
                cell.row[position],
                cell.column[position],
                self.kept[number],
            )
            score, self._terms[number] = law.scores(cell)
        self._kernel = passes.effects_kernel(score)

    def level(self, number: int) -> dict[int, Float32]:
        """Draw the effects of a level and their precision; return minus the effects' changes.

        Collective.
        """
        changes = self._rescaled(number, self._step(number))
        for b, effects in self._part.values[number].items():
            effects += changes[b]
        return {b: -change for b, change in changes.items()}

    def _add(self, number: int, sums: Sums, moved: bool = True) -> None:
        """Add S, I and L to `sums`; its first column has the changes of effects, all 0 if not
        `moved`. Collective.
        """
        flat, groups = (
            {b: array.ravel() for b, array in sums.items()},
            self._part.groups.train[number],
        )
        for cell, buffer in self._part.visit(number, flat, 4, returning=True):
            self._kernel(
                groups[cell],
                self.kept[cell],
                self._terms[cell],
                buffer.reshape(-1, 4),
                moved=moved,
            )
        for b, array in flat.items():
            sums[b] = array.reshape(-1, 4)

    def _step(self, number: int) -> Sums:
        """Make a Metropolis step of a level's effects; return changes, and S, I and L at new
        effects. Collective.
        """
        part, tau = self._part, self._tau
        blocks = part.values[number]
        prior = float(part.parameters.precision[number])
        here = {b: np.zeros((len(old), 4), np.float32) for b, old in blocks.items()}
        self._add(number, here, moved=False)
        there = {}
        for b, old in blocks.items():
            noise = part.normals(number, b, self._stream, Purpose.TIME)
            there[b] = passes.propose(old, here[b], tau=tau, precision=prior, noise=noise)
        self._add(number, there)
        for b, old in blocks.items():
            noise = part.normals(number, b, self._stream, Purpose.TIME_ACCEPTED, 2)
            passes.accept(old, here[b], there[b], tau=tau, precision=prior, noise=noise)
        return there

    def _rescaled(self, number: int, drawn: Sums) -> dict[int, Float32]:
        """Draw the precision of a level, then rescale it with the effects; return the effects'
        changes. Collective.
        """
        ring, blocks = self._part.ring, self._part.values[number]
        levels = len(self._part.groups.levels)

        def propose_scale(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = self._stream.generator(Purpose.TIME_PRECISION, part=number)
            groups, squares, slope, curvature, _ = total["sums"].tolist()
            precision = precision_given(groups, squares, rng)
            line = Line(slope, curvature)
            return {"drawn": np.array([precision, line.draw(rng), *line])}

        def accept_scale(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = self._stream.generator(Purpose.TIME_PRECISION, part=number + levels)
            _, slope, curvature, gain = total["sums"].tolist()
            ratio = gain + log_ratio(scale, precision, line, Line(slope, curvature))
            return {"scale": np.array([scale if log(rng.random()) < ratio else 1.0])}

        sums = {b: passes.along(old, drawn[b], self._tau) for b, old in blocks.items()}
        partials = {"sums": np.array([[len(blocks[b]), *terms] for b, terms in sums.items()])}
        precision, scale, *slopes = ring.sum(partials, propose_scale, {"drawn": (4,)})[
            "drawn"
        ].tolist()
        line, scaled = Line(*slopes), {}
        for b, old in blocks.items():
            scaled[b] = np.zeros_like(drawn[b])
            scaled[b][:, 0] = np.float32(scale) * (old + drawn[b][:, 0]) - old
        self._add(number, scaled)
        gained = np.array(
            [0.0, 0.0, 0.0, 1.0]
        )  # the log density enters as its change, the other sums as values
        changes = [
            passes.along(old, scaled[b], self._tau) - gained * sums[b] for b, old in blocks.items()
        ]
        partials = {"sums": np.array(changes)}
        accepted = float(ring.sum(partials, accept_scale, {"scale": (1,)})["scale"][0])
        self._part.parameters.precision[number] = precision / accepted**2
        return {b: moved[:, 0] for b, moved in (drawn if accepted == 1.0 else scaled).items()}


class Line(NamedTuple):
    """Slope T and curvature V, at c = 1, of the ratings' log density if a level's effects are
    multiplied by c.
    """

    slope: float
    curvature: float

    def draw(self, rng: np.random.Generator) -> float:
        """Propose c; 1 if the ratings carry no information on it."""
        return (
            rng.normal(1 + self.slope / self.curvature, self.curvature**-0.5)
            if self.curvature > 0
            else 1.0
        )

    def log_density(self, c: float) -> float:
        """Logarithm of the density of a proposed c, up to a constant."""
        error = c - 1 - self.slope / self.curvature
        return (log(self.curvature) - self.curvature * error**2) / 2


def log_ratio(scale: float, precision: float, here: Line, there: Line) -> float:
    """Logarithm of the acceptance ratio of c = `scale`, without the change L(c d) of the ratings'
    log density.

    `precision` is lambda, `here` the line at the effects d, and `there` the line at c d.
    """
    if scale == 1.0 or there.curvature <= 0:
        return -inf
    prior = PRECISION_RATE * precision * (1 - scale**-2) - 4 * log(abs(scale))
    return prior + there.log_density(1 / scale) - here.log_density(scale)
