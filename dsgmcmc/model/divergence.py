"""Detection of diverged chains: rows too large for any data, and parameters that are not finite or out of bounds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.model import FactorModel

#: A row has diverged if the mean square of its elements is larger: in units of its prior's mean square (at least 1),
#: times the squared distance from the centre of the rating that is furthest from it (at least 1, too).
MAX_MEAN_SQUARE = 1e4

#: Largest finite parameter, in float32.
MAX_FINITE = float(np.finfo(np.float32).max)

SQUARES = Formula("square = theta * theta", row_sums=("square",))


def find_divergence(circulation: Circulation, model: FactorModel, position: str) -> str:
    """Name the first row, or the first parameter, that shows that a chain has diverged; empty if there is none.

    Collective.
    """
    mine = next(_of_rows(circulation, model, position), "")
    return next(filter(None, circulation.ring.comm.allgather(mine)), "") or next(_of_shared(model), "")


def _of_rows(circulation: Circulation, model: FactorModel, position: str) -> Iterator[str]:
    """Yield a description of every local row that is out of bounds."""
    largest = MAX_MEAN_SQUARE * model.rows.expected_square * max(1.0, circulation.ratings.extreme**2)
    drawn = [quantity.name for quantity in model.quantities.of_rows if quantity.drawn]
    for rows in circulation.rows_by_factor():
        squares = rows.update(SQUARES, theta=position)["square"] / rows.dimension
        for block, mean in rows.by_block(squares):
            worst = mean.max()  # NaN if one is
            if not worst <= largest:
                yield f"block {block.index} of {block.factor.name} has a row of mean square {worst:.3g}"
            for name in drawn:
                size = np.abs(block[name]).max(initial=0.0) if name in block.arrays else 0.0
                if not size <= MAX_FINITE:
                    yield f"block {block.index} of {block.factor.name} has a row whose {name} is {size:.3g}"


def _of_shared(model: FactorModel) -> Iterator[str]:
    """Yield a description of every shared parameter that is out of bounds."""
    for sampled in model.replicated:
        for quantity, value in sampled.drawn():
            numbers = np.diag(value) if quantity.positive and value.ndim == 2 else np.ravel(value)
            sound = np.abs(numbers) <= MAX_FINITE  # of NaN false
            if quantity.positive:
                sound &= numbers > 0
            if not sound.all():
                yield f"{quantity.name} is {numbers[np.argmin(sound)]:.3g}"
