r"""Moves of single elements of rows under two levels, without weights of the ratings.

If a row's ratings are nearly all certain, its weights
(`dsgmcmc.model.likelihoods.ordinal.logit_weights`) hold its elements: where z = 10, w is near 1 /
20, and a row with n such ratings moves by about sqrt(20 / n), however far its prior would let it
go. So, once a sweep and factor, one column k is chosen, and element k of every row moves, given the
other elements and the other factor, with the weights integrated out.

The element x is place number a of `PLACES` with the distance d, a uniform and log(d / sd) uniform
from log `FINEST` to 0, sd that of the prior. A place is drawn with probability proportional to the
prior's density times the likelihood there. As a and d have the same law for all places, this leaves
the conditional distribution invariant [Neal 1999 names such a set a window].

Column k is chosen with probability proportional to the prior variance of its part of the
predictors, which only draws of the priors change.

[Neal 1999] An improved acceptance procedure for the hybrid Monte Carlo algorithm. J. Comput. Phys.
111.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.formulas.formula import Formula, RowPrior, dense, diagonal
from dsgmcmc.kernels.logit_window import PLACES, add_changes
from dsgmcmc.model.circulation import OTHER
from dsgmcmc.model.likelihoods.ordinal.logit_weights import predictors
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float32, Float64, Int64, Purpose

#: Smallest distance of places, in standard deviations of the prior.
FINEST = 1 / 32

#: Numbers of a row that a tour sends for its move: place, distance, and changes.
WINDOW_WIDTH = 2 + PLACES

# names of temporary arrays of blocks
UNIFORMS = "uniforms"
WINDOW = "window"
CHANGES = "changes"

DRAW_UNIFORMS = Formula("out = u")


class Column(NamedTuple):
    """The elements that move.

    Attributes
    ----------
    factor : Factor
    number : int
        Number k of the column.
    sd : float
        Standard deviation of the prior of an element, given the other elements of its row.
    """

    factor: Factor
    number: int
    sd: float


def move_elements(context: DrawContext, factor: Factor, threshold: float) -> None:
    """Move one element of every row of a factor. Collective."""
    circulation = context.circulation
    blocks = [block for block in circulation.blocks() if block.factor == factor]
    column = _choose_column(context, factor)
    for block in blocks:
        _draw_windows(block, column.sd)
    _add_changes(context, column, threshold)
    for block in blocks:
        _move(block, context.position, column)
        for name in (UNIFORMS, WINDOW, CHANGES):
            del block.arrays[name]


def _choose_column(context: DrawContext, factor: Factor) -> Column:
    """Choose a column; all processes choose the same."""
    priors: dict[Factor, RowPrior] = {}
    for rows in context.circulation.rows_by_factor():
        priors[rows.factor] = context.prior(rows.blocks[0])
    precision = diagonal(priors[factor].precision).astype(np.float64)
    other = priors[OTHER[factor]]
    squares = np.square(other.mean.astype(np.float64)) + 1 / diagonal(other.precision)
    if context.law.biases:
        squares[-1] = 1.0
    shares = squares / precision
    rng = context.stream.generator(Purpose.THRESHOLDS, part=1 + factor)
    number = int(rng.choice(len(shares), p=shares / shares.sum()))
    return Column(factor, number, float(precision[number] ** -0.5))


def _draw_windows(block: ParameterBlock, sd: float) -> None:
    """Draw every element's place and the distance of places, and set the changes to 0."""
    n = len(block.counts)
    block.arrays[UNIFORMS] = np.zeros((n, 3), np.float32)
    block.arrays[CHANGES] = np.zeros((n, PLACES), np.float32)
    block.update(DRAW_UNIFORMS, Purpose.WINDOW, 3, out=UNIFORMS)
    place, distance, _ = block[UNIFORMS].T
    window = np.stack([np.floor(PLACES * place), sd * np.exp(log(FINEST) * distance)], axis=1)
    block.arrays[WINDOW] = np.ascontiguousarray(window, np.float32)


def _add_changes(context: DrawContext, column: Column, threshold: float) -> None:
    """Compute the changes of the log likelihood at all places of all elements. Collective."""
    position = context.position
    circulation = context.circulation
    by_column = column.factor == Factor.H
    if by_column:
        cells = circulation.tour((position, WINDOW, CHANGES), returning=(CHANGES,))
    else:
        cells = circulation.tour((position,))
    for cell in cells:
        own = cell.row
        other = cell.column
        if by_column:
            own = cell.column
            other = cell.row
        covariate = np.ones(len(other.counts), np.float32)
        if column.number < context.law.rank:
            covariate = np.ascontiguousarray(other[position][:, column.number])
        ratings = cell.ratings
        z = predictors(cell, context) - np.float32(threshold)
        if by_column:
            z = z[ratings.column_order]
            ratings = ratings.by_column
        add_changes(ratings.arrays[:4], z, covariate, own[WINDOW], out=own[CHANGES])


def _move(block: ParameterBlock, position: str, column: Column) -> None:
    """Move the elements of a block to places drawn by prior and likelihood."""
    k = column.number
    prior = block.prior(block)
    mean = prior.mean
    if prior.shift is not None:
        mean = mean + prior.shift
    precision = dense(prior.precision)[k].astype(np.float64)
    slope = np.einsum("nk,k->n", block[position] - mean, precision)
    place, distance = block[WINDOW].T.astype(np.float64)
    steps = (np.arange(PLACES) - place[:, None]) * distance[:, None]
    log_density = block[CHANGES] - steps * (slope[:, None] + precision[k] / 2 * steps)
    chosen = _draw_places(log_density, block[UNIFORMS][:, 2])
    block[position][:, k] += steps[np.arange(len(steps)), chosen].astype(np.float32)


def _draw_places(log_density: Float64, uniforms: Float32) -> Int64:
    """Draw a place for every row, (n,), from log densities (n, PLACES) and uniform numbers."""
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    cumulated = np.cumsum(density, axis=1)
    below = cumulated < (uniforms * cumulated[:, -1])[:, None]
    return np.asarray(np.minimum(below.sum(axis=1), PLACES - 1), np.int64)
