"""Gradient estimators: what a sampler steps along, apart from how it steps.

An estimator takes the gradient of the energy at a field, and yields the blocks that may be updated with it; `grad` in
the formula of an update is then that gradient, and `grad_likelihood` its part without the prior. It owns what follows
from how the data are gone through: whether an iteration uses a part of them or all, what stands for the whole, and when
all data were seen, so that hyperparameters may be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from dsgmcmc.kernels.formula import Gradient
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import ParameterBlock, StateField

BeforeDraws = Callable[[ParameterBlock], None] | None


class GradientEstimator(Protocol):
    """Takes gradients of the energy.

    Attributes
    ----------
    by_parts : bool
        Whether an iteration visits one part of the data; else all of them.
    fields : tuple of StateField
        What it keeps with a block.
    """

    by_parts: ClassVar[bool]
    fields: ClassVar[tuple[StateField, ...]]

    def __call__(
        self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[ParameterBlock]:
        """Take the gradient at field `position` into scratch ``g``, and yield the blocks to update. Collective.

        Parameters
        ----------
        target : Target
            What is sampled.
        position : str
            Field at which to take it.
        prior : bool
            Whether the prior's gradient may be put in where the sum begins. Then there is no `grad_likelihood`.
        before : callable, optional
            What is done with every block and its gradient before hyperparameters are drawn, if they are drawn between
            the gradient and the update.
        """


class PartGradient:
    """The stochastic gradient of one part, scaled by 1 / p_t [Ahn 2015, eq. 7; Simsekli 2016, eq. 3].

    A block leaves for where the next part needs it once it is updated, and travels while others are worked on.
    """

    by_parts: ClassVar[bool] = True
    fields: ClassVar[tuple[StateField, ...]] = ()

    def __call__(
        self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[ParameterBlock]:
        """See `GradientEstimator`."""
        for cell in target.visit(send=True):
            cell.gradient(position, "g", prior)
            yield from cell.blocks
        self.finish(target)

    @staticmethod
    def finish(target: Target) -> None:
        """Say that all data were seen, if this part was the last of a sweep. Collective."""
        if (target.stream.iteration + 1) % target.sweep_length == 0:
            target.all_data_seen()


class FullGradient:
    """The gradient of all the data, in one tour of the ring with all factors frozen; then everything moves at once.

    Hyperparameters are drawn given the state that the gradient was taken at, and the update uses them as they are then,
    so that both conditionals are exact: the likelihood's part is kept at noise precision 1, and scaled when it is read.
    """

    by_parts: ClassVar[bool] = False
    fields: ClassVar[tuple[StateField, ...]] = ()

    def __call__(
        self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[ParameterBlock]:
        """See `GradientEstimator`."""
        target.full_gradient(position, "g")
        if before:
            for block in self._blocks(target):
                before(block)
        target.all_data_seen()
        yield from self._blocks(target)

    @staticmethod
    def _blocks(target: Target) -> Iterator[ParameterBlock]:
        """Blocks that may be updated, with the gradient at the hyperparameters of now."""
        gradient = Gradient("tau * g + grad_prior", "tau * g", {"tau": target.noise_precision})
        for block in target.blocks():
            block.gradient = gradient
            if not block.frozen:
                yield block


class NoGradient:
    """None: for samplers that take no gradient, and use all the data in an iteration."""

    by_parts: ClassVar[bool] = False
    fields: ClassVar[tuple[StateField, ...]] = ()

    def __call__(
        self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[ParameterBlock]:
        """See `GradientEstimator`: no block may be updated along it."""
        yield from ()


#: To add an estimator, write its class and name it here; samplers say which they can use.
GRADIENTS: dict[str, type[GradientEstimator]] = {"part": PartGradient, "full": FullGradient, "none": NoGradient}
