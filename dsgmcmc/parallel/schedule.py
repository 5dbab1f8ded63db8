"""The schedule: the part that an iteration visits, a pure function of seed, chain and iteration.

All processes therefore agree on the part without communication. The block schedule is from [Ahn
2015, section 3]; the draw of parts with probabilities proportional to their sizes is from [Simsekli
2016, 4.3].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsgmcmc.types import Int64, Purpose, ScheduleName, UInt64


class Schedule:
    """The order in which parts are visited.

    Parameters
    ----------
    name : {"shuffled", "cyclic", "random"}
        ``shuffled``: a new permutation of all parts every sweep; ``cyclic``: 0, 1, 2 ... every
        sweep; ``random``: independent draws with probabilities part size / N.
    part_sizes : sequence of int
        Number of observations in each of the B parts.
    seed, chain : int
        The key of the random number generator contains the seed, its counter the chain.
    """

    def __init__(
        self, name: ScheduleName, part_sizes: Sequence[int], seed: int, chain: int
    ) -> None:
        self.name = name
        self.grid = len(part_sizes)
        self._cumulative = np.cumsum(np.asarray(part_sizes, dtype=np.int64))
        self._chain = chain
        self._generator = np.random.Philox(key=[seed, Purpose.SCHEDULE])
        # resetting the state is eight times as fast as making a generator
        self._state = self._generator.state
        self._orders = np.zeros((0, 0), np.int64)  # orders of all rows in one sweep, (rows, B)
        self._orders_are_of = (-1, 0)  # this sweep, and the number of rows
        #: (B,) float64: the probability p_t of a visit to part t; for ``cyclic``, its frequency.
        self.probability = np.full(self.grid, 1.0 / self.grid)
        if name == "random":
            total = max(int(self._cumulative[-1]), 1)
            self.probability = np.asarray(part_sizes, dtype=np.float64) / total

    def part(self, iteration: int) -> int:
        """Return the part that iteration `iteration`, counted from 0, visits."""
        if self.name == "cyclic":
            return iteration % self.grid
        if self.name == "random":
            raw = int(self._raw(iteration, 1)[0])
            target = (raw * int(self._cumulative[-1])) >> 64
            return int(np.searchsorted(self._cumulative, target, side="right"))
        return int(self._shuffled(iteration, 1)[0])

    def parts(self, iteration: int, rows: int) -> Int64:
        """Return the part that each of `rows` rows visits, (rows,) int64.

        Unless cyclic, orders differ between rows.
        """
        if self.name == "cyclic" or rows == 1:
            return np.full(rows, self.part(iteration), np.int64)
        if self.name == "random":
            u = self._raw(iteration, rows) / 2.0**64
            drawn = np.floor(u * self._cumulative[-1])
            parts = np.searchsorted(self._cumulative, drawn, side="right")
            return np.asarray(np.minimum(parts, self.grid - 1), np.int64)
        return self._shuffled(iteration, rows)

    def _shuffled(self, iteration: int, rows: int) -> Int64:
        """Return the part that each row visits, (rows,) int64.

        Every row and sweep has a permutation of all parts.
        """
        sweep = iteration // self.grid
        if self._orders_are_of != (sweep, rows):
            raw = self._raw(sweep, rows * self.grid).reshape(rows, self.grid)
            self._orders = np.argsort(raw, axis=1, kind="stable")
            self._orders_are_of = (sweep, rows)
        return np.asarray(self._orders[:, iteration % self.grid], np.int64)

    def _raw(self, index: int, count: int) -> UInt64:
        """Return `count` random 64-bit words for `index`; NumPy guarantees those of `Philox`."""
        self._state["state"]["counter"][:] = 0, 0, index, self._chain
        self._generator.state = self._state
        return self._generator.random_raw(count)
