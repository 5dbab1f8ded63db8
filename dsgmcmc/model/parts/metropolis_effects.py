r"""Drawing effects of groups under any law whose score is known: Newton's steps with noise, accepted or not.

S_g, I_g are the sums over the training ratings of group g of score and curvature of the log density in the predictor
(`dsgmcmc.kernels.effects`), and L_g(d') is what their log density changes by where d_g becomes d'. One level after
another, all its groups at once, as they are independent given all else:

    d' ~ N(d + (S_g - lambda d) / P, 1 / P),      P = I_g + lambda

accepted with probability min(1, exp(L_g(d') - lambda (d'^2 - d^2) / 2) q(d | d') / q(d' | d)), S and I being taken
again at d' for the reverse density q(d | d'). A group without training ratings is so drawn from its prior. Then

    lambda | d      ~ Gamma(1 + G / 2, rate RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,      c ~ N(1 + T / V, 1 / V),  T = sum d_g S_g,  V = sum d_g^2 I_g

the last accepted with min(1, exp(L(c d) + RATE lambda (1 - c^-2)) c^-4 q(1 / c | c d) / q(c | d)): the measure on the
line of all c is c^-3 dc (`dsgmcmc.model.parts.normal_effects`), and the step back from c d is by 1 / c, whose density
in c is another 1 / c.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.effects import accept, along, effects_kernel, propose
from dsgmcmc.kernels.groups import predictor_kernel, subtract_groups
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.parts.group_effects import RATE, CellRatings, GroupEffects
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Float32, Float64, Purpose

#: Changes of the effects of a level, S, I and L there, (G, 4) float32 by block, as of `dsgmcmc.kernels.effects`.
Sums = dict[int, Float32]


class MetropolisDraws:
    """Draws the effects of all levels.

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
        prior, tau = effects.parameters.precision(number), ratings.tau
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
            precision, line = rng.gamma(1 + groups / 2) / (RATE + squares / 2), Line(*slope[:2])
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
        parameters.set_precision(number, precision / accepted**2)
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
    prior = RATE * precision * (1 - scale**-2) - 4 * log(abs(scale))
    return prior + there.log_density(1 / scale) - here.log_density(scale)
