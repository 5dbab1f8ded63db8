"""Detection of diverged chains."""

from __future__ import annotations

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.circulation import Circulation

SQUARES = Formula("square = theta * theta", sums=("square",))
EXPLODED = 1e6  # mean square of a factor's elements; usual values are below 10


def find_divergence(circulation: Circulation, position: str) -> str:
    """Name the first block of a factor that is not finite or has exploded; empty if there is none. Collective."""
    mine = ""
    for rows in circulation.together():
        totals = rows.update(SQUARES, theta=position)["square"].tolist()
        for block, total in zip(rows.blocks, totals, strict=True):
            mean = total / block[position].size
            if not mean < EXPLODED:
                mine = mine or f"block {block.index} of {block.factor.name} has the mean square {mean:.3g}"
    return next(filter(None, circulation.ring.comm.allgather(mine)), "")
