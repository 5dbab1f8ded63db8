"""What a sampler sees of its target: blocks that have a gradient, sides that can be updated, ordered sums.

Two implementations: `dsgmcmc.targets.factorisation.target.FactorWorld`, the matrix factorisation on the ring, and
`dsgmcmc.targets.vector.VectorWorld`, any target on a plain vector. A sampler knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dsgmcmc.parallel.timers import Phases
from dsgmcmc.targets.state import Side

Float64 = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


class TargetBlock(Protocol):
    """Part of the target whose gradient can be taken."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that may be updated."""

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` of all sides to the stochastic gradient of the energy U at field `position`.

        Parameters
        ----------
        position, out : str
            Field to take the gradient at, and scratch to put it in.
        prior : bool
            Whether the prior's gradient is included.
        errors : bool
            Whether the squared errors count for drawing the noise precision.
        """


class World(Protocol):
    """The target as a sampler sees it."""

    seed: int
    chain: int
    iteration: int
    subchain: int
    grid: int
    dimension: int
    n_data: int
    part_probability: float
    peak_count: float
    state: dict[str, Float64]
    phases: Phases

    def visit(self, send: bool = False) -> Iterator[Any]:
        """Blocks of this iteration's part; with `send` the columns then go where the next part needs them."""

    def sweep(self, position: str, out: str) -> None:
        """Full gradient of the likelihood's energy at a frozen state, in one tour of the ring. Collective.

        `out` of every side is set to the gradient at noise precision 1 and without the prior. The hyperparameters
        are then drawn given this state, if it is their turn: the update that follows uses ``state["tau"]`` and the
        prior as they are now, so that both conditionals are exact.
        """

    def sides(self) -> Iterator[Side]:
        """All blocks of factors that rest here."""

    def prior(self, factor: str) -> tuple[Array, Array]:
        """Mean (D,) and precision (D,) or (D, D) of a factor's rows."""

    def weigh(self, total: str, squares: str) -> None:
        """Set fields of width 1 to the sums, over a row's data, of their weights and of their squares. Collective.

        Without weights both are the number of data.
        """

    def curvature(self, position: str, weight: str) -> dict[str, Float64]:
        """Mean square, (D,) by factor, over the data of what multiplies each column of its rows. Collective.

        Parameters
        ----------
        position : str
            Field at which to take it.
        weight : str
            Field of width 1 with the summed weights of every row's data, as `weigh` sets it.
        """

    def add(self, side: Side, value: Float64) -> None:
        """Put a block's float64 partial into the next `reduce`."""

    def reduce(self, finish: Callable[[Float64], Float64], width: int) -> Float64:
        """Add what was put in by `add`, in block order; all get what the root makes of the sum. Collective."""
