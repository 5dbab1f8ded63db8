"""Detection of diverged chains."""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.targets.state import ParameterBlock

SQUARES = Formula("square = theta * theta", sums=("square",))
EXPLODED = 1e6  # mean square of a factor's elements; usual values are below 10


def find_divergence(circulation: Circulation, position: str) -> str:
    """Name the first block of a factor that is not finite or has exploded; empty if there is none. Collective."""

    def mean_square(block: ParameterBlock) -> float:
        total: float = block.update(SQUARES, theta=position)["square"]
        return total / block[position].size

    pairs = [[mean_square(block) for block in pair] for pair in circulation.pairs()]
    result = circulation.ring.reduce(np.array(pairs), np.ravel, 2 * circulation.grid).reshape(-1, 2)
    bad = np.argwhere(~(result < EXPLODED))
    if not len(bad):
        return ""
    b, number = bad[0]
    block = b if number == 0 else column_of(int(b), circulation.part, circulation.grid)
    return f"block {block} of {'WH'[number]} has the mean square {result[b, number]:.3g}"
