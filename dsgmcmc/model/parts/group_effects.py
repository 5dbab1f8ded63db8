"""Effects of groups of ratings at several levels, as a process holds them, and how they meet the ratings.

The groups of a row of W are all with its process, and cost no message; those of a column are held where its block is at
home, and go round the ring to be met. Groups of no row are held where block 0 is at home, and sent to all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dsgmcmc.kernels.groups import subtract_groups
from dsgmcmc.kernels.philox import normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.context import ContextTerm
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
    of_time, of_context : (L,) float64, or None without such levels
        Precisions lambda of levels of time, and of terms of the context.
    shared : (G,) float64, or None without such groups
        Effects of groups that belong to no row, of all levels.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "of_time": Quantity(
            "time.precision", ("time_level",), rating=-2, positive=True, diagnosed="time_sd_{label}", as_sd=True
        ),
        "of_context": Quantity(
            "context.precision", ("context_term",), rating=-2, positive=True, diagnosed="context_sd_{label}", as_sd=True
        ),
        "shared": Quantity("context.effects", ("context_category",), rating=1, traced=False),
    }

    of_time: Float64 | None
    of_context: Float64 | None
    shared: Float64 | None

    def _place(self, number: int) -> tuple[Float64, int]:
        times = 0 if self.of_time is None else len(self.of_time)
        found = (self.of_time, number) if number < times else (self.of_context, number - times)
        assert found[0] is not None
        return found[0], found[1]

    def precision(self, number: int) -> float:
        """Precision of the effects of a level."""
        precisions, place = self._place(number)
        return float(precisions[place])

    def set_precision(self, number: int, value: float) -> None:
        """Set it."""
        precisions, place = self._place(number)
        precisions[place] = value


class GroupEffects:
    """The effects of the groups of all levels.

    Parameters
    ----------
    groups : RatingGroups
        Which ratings are together: by levels of time, then by terms of the context.
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
        firsts = zip(self.levels, groups.first, strict=True)
        ends = np.cumsum([0, *(0 if level.factor is not None else int(first[-1]) for level, first in firsts)])
        self._shared = [slice(*ends[number : number + 2].tolist()) for number in range(len(self.levels))]
        terms = sum(isinstance(level, ContextTerm) for level in self.levels)
        self._sizes = len(self.levels) - terms, terms, int(ends[-1])
        self.parameters = EffectParameters(None, None, None)

    def start(self) -> None:
        """Set the effects to 0, and their precisions to where they start."""
        for effects in (effects for blocks in self.values for effects in blocks.values()):
            effects.fill(0.0)
        times, terms, shared = self._sizes
        of_time, of_context = (np.full(n, self._start) if n else None for n in (times, terms))
        self.parameters = EffectParameters(of_time, of_context, np.zeros(shared) if shared else None)

    def loaded(self) -> None:
        """Set the effects of groups of no row to those among the parameters, which a checkpoint has."""
        for number, level in enumerate(self.levels):
            if level.factor is None and 0 in self.values[number] and self.parameters.shared is not None:
                self.values[number][0][:] = self.parameters.shared[self._shared[number]]

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
        factor = self.levels[number].factor
        if factor == Factor.W:
            yield from (((b, c), arrays[b]) for b, c in self.given)
            return
        if factor is None:
            yield from self._visit_all(number, arrays, width, returning)
            return
        home = dict(arrays)
        for b, c, buffer in self.ring.tour(home, lambda c: width * self.groups.size(number, c), returning):
            yield (b, c), buffer
        if returning:
            arrays |= home

    def _visit_all(
        self, number: int, arrays: dict[int, Float32], width: int, returning: bool
    ) -> Iterator[tuple[tuple[int, int], Float32]]:
        """Show every cell the array of the groups of no row. Collective."""
        whole = self._sent(number, arrays, width)
        if not returning:
            yield from ((cell, whole) for cell in self.given)
            return
        changes = np.zeros((len(self.ring.blocks), len(whole)))
        for b, c in self.given:
            buffer = whole.copy()
            yield (b, c), buffer
            changes[b - self.ring.blocks.start] += buffer - whole
        total = whole + self.ring.total(changes)
        arrays |= {b: total.astype(np.float32) for b in arrays if b == 0}

    def _sent(self, number: int, arrays: dict[int, Float32], width: int = 1) -> Float32:
        """The array of the groups of no row, (width G,), which block 0 has, on all processes. Collective."""
        parts = np.zeros((len(self.ring.blocks), width * int(self.groups.first[number][-1])))
        if 0 in arrays:
            parts[0] = arrays[0]
        return self.ring.total(parts).astype(np.float32)

    def normals(self, number: int, block: int, stream: RandomStream, purpose: Purpose, width: int = 1) -> Float32:
        """Draw standard normal numbers for the groups of a block, so many for each, (width G,) float32."""
        found = np.empty(width * self.groups.size(number, block), np.float32)
        first = (number << 44) + width * int(self.groups.first[number][block])
        normals(found, *stream.key(purpose, self.levels[number].factor or Factor.W, first))
        return found

    def subtract(self, left: CellRatings) -> dict[int, Float32]:
        """Take all effects off numbers of the training ratings; those of the test ratings, by row block. Collective."""
        test = {b: np.zeros(len(rows.values), np.float32) for b, rows in self._test.items()}
        for number, values in enumerate(self.values):
            for (b, c), effects in self.visit(number, values):
                subtract_groups(self.groups.train[number][b, c], effects, left[b, c])
                chosen = self._test[b].by_column[c][0]
                test[b][chosen] += effects[self.groups.test[number][b][chosen]]
            if self.levels[number].factor is None and self.parameters.shared is not None:
                self.parameters.shared[self._shared[number]] = effects
        return test
