"""Sufficient statistics of the ratings for every row of a factor, given the other factor: sums over a tour of the ring.

The sums of the rows of W stay in place, while the columns pass by with their positions. The sums of the rows of H are
sent round the ring, and nothing else is: (D + 1)(D + 2) / 2 float32 per column. If the likelihood counts cells without
ratings, too, their contribution is the same for every row.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.outer import add_outer_products, squared_errors, statistics_width
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float32, Float64

SUMS = "statistics"


def row_statistics(
    circulation: Circulation, likelihood: Law, factor: Factor, position: str
) -> dict[ParameterBlock, Float32]:
    """Statistics of all rows of a factor, see `dsgmcmc.kernels.outer`. Collective; column blocks must be at home.

    Parameters
    ----------
    circulation : Circulation
        The blocks and the ratings.
    likelihood : Law
        A conditionally Gaussian likelihood.
    factor : Factor
        The factor whose rows are meant.
    position : str
        Field that holds the other factor's state.
    """
    blocks = [block for block in circulation.blocks() if block.factor == factor]
    for block in blocks:
        block.arrays[SUMS] = np.zeros((len(block.counts), statistics_width(block.dimension)), np.float32)
    if factor == Factor.W:
        cells = circulation.tour((position, *likelihood.drawn))
    else:
        cells = circulation.tour((SUMS,), returning=(SUMS,))
    timers = circulation.ring.phases
    for row, column, ratings in cells:
        own, other, seen = (row, column, ratings) if factor == Factor.W else (column, row, ratings.by_column)
        begin = timers.enter()
        root = np.sqrt(likelihood.noise_scale(other))
        add_outer_products(seen.arrays, other[position], root, likelihood.rank, own[SUMS])
        timers.leave("gradient", begin)
    gram = likelihood.gram_of_all(circulation, position, factor)
    if gram is not None:
        common = gram[np.tril_indices(len(gram))]
        for block in blocks:
            block.arrays[SUMS][:, : len(common)] += common
    return {block: block.arrays.pop(SUMS) for block in blocks}


def keep_errors(statistics: dict[ParameterBlock, Float32], likelihood: Law, position: str) -> Float64:
    """Pass the squared errors of every row to the likelihood; return their sums by block, weighted by noise scale."""
    sums = []
    for block, of_rows in statistics.items():
        errors = squared_errors(block[position], of_rows)
        likelihood.keep_errors(block, errors)
        sums.append((likelihood.noise_scale(block) * errors).sum())
    return np.array(sums)
