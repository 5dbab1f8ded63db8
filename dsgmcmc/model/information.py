"""The Fisher information of the factors' rows, from averages over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dsgmcmc.kernels.formula import Formula, RowPrior
from dsgmcmc.kernels.products import add_rotated, gram
from dsgmcmc.model.background import common_precision
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.parallel.named import Named, Shapes
from dsgmcmc.targets.base import Information
from dsgmcmc.targets.information import alignment, curvature_bound
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float64

SQUARES = Formula("square = n * theta * theta", rows=("n",), column_sums=("square",))
SENT = "information.sent"


def fisher_information(
    circulation: Circulation,
    likelihood: Law,
    prior: Callable[[ParameterBlock], RowPrior],
    position: str,
    tau: float,
    biases: bool,
    scratch: str | None,
    bound: bool,
) -> Information:
    """Fisher information of every row at field `position`. Collective.

    Parameters
    ----------
    circulation : Circulation
        The blocks of both factors.
    likelihood : Law
        Determines the weight of each rating.
    prior : callable
        Returns a block's prior.
    position : str
        Field that holds the state.
    tau : float
        Precision of the noise.
    biases : bool
        Whether the last column is the bias.
    scratch : str, optional
        An (n, D) array of the blocks to work in, if the bound on the curvature must also hold for rows whose ratings
        are with similar rows.
    bound : bool
        Whether to compute the bounds even if, with `scratch`, they cost another tour.
    """
    n, squares = likelihood.counts(circulation)
    c = _mean_squares(circulation, position, n, biases)
    first = [rows.blocks[0] for rows in circulation.together()]
    common = {block.factor: prior(block).precision.astype(np.float64) for block in first}
    curvature = dict.fromkeys(common, 1.0)
    if likelihood.background is not None:
        common, curvature = common_precision(circulation, position, common, tau * likelihood.background)
    lambda_ = {factor: np.diag(each).copy() if each.ndim == 2 else each for factor, each in common.items()}
    if scratch and not bound:
        return Information(c, lambda_, tau, n, squares, None, common)
    if scratch:
        _align(circulation, likelihood, position, n if biases else {}, scratch)
    bounds: dict[ParameterBlock, Float64] = {}
    for rows in circulation.together():
        metric = {"c": c[rows.factor].astype(np.float32), "lambda_": lambda_[rows.factor].astype(np.float32)}
        weights, of_squares = (np.concatenate([sums[block] for block in rows.blocks]) for sums in (n, squares))
        found = curvature_bound(rows, weights, of_squares, tau=tau, **metric)
        if scratch:
            found = np.maximum(found, alignment(rows, scratch, weights, tau=tau, **metric) / 2)
        bounds.update(rows.by_block(found + (curvature[rows.factor] - 1)))
    return Information(c, lambda_, tau, n, squares, bounds, common)


def second_moments(
    circulation: Circulation,
    position: str,
    counts: Mapping[ParameterBlock, Array],
    biases: bool,
    finish: Callable[[dict[Factor, Float64]], Named],
    result: Shapes,
) -> dict[str, Float64]:
    """See `dsgmcmc.targets.base.Target.second_moments`. Collective."""
    partials = {}
    for rows in circulation.together():
        name = rows.factor.name
        partials[name] = np.array([gram(block[position], counts[block], biases) for block in rows.blocks])
        partials[f"{name}.n"] = np.array([[counts[block].sum(dtype=np.float64)] for block in rows.blocks])

    def means(sums: dict[str, Float64]) -> Named:
        other = {Factor.W: Factor.H.name, Factor.H: Factor.W.name}
        return finish({factor: sums[name] / sums[f"{name}.n"] for factor, name in other.items()})

    return circulation.ring.sum(partials, means, result)


def own_squares(
    circulation: Circulation,
    likelihood: Law,
    position: str,
    axes: Mapping[Factor, Float64],
    biases: bool,
    out: str,
) -> None:
    """See `dsgmcmc.targets.base.Target.own_squares`. Collective."""
    of_other = {Factor.W: axes[Factor.H], Factor.H: axes[Factor.W]}
    for block in circulation.blocks():
        sent = block[position].copy()
        if biases:
            sent[:, -1] = 1.0
        add_rotated(sent, sent, of_other[block.factor], keep=0.0)
        block.arrays[SENT] = sent * sent * likelihood.noise_scale(block)[:, None]
    circulation.spread(SENT, out)
    for block in circulation.blocks():
        del block.arrays[SENT]
        block[out][:] *= likelihood.noise_scale(block)[:, None]


def _mean_squares(
    circulation: Circulation, position: str, n: dict[ParameterBlock, Array], biases: bool
) -> dict[Factor, Float64]:
    """Mean over all ratings of the square of what multiplies each column, (D,), by factor. Collective."""
    partials = {}
    for rows in circulation.together():
        name, counts = rows.factor.name, [n[block] for block in rows.blocks]
        partials[name] = rows.update(SQUARES, theta=position, n=np.concatenate(counts))["square"]
        partials[f"{name}.n"] = np.array([[count.sum(dtype=np.float64)] for count in counts])
    both = circulation.ring.sum(partials)
    c = {}
    for factor, other in ((Factor.W, Factor.H), (Factor.H, Factor.W)):
        c[factor] = both[other.name] / both[f"{other.name}.n"]
        if biases:
            c[factor][-1] = 1.0
    return c


def _align(
    circulation: Circulation, likelihood: Law, position: str, biases: dict[ParameterBlock, Array], out: str
) -> None:
    """Set `out` to the weighted sums over every row's ratings of what multiplies the row. Collective.

    `biases` has these sums for the biases, if there are any: the total weight of a row's ratings.
    """
    blocks = list(circulation.blocks())
    scaled = likelihood.noise_varies
    for block in blocks if scaled else ():
        block.arrays[SENT] = block[position] * likelihood.noise_scale(block)[:, None]
    circulation.spread(SENT if scaled else position, out)
    for block in blocks:
        if block.arrays.pop(SENT, None) is not None:
            block[out][:] *= likelihood.noise_scale(block)[:, None]
        if biases:
            block[out][:, -1] = biases[block]
