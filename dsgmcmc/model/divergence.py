"""Detection of diverged chains."""

from __future__ import annotations

from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.conjugate import SUMS

EXPLODED = 1e6  # mean square of a factor's elements; usual values are below 10


def find_divergence(circulation: Circulation, position: str) -> str:
    """Name the first block of a factor that is not finite or has exploded; empty if there is none. Collective."""
    mine = ""
    for rows in circulation.together():
        squares = rows.update(SUMS[False], theta=position)["squares"].sum(axis=1)
        for block, total in zip(rows.blocks, squares.tolist(), strict=True):
            mean = total / block[position].size
            if not mean < EXPLODED:
                mine = mine or f"block {block.index} of {block.factor.name} has the mean square {mean:.3g}"
    return next(filter(None, circulation.ring.comm.allgather(mine)), "")
