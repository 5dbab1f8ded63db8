"""Gradient estimators: they compute the gradient that a sampler uses, separately from how it steps.

An estimator computes the gradient of the energy at a field, and yields the rows that may be updated with it; `grad`
in the formula of an update is then that gradient, and `grad_likelihood` its part without the prior. The estimator
decides whether an iteration uses a part of the data or all, how a part represents the whole, and when all data were
seen, so that hyperparameters may be drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

from dsgmcmc.kernels.formula import Gradient
from dsgmcmc.samplers.registry import Registry
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.base import Cell, Target
from dsgmcmc.targets.state import ParameterBlock, Rows, StateField

T = TypeVar("T", bound=Target)

BeforeDraws = Callable[[Rows], None] | None


class GradientEstimator(ABC, Generic[T]):
    """Takes gradients of the energy of a target of class `T`.

    Attributes
    ----------
    by_parts : bool
        Whether an iteration visits one part of the data; else it visits all of them.
    fields : tuple of StateField
        Fields that it keeps with a block.
    scratch : tuple of str
        Arrays of the shape of theta that it needs besides ``g``.
    fixed_likelihood : bool
        Whether tau may be the only parameter of the likelihood that is sampled.
    """

    by_parts: ClassVar[bool]
    fields: ClassVar[tuple[StateField, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = ()
    fixed_likelihood: ClassVar[bool] = False
    #: Class of densities that it is limited to; None if there is no limit.
    densities: ClassVar[type | None] = None

    def tables(self, density: Any, grid: int) -> tuple[StateField, ...]:
        """Fields whose width depends on a density's data; `grid` iterations use as many data as there are."""
        return ()

    def metrics(self) -> dict[str, float]:
        """Entries that it adds to a line of metrics."""
        return {}

    @classmethod
    def of(cls, config: SamplerConfig, burn_in: int) -> Self:
        """Make the estimator of a sampler with this configuration; its first `burn_in` iterations are burn-in."""
        return cls()

    @abstractmethod
    def __call__(self, target: T, position: str, prior: bool = True, before: BeforeDraws = None) -> Iterator[Rows]:
        """Compute the gradient at field `position` into scratch ``g``, and yield the rows to update. Collective.

        Parameters
        ----------
        target : Target
            What is sampled.
        position : str
            Field that holds the state.
        prior : bool
            Whether the sum may start from the prior's gradient; then there is no `grad_likelihood`.
        before : callable, optional
            Called with all rows, and their gradient, before hyperparameters are drawn, if that happens between
            gradient and update.
        """

    def by_block(self, target: T, position: str) -> Iterator[ParameterBlock]:
        """The same block by block, for updates that consist of several calls. Collective."""
        for rows in self(target, position):
            yield from rows.blocks


class PartGradient(GradientEstimator[T]):
    """The stochastic gradient of one part, scaled by 1 / p_t [Ahn 2015, eq. 7; Simsekli 2016, eq. 3].

    A block is sent to where the next part needs it once it is updated, during the work on the others. A sampler that
    visits the cells itself calls `begin`, then `take` for each cell, and finally `finish`.
    """

    by_parts: ClassVar[bool] = True

    def __call__(self, target: T, position: str, prior: bool = True, before: BeforeDraws = None) -> Iterator[Rows]:
        """Compute the gradient, and yield the rows to update. Collective."""
        self.begin(target, position)
        for cell in target.visit(send=True):
            self.take(target, cell, position, prior=prior)
            yield from cell.blocks
        self.finish(target)

    def begin(self, target: T, position: str) -> None:
        """Prepare an iteration, before its cells are visited. Collective."""

    def take(
        self, target: T, cell: Cell, position: str, out: str = "g", prior: bool = True, errors: bool = True
    ) -> None:
        """Compute the gradient of a cell's blocks, with the arguments of `dsgmcmc.targets.base.Cell.gradient`."""
        cell.gradient(position, out, prior, errors)

    @staticmethod
    def finish(target: T) -> None:
        """Tell the target that all data were seen, if this part was the last of a sweep. Collective."""
        if (target.stream.iteration + 1) % target.sweep_length == 0:
            target.all_data_seen()


