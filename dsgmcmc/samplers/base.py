"""What every sampler is: its configuration, the fields of its state, and one iteration.

Step convention, everywhere: theta <- theta - eps D grad U + N(0, 2 eps D), with U the energy, the negative log
posterior. Papers that write eps / 2 are converted in the docstring of the sampler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.base import World
from dsgmcmc.targets.state import PURPOSE_START, Field

C = TypeVar("C", bound=StepSize)

NORMAL = Formula("x = sd * z", fields=("x",), scalars=("sd",))


class Sampler(ABC, Generic[C]):
    """A Markov chain on the fields of a world's sides.

    Parameters
    ----------
    config : StepSize
        The sampler's own configuration, of class `Config`.
    burn_in : int
        Iterations that count as burn-in; what adapts until then is frozen afterwards.
    """

    Config: ClassVar[type[StepSize]]
    #: Arrays of the shape of theta that need not travel with a block.
    scratch: ClassVar[tuple[str, ...]] = ("g",)
    #: Whether an iteration takes the full gradient, with the column blocks at home, instead of a part's.
    sweeps: ClassVar[bool] = False
    #: Settings of the run that suit this sampler, where they are not those of all.
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: C, burn_in: int) -> None:
        self.config = config
        self.burn_in = burn_in

    @property
    def fields(self) -> tuple[Field, ...]:
        """What travels with a block and is saved."""
        return (Field("theta"),)

    @property
    def positions(self) -> tuple[str, ...]:
        """The field that holds the state of each interleaved sub-chain."""
        return ("theta",)

    def position(self, iteration: int) -> str:
        """Field that holds the draw which `iteration` made."""
        return self.positions[iteration % len(self.positions)]

    @classmethod
    def sweep_length_of(cls, grid: int) -> int:
        """Iterations that use all the data once."""
        return 1 if cls.sweeps else grid

    def sweep_length(self, world: World) -> int:
        """Iterations that use all the data once."""
        return self.sweep_length_of(world.grid)

    @classmethod
    def check(cls, config: C, schedule: str, grid: int, thin: int) -> None:
        """Raise `InputError` for a combination of settings that would sample another law."""

    @classmethod
    def default_thin(cls, config: C, grid: int) -> int:
        """Iterations between draws, if the user does not say."""
        return 2 * cls.sweep_length_of(grid)

    def metrics(self, world: World) -> dict[str, float]:
        """Return what this sampler adds to a line of metrics."""
        return {}

    def start(self, world: World, sd: float) -> None:
        """Set the initial state: every element of theta N(0, `sd`^2)."""
        self.start_field(world, "theta", sd)

    @staticmethod
    def start_field(world: World, name: str, sd: float, purpose: int = PURPOSE_START) -> None:
        """Set every element of a field N(0, `sd`^2)."""
        for side in world.sides():
            side.update(NORMAL, {"x": name}, purpose, sd=sd)

    def weight(self, world: World, iteration: int) -> float:
        """Weight of the draw of `iteration` in averages: its step [Simsekli 2016, eq. 12]."""
        return self.config.step(iteration, self.sweep_length(world), self.burn_in)

    @abstractmethod
    def step(self, world: World, iteration: int) -> None:
        """Make one iteration: one update of every row of every factor. Collective."""
