r"""Drawing effects of groups where ratings are normal given their predictors: exact, from the conditionals.

With e the residual of a rating, its effects taken off, w = tau g g' its precision, N_g the sum of w over the training
ratings of group g, and B_g that of w (e + d_g), one level after another:

    d_g | rest      ~ N(B_g / (N_g + lambda), 1 / (N_g + lambda))
    lambda | d      ~ Gamma(1 + G / 2, rate RATE + sum d_g^2 / 2)
    d, lambda       <- c d, lambda / c^2,  c ~ N(sum d_g B_g / S, 1 / S),  S = sum d_g^2 N_g

The last is a step in lambda^-1/2 given d lambda^1/2, accepted with the ratio of its priors; it moves effects
and precision together, which takes them where they belong where groups have few ratings, as the other two do where they
have many [Yu & Meng 2011]. Sums and G are over groups with training ratings; the others have their prior N(0, 1 /
lambda).

[Yu & Meng 2011] To center or not to center: that is not the question. J. Comput. Graph. Stat. 20.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsgmcmc.kernels.groups import add_to_groups, predictor_kernel, subtract_groups, weigh_ratings
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.parts.group_effects import RATE, CellRatings, GroupEffects
from dsgmcmc.model.quantity import WEIGHT
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Float32, Float64, Purpose


class NormalDraws:
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
        before = parameters.precision(number)
        draws = {b: self._draw_block(number, b, sums[b].reshape(-1, 2), before, stream) for b in blocks}

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = stream.generator(Purpose.TIME_PRECISION, part=number)
            return dict(zip(("precision", "scale"), draw_precision(total["sums"], rng), strict=True))

        partials = {"sums": np.array([draw.sums for draw in draws.values()])}
        drawn = self._effects.ring.sum(partials, finish, {"precision": (1,), "scale": (1,)})
        parameters.set_precision(number, drawn["precision"].item())
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
    precision = rng.gamma(1 + groups / 2) / (RATE + squares / 2)
    scale = 1.0
    if weight > 0:
        proposal = rng.normal(fit / weight, 1 / np.sqrt(weight))
        ratio = RATE * precision * (1 - 1 / proposal**2) - 3 * np.log(abs(proposal))
        if np.log(rng.random()) < ratio:
            scale = proposal
    return np.array([precision / scale**2]), np.array([scale])
