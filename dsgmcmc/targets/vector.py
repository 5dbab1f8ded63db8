"""Any target on a plain vector, for the same samplers that run on the factorisation.

One process, float64. The vector may have several rows, (n, D), which samplers without dot products treat as
independent chains of the same target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from dsgmcmc.parallel.timers import Phases
from dsgmcmc.targets.state import Field, Layout, Side

if TYPE_CHECKING:
    from dsgmcmc.samplers.base import Sampler
    from dsgmcmc.samplers.step_size import StepSize

Float64 = npt.NDArray[np.float64]


class Target(Protocol):
    """A posterior of a vector theta of length D.

    Attributes
    ----------
    dimension : int
        D.
    n_data : int
        Number N of data, for samplers whose step is given per datum.
    curvature : (D,) float64
        Typical second derivative of the likelihood's energy, the unit of step sizes given by curvature.
    prior_mean, prior_precision : (D,) and (D,) or (D, D) float64
        Gaussian prior; precision 0 where there is none or the likelihood has it.
    """

    dimension: int
    n_data: int
    curvature: Float64
    prior_mean: Float64
    prior_precision: Float64

    def gradient(self, theta: Float64, iteration: int | None) -> Float64:
        """Gradient of the likelihood's energy, (n, D) for theta (n, D).

        On the minibatch of `iteration`, the same whenever it is asked for, or on all the data if that is None.
        """


class VectorBlock:
    """The whole vector, as the only block of every part."""

    def __init__(self, world: VectorWorld) -> None:
        self._world = world
        self.sides = (world.side,)

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """See `dsgmcmc.targets.base.TargetBlock.gradient`."""
        self._world.set_gradient(position, out, self._world.iteration, prior)


class VectorWorld:
    """A target on a vector as a sampler sees it; implements `dsgmcmc.targets.base.World`.

    Parameters
    ----------
    target : Target
        What to sample.
    sampler : Sampler
        Gives the fields to allocate.
    rows : int
        Number n of vectors that move together.
    seed, chain : int
        Key of all random numbers.
    """

    def __init__(
        self, target: Target, sampler: Sampler[StepSize], rows: int = 1, seed: int = 0, chain: int = 0
    ) -> None:
        self.target, self.seed, self.chain = target, seed, chain
        self.iteration = self.subchain = 0
        self.grid, self.part_probability = 1, 1.0
        self.dimension, self.n_data = target.dimension, target.n_data
        self.peak_count = float(np.max(target.curvature))
        self.state: dict[str, Float64] = {"tau": np.ones(len(sampler.positions))}
        self.phases = Phases()
        layout = Layout((*sampler.fields, *(Field(name) for name in sampler.scratch)), self.dimension)
        buffer = np.zeros(rows * layout.width)
        counts = np.full(rows, target.n_data, np.int64)
        self.side = Side(self, "W", 0, 0, counts, layout.views(buffer, rows), buffer)
        self._partial = np.zeros(0)

    def set_gradient(self, position: str, out: str, iteration: int | None, prior: bool) -> None:
        """Set field `out` to the gradient of the energy at field `position`."""
        target, theta = self.target, self.side[position]
        gradient = target.gradient(theta, iteration)
        if prior:
            offset, precision = theta - target.prior_mean, target.prior_precision
            gradient = gradient + (offset @ precision if precision.ndim == 2 else offset * precision)
        self.side[out][:] = gradient

    def visit(self, send: bool = False) -> Iterator[VectorBlock]:
        """See `World.visit`."""
        yield VectorBlock(self)

    def sweep(self, position: str, out: str) -> None:
        """See `World.sweep`."""
        self.set_gradient(position, out, None, prior=False)

    def sides(self) -> Iterator[Side]:
        """See `World.sides`."""
        yield self.side

    def prior(self, factor: str) -> tuple[Float64, Float64]:
        """See `World.prior`."""
        return self.target.prior_mean, self.target.prior_precision

    def weigh(self, total: str, squares: str) -> None:
        """See `World.weigh`."""
        self.side[total][:] = self.side[squares][:] = self.n_data

    def curvature(self, position: str, weight: str) -> dict[str, Float64]:
        """See `World.curvature`: per datum."""
        return {"W": self.target.curvature / self.n_data}

    def add(self, side: Side, value: Float64) -> None:
        """See `World.add`."""
        self._partial = value

    def reduce(self, finish: Callable[[Float64], Float64], width: int) -> Float64:
        """See `World.reduce`."""
        return finish(self._partial)
