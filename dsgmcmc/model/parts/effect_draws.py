r"""Draws of the effects of groups, and of their precisions.

*Ratings that are normal given their predictors*: effects are drawn exactly, from their conditionals. With e the
residual of a rating, its effects taken off, w = tau g g' its precision, N_g the sum of w over the training ratings of
group g, and B_g that of w (e + d_g), one level after another:

    d_g | rest      ~ N(B_g / (N_g + lambda), 1 / (N_g + lambda))
    lambda | d      ~ Gamma(1 + G / 2, rate PRECISION_RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,  c ~ N(sum d_g B_g / S, 1 / S),  S = sum d_g^2 N_g

The last is a step in lambda^-1/2 given d lambda^1/2, accepted with the ratio of its priors; it moves effects and
precision together, which takes them where they belong where groups have few ratings, as the other two do where they
have many [Yu & Meng 2011]. Sums and G are over groups with training ratings; the others have their prior N(0, 1 /
lambda).

*Any other law whose score is known*: effects take Newton steps with noise, which are accepted or not. S_g, I_g are the
sums over the training ratings of group g of score and curvature of the log density in the predictor
(`dsgmcmc.kernels.effects`), and L_g(d') is the change of their log density where d_g becomes d'. One level after
another, all its groups at once, as they are independent given all else:

    d' ~ N(d + (S_g - lambda d) / P, 1 / P),      P = I_g + lambda

accepted with probability min(1, exp(L_g(d') - lambda (d'^2 - d^2) / 2) q(d | d') / q(d' | d)), S and I being taken
again at d' for the reverse density q(d | d'). A group without training ratings is so drawn from its prior. Then

    lambda | d      ~ Gamma(1 + G / 2, rate PRECISION_RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,      c ~ N(1 + T / V, 1 / V),  T = sum d_g S_g,  V = sum d_g^2 I_g

the last accepted with min(1, exp(L(c d) + b lambda (1 - c^-2)) c^-4 q(1 / c | c d) / q(c | d)), b = 0.1: the measure on
the line of all c is c^-3 dc, and the step back from c d is by 1 / c, whose density in c is another 1 / c.

[Yu & Meng 2011] To center or not to center: that is not the question. J. Comput. Graph. Stat. 20.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsgmcmc.kernels.effects import accept, along, effects_kernel, propose
from dsgmcmc.kernels.groups import add_to_groups, predictor_kernel, subtract_groups, weigh_ratings
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.parts.group_effects import PRECISION_RATE, CellRatings, GroupEffects
from dsgmcmc.model.quantity import WEIGHT
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Float32, Float64, Purpose

#: Changes of the effects of a level, S, I and L there, (G, 4) float32 by block, as of `dsgmcmc.kernels.effects`.
Sums = dict[int, Float32]


class NormalDraws:
    """Draws the effects of all levels where ratings are normal given their predictors.

    Parameters
    ----------
    effects : GroupEffects
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.

    Attributes
    ----------
    every : int
        Sweeps between draws.
    """

    every = 5

    def __init__(self, effects: GroupEffects, rank: int, biases: bool) -> None:
        self._effects, self._residual_kernel = effects, predictor_kernel(rank, biases, "-")

    def __call__(self, context: DrawContext) -> None:
        """Draw all effects and their precisions. Collective."""
        effects = self._effects
        residuals, weights = self._residuals(context)
        for number, groups in enumerate(effects.groups.train):
            sums = {b: np.zeros(2 * len(values), np.float32) for b, values in effects.values[number].items()}
            for cell, buffer in effects.visit(number, sums, 2, returning=True):
                add_to_groups(groups[cell], residuals[cell], weights[cell], buffer.reshape(-1, 2))
            change = self._draw_level(number, sums, context.stream)
            for cell, changes in effects.visit(number, change):
                subtract_groups(groups[cell], changes, residuals[cell])

    def _residuals(self, context: DrawContext) -> tuple[CellRatings, CellRatings]:
        """Residuals of the training ratings, and how precise each is. Collective."""
        tau, held = context.tau(), next(context.circulation.blocks()).arrays
        own, given = (WEIGHT.name,) if WEIGHT.name in held else (), self._effects.given
        residuals = {cell: np.empty(len(block.indices), np.float32) for cell, block in given.items()}
        weights = {cell: np.full_like(each, tau) for cell, each in residuals.items()}
        for row, column, ratings in context.circulation.tour((context.position, *own)):
            cell = row.index, column.index
            positions = row[context.position], column[context.position]
            self._residual_kernel(*ratings.pattern, ratings.values, *positions, residuals[cell])
            if own:
                scales = (row.row(WEIGHT.name), column.row(WEIGHT.name))
                weigh_ratings(ratings.pattern, np.float32(tau) * scales[0], scales[1], weights[cell])
        return residuals, weights

    def _draw_level(self, number: int, sums: dict[int, Float32], stream: RandomStream) -> dict[int, Float32]:
        """Draw the effects of a level, given sums over its groups, and their precision; what they change by."""
        parameters, blocks = self._effects.parameters, self._effects.values[number]
        before = float(parameters.precision[number])
        draws = {b: self._draw_block(number, b, sums[b].reshape(-1, 2), before, stream) for b in blocks}

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = stream.generator(Purpose.TIME_PRECISION, part=number)
            return dict(zip(("precision", "scale"), draw_precision(total["sums"], rng), strict=True))

        partials = {"sums": np.array([draw.sums for draw in draws.values()])}
        drawn = self._effects.ring.sum(partials, finish, {"precision": (1,), "scale": (1,)})
        parameters.precision[number] = drawn["precision"].item()
        change = {}
        for b, draw in draws.items():
            effects = np.where(draw.seen, drawn["scale"] * draw.effects, draw.noise / np.sqrt(drawn["precision"]))
            change[b] = effects.astype(np.float32) - blocks[b]
            blocks[b][:] = effects
        return change

    def _draw_block(self, number: int, block: int, sums: Float32, precision: float, stream: RandomStream) -> _BlockDraw:
        """Draw the effects of a block given their precision."""
        old = self._effects.values[number][block]
        noise = self._effects.normals(number, block, stream, Purpose.TIME)
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
    precision = rng.gamma(1 + groups / 2) / (PRECISION_RATE + squares / 2)
    scale = 1.0
    if weight > 0:
        proposal = rng.normal(fit / weight, 1 / np.sqrt(weight))
        ratio = PRECISION_RATE * precision * (1 - 1 / proposal**2) - 3 * np.log(abs(proposal))
        if np.log(rng.random()) < ratio:
            scale = proposal
    return np.array([precision / scale**2]), np.array([scale])


class MetropolisDraws:
    """Draws the effects of all levels under any law whose score is known.

    Parameters
    ----------
    effects : GroupEffects
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last column of a factor is the bias.

    Attributes
    ----------
    every : int
        Sweeps between draws.
    """

    every = 10

    def __init__(self, effects: GroupEffects, rank: int, biases: bool) -> None:
        self._effects, self._predict = effects, predictor_kernel(rank, biases, "+")

    def __call__(self, context: DrawContext) -> None:
        """Draw all effects and their precisions. Collective."""
        ratings = _Ratings(self._effects, context, self._predict)
        for number, blocks in enumerate(self._effects.values):
            changes = self._rescaled(number, ratings, self._step(number, ratings, context.stream), context.stream)
            ratings.change(number, changes)
            for b, effects in blocks.items():
                effects += changes[b]

    def _step(self, number: int, ratings: _Ratings, stream: RandomStream) -> Sums:
        """Step from the effects of a level, or stay; what is found there. Collective."""
        effects, blocks = self._effects, self._effects.values[number]
        prior, tau = float(effects.parameters.precision[number]), ratings.tau
        here = {b: np.zeros((len(old), 4), np.float32) for b, old in blocks.items()}
        ratings.add(number, here, moved=False)
        there = {}
        for b, old in blocks.items():
            there[b] = propose(old, here[b], tau, prior, effects.normals(number, b, stream, Purpose.TIME))
        ratings.add(number, there)
        for b, old in blocks.items():
            noise = effects.normals(number, b, stream, Purpose.TIME_ACCEPTED, 2)
            accept(old, here[b], there[b], tau, prior, noise)
        return there

    def _rescaled(self, number: int, ratings: _Ratings, drawn: Sums, stream: RandomStream) -> dict[int, Float32]:
        """Draw the precision of a level, then that and its effects together; what these change by. Collective."""
        ring, parameters, blocks = self._effects.ring, self._effects.parameters, self._effects.values[number]

        def propose_scale(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = stream.generator(Purpose.TIME_PRECISION, part=number)
            groups, squares, *slope = total["sums"].tolist()
            precision, line = rng.gamma(1 + groups / 2) / (PRECISION_RATE + squares / 2), Line(*slope[:2])
            return {"drawn": np.array([precision, line.draw(rng), *line])}

        def accept_scale(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = stream.generator(Purpose.TIME_PRECISION, part=number + len(self._effects.levels))
            _, *slope, gain = total["sums"].tolist()
            ratio = gain + log_ratio(scale, precision, line, Line(*slope))
            return {"scale": np.array([scale if log(rng.random()) < ratio else 1.0])}

        sums = {b: along(old, drawn[b], ratings.tau) for b, old in blocks.items()}
        partials = {"sums": np.array([[len(blocks[b]), *each] for b, each in sums.items()])}
        precision, scale, *slope = ring.sum(partials, propose_scale, {"drawn": (4,)})["drawn"].tolist()
        line, scaled = Line(*slope), {}
        for b, old in blocks.items():
            scaled[b] = np.zeros_like(drawn[b])
            scaled[b][:, 0] = np.float32(scale) * (old + drawn[b][:, 0]) - old
        ratings.add(number, scaled)
        gained = np.array([0.0, 0.0, 0.0, 1.0])
        changes = [along(old, scaled[b], ratings.tau) - gained * sums[b] for b, old in blocks.items()]
        partials = {"sums": np.array(changes)}
        accepted = float(ring.sum(partials, accept_scale, {"scale": (1,)})["scale"][0])
        parameters.precision[number] = precision / accepted**2
        return {b: each[:, 0] for b, each in (drawn if accepted == 1.0 else scaled).items()}


class _Ratings:
    """The training ratings at the effects of now, of which groups are asked.

    Parameters
    ----------
    effects : GroupEffects
    context : DrawContext
    predict : callable
        Adds the predictors to their offsets.

    Attributes
    ----------
    tau : float
        Precision of the noise.
    """

    def __init__(self, effects: GroupEffects, context: DrawContext, predict: Callable[..., None]) -> None:
        law, position = context.law, context.position
        self._effects, self.tau, self._kernel = effects, context.tau(), effects_kernel(law.score_source)
        self._predictors: CellRatings = {}
        self._terms: CellRatings = {}
        for cell in context.circulation.tour((position, *law.drawn)):
            (indptr, indices, _, _, offsets), number = cell.ratings.arrays, (cell.row.index, cell.column.index)
            self._predictors[number] = found = np.empty_like(offsets)
            predict(indptr, indices, offsets, cell.row[position], cell.column[position], found)
            self._terms[number] = law.score_terms(cell)

    def add(self, number: int, sums: Sums, moved: bool = True) -> None:
        """Add S, I and L at the changes of the effects of a level, all 0 unless `moved`. Collective."""
        flat, groups = {b: each.ravel() for b, each in sums.items()}, self._effects.groups.train[number]
        for cell, buffer in self._effects.visit(number, flat, 4, returning=True):
            self._kernel(groups[cell], self._predictors[cell], self._terms[cell], buffer.reshape(-1, 4), moved)
        for b, each in flat.items():
            sums[b] = each.reshape(-1, 4)

    def change(self, number: int, changes: dict[int, Float32]) -> None:
        """Change the effects of a level, (G,) by block. Collective."""
        for cell, change in self._effects.visit(number, {b: -each for b, each in changes.items()}):
            subtract_groups(self._effects.groups.train[number][cell], change, self._predictors[cell])


class Line(NamedTuple):
    """Slope and curvature of the log density in c, by which the effects are multiplied, at c = 1.

    Attributes
    ----------
    slope, curvature : float
        T and V.
    """

    slope: float
    curvature: float

    def draw(self, rng: np.random.Generator) -> float:
        """Propose c; 1 where ratings say nothing."""
        return rng.normal(1 + self.slope / self.curvature, self.curvature**-0.5) if self.curvature > 0 else 1.0

    def log_density(self, c: float) -> float:
        """Logarithm of the density of c as it is proposed, up to a constant."""
        error = c - 1 - self.slope / self.curvature
        return (log(self.curvature) - self.curvature * error**2) / 2


def log_ratio(scale: float, precision: float, here: Line, there: Line) -> float:
    """Logarithm of the ratio by which a scale is accepted, but for what the log density gains."""
    if scale == 1.0 or there.curvature <= 0:
        return -inf
    prior = PRECISION_RATE * precision * (1 - scale**-2) - 4 * log(abs(scale))
    return prior + there.log_density(1 / scale) - here.log_density(scale)
