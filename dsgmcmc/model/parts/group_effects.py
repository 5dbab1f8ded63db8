"""Effects of groups of ratings at several levels, as a process holds them, and how they meet the ratings.

The groups of a row of W are all with its process, and cost no message; those of a column are held where its block is at
home, and go round the ring to be met.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dsgmcmc.kernels.groups import subtract_groups
from dsgmcmc.kernels.philox import normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.groups import RatingGroups
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Factor, Float32, Float64, Purpose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsgmcmc.parallel.ring import Ring  # which loads MPI

#: Of the prior of a precision, Gamma(1, rate PRECISION_RATE).
PRECISION_RATE = 0.1
#: Precisions before they are first drawn, where the predictors' priors have width 1.
START_PRECISION = 50.0

CellRatings = dict[tuple[int, int], Float32]


@dataclass
class EffectParameters(Sampled):
    """What all processes know of the effects of all levels.

    Attributes
    ----------
    precision : (L,) float64
        Precision lambda of the effects of each level.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "precision": Quantity(
            "time.precision", ("time_level",), rating=-2, positive=True, diagnosed="time_sd_{label}", as_sd=True
        ),
    }

    precision: Float64


class GroupEffects:
    """The effects of the groups of all levels.

    Parameters
    ----------
    groups : RatingGroups
        Which ratings are together.
    ratings : RatingBlocks
        This process's ratings; they stay as they are.
    ring : Ring
        The processes of the chain.
    width : float
        Of the priors of predictors, in which precisions start.

    Attributes
    ----------
    values : list of dict of int to (G,) float32
        By level, the effects of each block of its factor that is at home here.
    parameters : EffectParameters
    """

    def __init__(self, groups: RatingGroups, ratings: RatingBlocks, ring: Ring, width: float) -> None:
        self.groups, self.levels, self.ring, self.given = groups, groups.levels, ring, ratings.train
        self._test, self._start = ratings.test, START_PRECISION / width**2
        self.values = [
            {b: np.zeros(groups.size(number, b), np.float32) for b in ring.blocks} for number in range(len(self.levels))
        ]
        self.parameters = EffectParameters(np.full(len(self.levels), self._start))

    def start(self) -> None:
        """Set the effects to 0, and their precisions to where they start."""
        for effects in (effects for blocks in self.values for effects in blocks.values()):
            effects.fill(0.0)
        self.parameters = EffectParameters(np.full(len(self.levels), self._start))

    def visit(
        self, number: int, arrays: dict[int, Float32], width: int = 1, returning: bool = False
    ) -> Iterator[tuple[tuple[int, int], Float32]]:
        """Show every cell the array of its block's groups at a level. Collective.

        Parameters
        ----------
        number : int
            Of the level.
        arrays : dict of int to (width G,) float32
            By block; not emptied.
        width : int
            How many numbers a group has.
        returning : bool
            Whether the arrays come back changed.

        Yields
        ------
        cell : (int, int)
        array : (width G,) float32
        """
        if self.levels[number].factor == Factor.W:
            yield from (((b, c), arrays[b]) for b, c in self.given)
            return
        home = dict(arrays)
        for b, c, buffer in self.ring.tour(home, lambda c: width * self.groups.size(number, c), returning):
            yield (b, c), buffer
        if returning:
            arrays |= home

    def normals(self, number: int, block: int, stream: RandomStream, purpose: Purpose, width: int = 1) -> Float32:
        """Draw standard normal numbers for the groups of a block, so many for each, (width G,) float32."""
        found = np.empty(width * self.groups.size(number, block), np.float32)
        first = (number << 44) + width * int(self.groups.first[number][block])
        normals(found, *stream.key(purpose, self.levels[number].factor, first))
        return found

    def subtract(self, left: CellRatings) -> dict[int, Float32]:
        """Take all effects off numbers of the training ratings; those of the test ratings, by row block. Collective."""
        test = {b: np.zeros(len(rows.values), np.float32) for b, rows in self._test.items()}
        for number, values in enumerate(self.values):
            for (b, c), effects in self.visit(number, values):
                subtract_groups(self.groups.train[number][b, c], effects, left[b, c])
                chosen = self._test[b].by_column[c][0]
                test[b][chosen] += effects[self.groups.test[number][b][chosen]]
        return test
