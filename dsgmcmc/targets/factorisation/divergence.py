"""Whether the numbers of a chain still mean anything."""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.targets.factorisation.target import FactorWorld

SQUARES = Formula("square = x * x", fields=("x",), sums=("square",))
EXPLODED = 1e6  # mean square of a factor's elements; sane ones are below 10


def find_explosion(world: FactorWorld, position: str) -> str:
    """Name the first block of a factor that is not finite or has exploded; empty if all are sane. Collective."""
    mean_squares = {}
    for side in world.sides():
        total = side.update(SQUARES, {"x": position})["square"]
        mean_squares[side.factor, side.index] = total / side[position].size
    pairs = [(mean_squares["W", row.index], mean_squares["H", world.meeting(row.index).index]) for row in world.rows()]
    result = world.ring.reduce(np.array(pairs), np.ravel, 2 * world.grid).reshape(-1, 2)
    bad = np.argwhere(~(result < EXPLODED))
    if not len(bad):
        return ""
    b, number = bad[0]
    block = b if number == 0 else column_of(int(b), world.part, world.grid)
    return f"block {block} of {'WH'[number]} has the mean square {result[b, number]:.3g}"
