"""Which part an iteration visits, and with which step: pure functions of the seed and the iteration.

All processes compute the same answers; nobody is told. [Ahn 2015, section 3] for the block schedule,
[Simsekli 2016, 4.3] for drawing parts with probability proportional to their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

ScheduleName = Literal["shuffled", "cyclic", "random"]
_PURPOSE_SCHEDULE = 0x5C4ED


class Schedule:
    """The parts in the order in which they are visited.

    Parameters
    ----------
    name : {"shuffled", "cyclic", "random"}
        ``shuffled``: a fresh permutation of all parts every sweep; ``cyclic``: 0, 1, 2 ...;
        ``random``: independent draws with probability |part| / N.
    part_sizes : sequence of int
        Ratings in each of the B parts.
    seed, chain : int
        The order is a function of these and of the iteration.
    """

    def __init__(self, name: ScheduleName, part_sizes: Sequence[int], seed: int, chain: int) -> None:
        self.name = name
        self.grid = len(part_sizes)
        self._cumulative = np.cumsum(np.asarray(part_sizes, dtype=np.int64))
        self._key = (seed, chain)
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.zeros(0, np.int64))
        total = int(self._cumulative[-1])
        uniform = np.full(self.grid, 1.0 / self.grid)
        by_size = np.asarray(part_sizes, dtype=np.float64) / max(total, 1)
        #: (B,) float64: the probability (or frequency) p_t with which part t is visited.
        self.probability = by_size if name == "random" else uniform

    def part(self, iteration: int) -> int:
        """Part that `iteration` (counted from 0) visits."""
        if self.name == "cyclic":
            return iteration % self.grid
        if self.name == "random":
            raw = int(self._raw(iteration, 1)[0])
            target = (raw * int(self._cumulative[-1])) >> 64
            return int(np.searchsorted(self._cumulative, target, side="right"))
        sweep = iteration // self.grid
        if self._order[0] != sweep:
            self._order = (sweep, np.argsort(self._raw(sweep, self.grid), kind="stable"))
        return int(self._order[1][iteration % self.grid])

    def _raw(self, index: int, count: int) -> npt.NDArray[np.uint64]:
        """`count` raw 64-bit numbers that belong to `index`; NumPy promises the stream of `Philox`."""
        seed, chain = self._key
        generator = np.random.Philox(key=[seed, _PURPOSE_SCHEDULE], counter=[0, 0, index, chain])
        return generator.random_raw(count)


class AtHome(Schedule):
    """Schedule of samplers that take the full gradient: between iterations the column blocks are at part 0."""

    def __init__(self, grid: int) -> None:
        super().__init__("cyclic", [1] * grid, 0, 0)

    def part(self, iteration: int) -> int:
        """Part at which the column blocks rest."""
        return 0


class StepSize(BaseModel):
    """Step size as a function of the iteration; every sampler's configuration extends this.

    The step rises linearly from `warm_up_factor` to 1 times `step_size` over the first `warm_up` sweeps; with
    ``decay="polynomial"`` it is then multiplied by (1 + sweep / decay_sweeps) ** -decay_power.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    step_size: float = Field(gt=0, allow_inf_nan=False)
    burn_in_step_size: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="step while burning in; default step_size"
    )
    warm_up: int = Field(0, ge=0, description="sweeps over which the step rises to its full size")
    warm_up_factor: float = Field(0.1, gt=0, le=1, description="first step as a fraction of the full one")
    decay: Literal["constant", "polynomial"] = "constant"
    decay_sweeps: float = Field(100.0, gt=0)
    decay_power: float = Field(0.33, gt=0, le=1)

    def step(self, iteration: int, grid: int, burn_in: int) -> float:
        """Step of `iteration`, in the unit in which `step_size` is given.

        Parameters
        ----------
        iteration : int
            Counted from 0.
        grid : int
            Iterations in a sweep.
        burn_in : int
            Number of iterations that count as burn-in.
        """
        size = self.step_size
        if iteration < burn_in and self.burn_in_step_size is not None:
            size = self.burn_in_step_size
        sweep = iteration / grid
        if sweep < self.warm_up:
            size *= self.warm_up_factor + (1.0 - self.warm_up_factor) * sweep / self.warm_up
        if self.decay == "polynomial":
            size *= (1.0 + sweep / self.decay_sweeps) ** -self.decay_power
        return size
