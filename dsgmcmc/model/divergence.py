"""Detection of diverged chains."""

from __future__ import annotations

from collections.abc import Iterable

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.targets.state import ParameterBlock

SQUARES = Formula("square = theta * theta", sums=("square",))
EXPLODED = 1e6  # mean square of a factor's elements; usual values are below 10


def find_divergence(circulation: Circulation, position: str) -> str:
    """Name the first block of a factor that is not finite or has exploded; empty if there is none. Collective."""

    def mean_square(block: ParameterBlock) -> float:
        total: float = block.update(SQUARES, theta=position)["square"]
        return total / block[position].size

    def first(blocks: Iterable[ParameterBlock]) -> str:
        for block in blocks:
            found = mean_square(block)
            if not found < EXPLODED:
                return f"block {block.index} of {block.factor.name} has the mean square {found:.3g}"
        return ""

    mine = first(block for pair in circulation.pairs() for block in pair)
    return next(filter(None, circulation.ring.comm.allgather(mine)), "")