class ControlVariate(PartGradient[Target]):
    """A part's gradient, less that at an anchor a, plus the full one at a [Nemeth 2021, section 2.3].

        grad U~(theta) = grad U~_t(theta) - grad U~_t(a) + grad U(a)

    of the likelihood; the prior's gradient is exact. Unbiased given theta and a, with a variance that falls with
    |theta - a|^2, for two gradients of a part in the place of one. The anchor is the chain's own state at the end of
    burn-in, which uses plain gradients of parts. The likelihood's gradient at a is kept at noise precision 1, so that
    tau may be drawn; what else it depends on must stay as it is.
    """

    fields: ClassVar[tuple[StateField, ...]] = (StateField("anchor"), StateField("full"))
    scratch: ClassVar[tuple[str, ...]] = ("anchored",)
    fixed_likelihood: ClassVar[bool] = True

    def __init__(self, burn_in: int) -> None:
        self.burn_in = burn_in

    @classmethod
    def of(cls, config: SamplerConfig, burn_in: int) -> Self:
        """Make the estimator of a sampler with this configuration; its first `burn_in` iterations are burn-in."""
        return cls(burn_in)

    def begin(self, target: Target, position: str) -> None:
        """Set the anchor at the end of burn-in. Collective."""
        if target.stream.iteration != self.burn_in:
            return
        for block in target.blocks():
            block["anchor"][:] = block[position]
        target.full_gradient("anchor", "full", errors=False)

    def take(
        self, target: Target, cell: Cell, position: str, out: str = "g", prior: bool = True, errors: bool = True
    ) -> None:
        """Compute the gradient of a cell's blocks, with the arguments of `dsgmcmc.targets.base.Cell.gradient`."""
        cell.gradient(position, out, prior, errors)
        if target.stream.iteration < self.burn_in:
            return
        cell.gradient("anchor", "anchored", prior=False, errors=False)
        estimate, tau = f"{out} - anchored + tau * full", {"tau": target.noise_precision}
        gradient = Gradient(estimate, "", tau) if prior else Gradient(f"{estimate} + grad_prior", estimate, tau)
        for block in cell.blocks:
            block.gradient = gradient


class FullGradient(GradientEstimator[Target]):
    """The gradient of all the data, in one tour of the ring with all factors frozen; then everything moves at once.

    Hyperparameters are drawn given the state that the gradient was taken at, and the update uses them as they are then,
    so that both conditionals are exact: the likelihood's part is kept at noise precision 1, and scaled when it is read.
    If the draws change the data, the gradient is computed again.
    """

    by_parts: ClassVar[bool] = False

    def __call__(self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None) -> Iterator[Rows]:
        """Compute the gradient, and yield the rows to update. Collective."""
        target.full_gradient(position, "g")
        if before:
            for rows in self._moving(target):
                before(rows)
        target.all_data_seen()
        if target.renews_data:
            target.full_gradient(position, "g", errors=False)
        yield from self._moving(target)

    @staticmethod
    def _moving(target: Target) -> Iterator[Rows]:
        """Rows that may be updated, with the gradient at the current hyperparameters."""
        gradient = Gradient("tau * g + grad_prior", "tau * g", {"tau": target.noise_precision})
        for rows in target.together():
            rows.gradient = gradient
            if not rows.frozen:
                yield rows


class NoGradient(GradientEstimator[Target]):
    """No gradient: for samplers that need none, and use all the data in an iteration."""

    by_parts: ClassVar[bool] = False

    def __call__(self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None) -> Iterator[Rows]:
        """Yield no rows: nothing is computed."""
        yield from ()


#: To add an estimator, write its class and name it here; samplers declare which ones they can use.
GRADIENTS: dict[str, type[GradientEstimator[Any]]] = {
    "part": PartGradient,
    "full": FullGradient,
    "none": NoGradient,
    "control-variate": ControlVariate,
}

#: Estimators that draw single data; only for densities that are sums over data.
DATUM_GRADIENTS: Registry[GradientEstimator[Any]] = Registry(
    {
        "saga": "densities.subsampling.Saga",
        "importance": "densities.subsampling.Importance",
        "importance-saga": "densities.subsampling.ImportanceSaga",
        "adaptive": "densities.subsampling.Adaptive",
        "adaptive-stored": "densities.subsampling.AdaptiveStored",
        "adaptive-published": "densities.subsampling.AdaptivePublished",
    }
)
