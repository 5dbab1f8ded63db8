"""The base class of samplers: a configuration, the fields of the state, and one iteration.

All samplers use the step convention theta <- theta - eps D grad U + N(0, 2 eps D), where the energy
U is the negative log posterior. Where a paper writes eps / 2, the sampler's docstring states its
equations in this convention.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.gradients import GRADIENTS, GradientEstimator, PartGradient, T
from dsgmcmc.samplers.step_policy import StepPolicy
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import Replicated, StateField
from dsgmcmc.types import Purpose

C = TypeVar("C", bound=SamplerConfig)

NORMAL = Formula("theta = sd * z")


class Sampler(ABC, Generic[C, T]):
    """A Markov chain on the fields of a target's blocks.

    Its configuration is a `C`, and its target a `T`.

    Parameters
    ----------
    config : SamplerConfig
        Configuration of class `Config`; it names the gradient estimator.
    burn_in : int
        Number of burn-in iterations; adaptation stops when they end.

    Attributes
    ----------
    gradient : GradientEstimator
        Computes the gradient of the energy.
    steps : StepPolicy
        Decides about the steps.
    replicated : tuple of Replicated
        Small state that is the same on all processes and is saved in every checkpoint.
    """

    Config: ClassVar[type[SamplerConfig]]
    #: Names of the gradient estimators that the sampler can use, the default first.
    gradients: ClassVar[tuple[str, ...]] = ("part",)
    #: Whether it can also use the gradient estimators that draw single data.
    draws_data: ClassVar[bool] = False
    #: Whether it draws rows from their conditional distributions, which must then be normal.
    draws_conditionals: ClassVar[bool] = False
    #: Decides about steps: before a run about the configuration, and then about every iteration.
    Steps: ClassVar[type[StepPolicy[Any]]] = StepPolicy
    #: Temporary arrays of the shape of theta, not stored with a block; the first one receives
    #: gradients.
    scratch: tuple[str, ...] = ("g",)
    #: Field of N(0, 1) momenta, which are drawn at the start; empty if there are none.
    momentum: ClassVar[str] = ""
    #: First iteration in which parts of the model move at the same time as rows (`Target.moving`);
    #: None: they never do.
    moves_from: int | None = None
    #: Settings of the run whose defaults this sampler changes.
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: C, burn_in: int) -> None:
        self.config = config
        self.burn_in = burn_in
        self.gradient: GradientEstimator[T] = self.estimator(config)(config, burn_in)
        self.steps = self.Steps(config, burn_in)
        self.replicated: tuple[Replicated, ...] = ()

    @property
    def fields(self) -> tuple[StateField, ...]:
        """The sampler's fields, which are sent with a block and saved in checkpoints."""
        return (StateField("theta"),)

    @property
    def kept(self) -> tuple[StateField, ...]:
        """The fields of the sampler and of its gradient estimator."""
        return (*self.fields, *self.gradient.fields)

    @property
    def working(self) -> tuple[str, ...]:
        """Temporary arrays of the shape of theta, of the sampler and of its gradient estimator."""
        return (*self.scratch, *self.gradient.scratch)

    @property
    def positions(self) -> tuple[str, ...]:
        """The fields that hold the states of the chain, which move in turns."""
        return ("theta",)

    def position(self, iteration: int) -> str:
        """Field that holds the state after `iteration`."""
        return self.positions[iteration % len(self.positions)]

    # ------------------------------------------------------------------ configuration

    @classmethod
    def estimator(cls, config: SamplerConfig) -> type[GradientEstimator[Any]]:
        """Class of the gradient estimator that a configuration names.

        Raises
        ------
        InputError
            If this sampler cannot use that estimator.
        """
        name = config.gradient
        if name is None:
            name = cls.gradients[0]
        if name in cls.gradients:
            return GRADIENTS[name]
        drawing = []
        if cls.draws_data:
            drawing = [each for each, estimator in GRADIENTS.items() if estimator.draws_data]
        if name in drawing:
            return GRADIENTS[name]
        usable = " or ".join(cls.gradients)
        if drawing:
            usable += f", and for sums over data {' or '.join(drawing)}"
        raise InputError(f"sampler.gradient: {cls.__name__} cannot use {name!r}; it takes {usable}")

    @classmethod
    def sweep_length(cls, config: SamplerConfig, grid: int) -> int:
        """Number of iterations that use all data once, with data in `grid` parts."""
        if cls.estimator(config).by_parts:
            return grid
        return 1

    @classmethod
    def check(cls, config: C, schedule: str, grid: int, thin: int) -> None:
        """Raise `InputError` for a combination of settings that would sample a wrong distribution.

        Here: if a correction for the gradient noise of independent parts would be wrong.
        """
        if getattr(config, "noise_correction", False):
            estimator = cls.estimator(config)
            if estimator.by_parts and estimator is not PartGradient:
                raise InputError(
                    "sampler.noise_correction is for the noise of plain parts: leave it out"
                )
            cls.needs_independent_parts(
                config,
                schedule,
                grid,
                subject="sampler.noise_correction",
                otherwise="leave it out",
            )

    @classmethod
    def needs_independent_parts(
        cls, config: C, schedule: str, grid: int, *, subject: str, otherwise: str
    ) -> None:
        """Raise `InputError` if gradient noise is not independent, as `subject` assumes.

        The message advises to use another schedule, or `otherwise`.
        """
        if cls.sweep_length(config, grid) > 1 and schedule != "random":
            cancels = f"the noise of the {schedule} schedule's parts cancels within a sweep"
            advice = f"the draws would vary too little. Use schedule=random, or {otherwise}"
            raise InputError(
                f"{subject} needs parts that are drawn independently: {cancels}, and {advice}"
            )

    @classmethod
    def default_thin(cls, config: C, grid: int) -> int:
        """Default number of iterations between draws."""
        return 2 * cls.sweep_length(config, grid)

    # ------------------------------------------------------------------ sampling

    def metrics(self) -> dict[str, float]:
        """Values that this sampler adds to a line of metrics."""
        return self.gradient.metrics()

    def find_divergence(self) -> str:
        """Return a description of a divergence visible in the sampler's state, else ``""``.

        It is equal on all processes.
        """
        return ""

    def start(self, target: T, sd: float) -> None:
        """Draw initial positions, as `start_field` does, and momenta if any."""
        self.start_field(target, "theta", sd)
        if self.momentum:
            self.start_field(target, self.momentum, 1.0, Purpose.MOMENTUM)

    @staticmethod
    def start_field(target: Target, name: str, sd: float, purpose: Purpose = Purpose.START) -> None:
        """Draw every element of a field from N(0, `sd`^2).

        Positions have the block's unit, and its origin, if any.
        """
        for block in target.blocks():
            block.update(NORMAL, purpose, theta=name, sd=sd)
            if purpose == Purpose.START and block.origin is not None:
                block[name][:] = block.origin + block.spread * block[name]

    def step_size(self, target: T, iteration: int) -> float:
        """Step size in `iteration`, in the configuration's unit."""
        return self.steps.size(iteration, target.sweep_length)

    def weight(self, target: T, iteration: int) -> float:
        """Weight of the state after `iteration` in averages: its step size.

        [Simsekli 2016, eq. 12]
        """
        return self.step_size(target, iteration)

    def advance(self, target: T, first: int, count: int) -> None:
        """Run `count` iterations, starting with number `first`. Collective.

        The states do not depend on how iterations are divided between calls.
        """
        for iteration in range(first, first + count):
            target.begin(iteration)
            self.step(target, iteration)

    @abstractmethod
    def step(self, target: T, iteration: int) -> None:
        """Run one iteration: update every row of every factor once. Collective."""
