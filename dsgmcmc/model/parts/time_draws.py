"""Draws of the effects of groups of ratings, one level of time after another.

The model is that of `dsgmcmc.model.parts.time`. `NormalDraw` is for ratings that are normal given
their predictors, `MetropolisDraw` for any other likelihood with a known score; each has its
equations. Sums over the ratings of a group are in `dsgmcmc.kernels.effects`.

[Yu & Meng 2011] To center or not to center: that is not the question. J. Comput. Graph. Stat. 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf, log
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.kernels import effects as passes
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.parts.time_groups import CellNumber, GroupEffects
from dsgmcmc.types import Float32, Float64, Purpose

#: Rate of the prior of a precision, Gamma(1, rate PRECISION_RATE).
PRECISION_RATE = 0.1

#: One number for each training rating, (nnz,) float32 by cell.
ByCell = dict[CellNumber, Float32]
#: Changes of the effects of a level, and S, I and L there, (G, 4) float32 by block, as in
#: `dsgmcmc.kernels.effects`.
Sums = dict[int, Float32]


def draw_precision_given_effects(groups: float, squares: float, rng: Generator) -> float:
    """Draw lambda given the number `groups` of effects, G, and their sum of `squares`, sum d^2."""
    return rng.gamma(1 + groups / 2) / (PRECISION_RATE + squares / 2)


# ---------------------------------------------------------------------- ratings that are normal


class GroupFit(NamedTuple):
    """What the training ratings say about the effects of a block's groups, (G,) float64 each.

    Attributes
    ----------
    n : (G,) float64
        N_g.
    fit : (G,) float64
        B_g.
    """

    n: Float64
    fit: Float64


class NormalDraw:
    """One draw of the effects of all levels where ratings are normal given their predictors.

    Collective. Let e be the residual of a rating with all effects subtracted, and w = tau g g' its
    precision. Let N_g be the sum of w over the training ratings of group g, and B_g the sum of
    w (e + d_g). Then

        d_g | rest  ~ N(B_g / (N_g + lambda), 1 / (N_g + lambda))
        lambda | d  ~ Gamma(1 + G / 2, rate PRECISION_RATE + sum d_g^2 / 2)
        d, lambda   <- c d, lambda / c^2,  c ~ N(sum d_g B_g / S, 1 / S),  S = sum d_g^2 N_g

    The last line is a step in lambda^-1/2 given d lambda^1/2, accepted with the ratio of the prior
    densities of lambda^-1/2. It moves effects and precision together, which mixes well if groups
    have few ratings; the first two lines mix well if groups have many [Yu & Meng 2011]. The sums
    and the number G of groups cover the groups with training ratings; all other effects are drawn
    from the prior N(0, 1 / lambda).

    Parameters
    ----------
    effects : GroupEffects
        The effects, which are changed.
    precision : (L,) float64
        Precision lambda of the effects of each level, which is changed.
    context : DrawContext

    Attributes
    ----------
    every : int
        Sweeps between draws.
    kept : ByCell
        The training ratings less their predictors and all current effects.
    """

    every = 5

    def __init__(self, effects: GroupEffects, precision: Float64, context: DrawContext) -> None:
        self._effects = effects
        self._precision = precision
        self._stream = context.stream
        self.kept: ByCell = {}
        self._weights: ByCell = {}
        law = context.law
        tau = context.tau()
        residual = passes.predictor_kernel(law.rank, law.biases, "-")
        for of_cell in context.circulation.tour((context.position, *law.drawn)):
            row, column, ratings = of_cell
            cell = row.index, column.index
            w = row[context.position]
            h = column[context.position]
            self.kept[cell] = np.empty(len(ratings.indices), np.float32)
            residual(*ratings.pattern, ratings.values, w, h, self.kept[cell])
            if ratings.weights is not None:
                self._weights[cell] = np.float32(tau) * law.rating_precisions(of_cell)
            elif law.heteroscedastic:
                row_scale = np.float32(tau) * law.row_scale(row)
                column_scale = law.row_scale(column)
                self._weights[cell] = row_scale[ratings.rows] * column_scale[ratings.indices]
            else:
                self._weights[cell] = np.full_like(self.kept[cell], tau)

    def level(self, number: int) -> dict[int, Float32]:
        """Draw the effects of a level and their precision; return the effects' changes.

        Collective.
        """
        values = self._effects.values[number]
        prior = float(self._precision[number])
        fits = self._fits(number)
        noise = {}
        new = {}
        partials = []
        for b in values:
            n, fit = fits[b]
            noise[b] = self._effects.normals(number, b, stream=self._stream, purpose=Purpose.TIME)
            new[b] = fit / (n + prior) + noise[b] / np.sqrt(n + prior)
            seen = n > 0
            d = new[b][seen]
            partials.append(np.array([len(d), d @ d, d @ fit[seen], d * d @ n[seen]]))
        precision, scale = self._draw_precision(number, np.array(partials))
        self._precision[number] = precision
        changes = {}
        for b, old in values.items():
            from_prior = noise[b] / np.sqrt(precision)
            effects = np.where(fits[b].n > 0, scale * new[b], from_prior)
            changes[b] = effects.astype(np.float32) - old
            old[:] = effects
        return changes

    def _fits(self, number: int) -> dict[int, GroupFit]:
        """What the training ratings say about the effects of a level, by block. Collective."""
        values = self._effects.values[number]
        groups = self._effects.groups.train[number]
        sums = {b: np.zeros(2 * len(old), np.float32) for b, old in values.items()}
        for cell, buffer in self._effects.visit(number, sums, width=2, returning=True):
            of_groups = buffer.reshape(-1, 2)  # sum w e and sum w
            passes.add_to_groups(groups[cell], self.kept[cell], self._weights[cell], of_groups)
        fits = {}
        for b, old in values.items():
            by_group = sums[b].reshape(-1, 2)
            n = by_group[:, 1].astype(np.float64)
            fits[b] = GroupFit(n, by_group[:, 0] + n * old)
        return fits

    def _draw_precision(self, number: int, partials: Float64) -> Float64:
        """Result of `draw_precision`, given its sums for each block. Collective."""

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = self._stream.generator(Purpose.TIME_PRECISION, part=number)
            return {"drawn": draw_precision(total["sums"], rng)}

        ring = self._effects.ring
        return ring.sum({"sums": partials}, finish, {"drawn": (2,)})["drawn"]


def draw_precision(sums: Float64, rng: Generator) -> Float64:
    """Draw the precision of a level's effects, and the factor c that multiplies them, (2,).

    Parameters
    ----------
    sums : (4,) float64
        Over the groups with training ratings: G, sum d^2, sum d B, sum d^2 N.
    rng : Generator
        Source of randomness.
    """
    groups, squares, fit, weight = sums
    precision = draw_precision_given_effects(groups, squares, rng)
    scale = 1.0
    if weight > 0:
        proposal = rng.normal(fit / weight, 1 / np.sqrt(weight))
        ratio = PRECISION_RATE * precision * (1 - 1 / proposal**2) - 3 * np.log(abs(proposal))
        if np.log(rng.random()) < ratio:
            scale = proposal
    return np.array([precision / scale**2, scale])


# ---------------------------------------------------------------------- other likelihoods


class ScaleProposal(NamedTuple):
    """Proposal N(1 + T / V, 1 / V) of the number c by which a level's effects are multiplied.

    T and V are slope and curvature, at c = 1, of the ratings' log density.

    Attributes
    ----------
    slope : float
        T.
    curvature : float
        V.
    """

    slope: float
    curvature: float

    def draw(self, rng: Generator) -> float:
        """Propose c; 1 if the ratings carry no information on it."""
        if not self.curvature > 0:
            return 1.0
        sd = float(self.curvature**-0.5)
        return rng.normal(1 + self.slope / self.curvature, sd)

    def log_density(self, c: float) -> float:
        """Logarithm of the density of a proposed c, up to a constant."""
        error = c - 1 - self.slope / self.curvature
        return (log(self.curvature) - self.curvature * error**2) / 2


class Rescaling(NamedTuple):
    """A drawn precision of a level's effects, and a proposal to rescale it with the effects.

    Attributes
    ----------
    precision : float
        lambda.
    scale : float
        The proposed c.
    proposal : ScaleProposal
        The distribution of c at the effects.
    """

    precision: float
    scale: float
    proposal: ScaleProposal


class MetropolisDraw:
    """One draw of the effects of all levels under any likelihood with a known score.

    Collective. S_g and I_g are the sums, over the training ratings of group g, of the score and the
    curvature of the log density in the predictor. L_g(d') is the change of these ratings' log
    density if d_g becomes d'. All groups of a level are drawn at once, as they are independent
    given all else, by noisy Newton steps:

        d' ~ N(d + (S_g - lambda d) / P, 1 / P),      P = I_g + lambda

    accepted with probability min(1, exp(L_g(d') - lambda (d'^2 - d^2) / 2) q(d | d') / q(d' | d)),
    where S and I are computed again at d' for the reverse density q(d | d'). The effect of a group
    without training ratings is thus drawn from its prior. Then

        lambda | d  ~ Gamma(1 + G / 2, rate PRECISION_RATE + sum d_g^2 / 2)
        d, lambda   <- c d, lambda / c^2,      c ~ N(1 + T / V, 1 / V)
        T = sum d_g S_g,  V = sum d_g^2 I_g

    The change by c is accepted with probability min(1, exp(L(c d) + b lambda (1 - c^-2)) c^-4
    q(1 / c | c d) / q(c | d)), b = PRECISION_RATE. The factor c^-4 has two sources: c^-3 comes from
    the measure c^-3 dc on the line of all c, and 1 / c from the density, as a function of c, of the
    reverse step from c d, which multiplies by 1 / c.

    Parameters
    ----------
    effects : GroupEffects
        The effects, which are changed.
    precision : (L,) float64
        Precision lambda of the effects of each level, which is changed.
    context : DrawContext

    Attributes
    ----------
    every : int
        Sweeps between draws.
    kept : ByCell
        The predictors of the training ratings, with all current effects.
    """

    every = 10

    def __init__(self, effects: GroupEffects, precision: Float64, context: DrawContext) -> None:
        self._effects = effects
        self._precision = precision
        self._stream = context.stream
        self._tau = context.tau()
        self.kept: ByCell = {}
        self._terms: ByCell = {}
        law = context.law
        predict = passes.predictor_kernel(law.rank, law.biases, "+")
        for cell in context.circulation.tour((context.position, *law.drawn)):
            indptr, indices = cell.ratings.pattern
            offsets = cell.ratings.offsets
            w = cell.row[context.position]
            h = cell.column[context.position]
            number = cell.row.index, cell.column.index
            self.kept[number] = np.empty_like(offsets)
            predict(indptr, indices, offsets, w, h, self.kept[number])
            score, self._terms[number] = law.scores(cell)
        self._kernel = passes.effects_kernel(score)

    def level(self, number: int) -> dict[int, Float32]:
        """Draw the effects of a level and their precision; return minus the effects' changes.

        Collective.
        """
        changes = self._rescaled(number, self._step(number))
        for b, values in self._effects.values[number].items():
            values += changes[b]
        return {b: -change for b, change in changes.items()}

    def _add(self, number: int, sums: Sums, moved: bool = True) -> None:
        """Add S, I and L to `sums`, at the effects changed by its first column. Collective.

        If not `moved`, all changes must be 0.
        """
        groups = self._effects.groups.train[number]
        flat = {b: array.ravel() for b, array in sums.items()}
        for cell, buffer in self._effects.visit(number, flat, width=4, returning=True):
            of_groups = buffer.reshape(-1, 4)
            self._kernel(groups[cell], self.kept[cell], self._terms[cell], of_groups, moved=moved)
        for b, array in flat.items():
            sums[b] = array.reshape(-1, 4)

    def _step(self, number: int) -> Sums:
        """Make a Metropolis step of a level's effects; return changes, with S, I and L at the end.

        Collective.
        """
        tau = self._tau
        draw_normals = partial(self._effects.normals, number, stream=self._stream)
        values = self._effects.values[number]
        prior = float(self._precision[number])
        here = {b: np.zeros((len(old), 4), np.float32) for b, old in values.items()}
        self._add(number, here, moved=False)
        there = {}
        for b, old in values.items():
            noise = draw_normals(b, purpose=Purpose.TIME)
            there[b] = passes.propose(old, here[b], tau=tau, precision=prior, noise=noise)
        self._add(number, there)
        for b, old in values.items():
            noise = draw_normals(b, purpose=Purpose.TIME_ACCEPTED, width=2)
            passes.accept(old, here[b], there[b], tau=tau, precision=prior, noise=noise)
        return there

    def _rescaled(self, number: int, drawn: Sums) -> dict[int, Float32]:
        """Draw a level's precision, then rescale it with the effects; return the effects' changes.

        Collective. `drawn` is the result of `_step`.
        """
        values = self._effects.values[number]
        sums = {b: passes.along(old, drawn[b], self._tau) for b, old in values.items()}
        rescaling = self._propose(number, sums)
        scaled = {}
        for b, old in values.items():
            scaled[b] = np.zeros_like(drawn[b])
            scaled[b][:, 0] = np.float32(rescaling.scale) * (old + drawn[b][:, 0]) - old
        self._add(number, scaled)
        # the log density enters as its change, the other sums as values
        gained = np.array([0.0, 0.0, 0.0, 1.0])
        partials = []
        for b, old in values.items():
            partials.append(passes.along(old, scaled[b], self._tau) - gained * sums[b])
        scale = self._accepted_scale(number, rescaling, np.array(partials))
        self._precision[number] = rescaling.precision / scale**2
        changes = drawn if scale == 1.0 else scaled
        return {b: moved[:, 0] for b, moved in changes.items()}

    def _propose(self, number: int, sums: Mapping[int, Float64]) -> Rescaling:
        """Draw a level's precision and propose c, given the sums of `along`. Collective."""

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = self._stream.generator(Purpose.TIME_PRECISION, part=number)
            groups, squares, slope, curvature, _ = total["sums"].tolist()
            precision = draw_precision_given_effects(groups, squares, rng)
            scale = ScaleProposal(slope, curvature).draw(rng)
            return {"drawn": np.array([precision, scale, slope, curvature])}

        values = self._effects.values[number]
        partials = {"sums": np.array([[len(values[b]), *terms] for b, terms in sums.items()])}
        drawn = self._effects.ring.sum(partials, finish, {"drawn": (4,)})["drawn"]
        precision, scale, slope, curvature = drawn.tolist()
        return Rescaling(precision, scale, ScaleProposal(slope, curvature))

    def _accepted_scale(self, number: int, rescaling: Rescaling, partials: Float64) -> float:
        """The proposed c or 1, given sums at the rescaled effects for each block. Collective."""

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            part = number + len(self._effects.groups.levels)
            rng = self._stream.generator(Purpose.TIME_PRECISION, part=part)
            _, slope, curvature, gain = total["sums"].tolist()
            ratio = gain + log_ratio(rescaling, ScaleProposal(slope, curvature))
            accepted = log(rng.random()) < ratio
            return {"scale": np.array([rescaling.scale if accepted else 1.0])}

        ring = self._effects.ring
        return float(ring.sum({"sums": partials}, finish, {"scale": (1,)})["scale"][0])


def log_ratio(rescaling: Rescaling, there: ScaleProposal) -> float:
    """Logarithm of the acceptance ratio of c, without the ratings' L(c d).

    `there` is the proposal at c d.
    """
    scale = rescaling.scale
    if scale == 1.0 or there.curvature <= 0:
        return -inf
    prior = PRECISION_RATE * rescaling.precision * (1 - scale**-2) - 4 * log(abs(scale))
    return prior + there.log_density(1 / scale) - rescaling.proposal.log_density(scale)
