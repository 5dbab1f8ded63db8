"""Gradient estimators, which compute the gradients for samplers' steps.

An estimator computes the gradient of the energy at the state in a field, and yields the rows to
update. In the formula of an update, `grad` is this gradient, and `grad_likelihood` is the gradient
without the prior. The estimator decides whether an iteration uses a part of the data or all data,
how a part is scaled, and when all data have been seen, so that hyperparameters may be drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Gradient
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.base import Cell, Target
from dsgmcmc.targets.state import ParameterBlock, Replicated, Rows, StateField

T = TypeVar("T", bound=Target)

BeforeDraws = Callable[[Rows], None] | None


class GradientEstimator(ABC, Generic[T]):
    """Computes gradients of the energy of a target of class `T`.

    Parameters
    ----------
    config : SamplerConfig
        Configuration of the sampler.
    burn_in : int
        Number of burn-in iterations.

    Attributes
    ----------
    by_parts : bool
        Whether an iteration visits one part of the data instead of all data.
    fields : tuple of StateField
        Fields that the estimator keeps with a block.
    scratch : tuple of str
        Temporary arrays of the shape of theta, in addition to ``g``.
    fixed_likelihood : bool
        Whether no parameter of the likelihood other than tau may be sampled.
    draws_data : bool
        Whether it draws single data, for targets that are sums over data and have access to them.
    replicated : tuple of Replicated
        Small state, as of `dsgmcmc.samplers.base.Sampler`; only estimators of densities have one.
    """

    by_parts: ClassVar[bool]
    fields: ClassVar[tuple[StateField, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = ()
    fixed_likelihood: ClassVar[bool] = False
    draws_data: ClassVar[bool] = False

    def __init__(self, config: SamplerConfig, burn_in: int) -> None:
        self.config = config
        self.burn_in = burn_in
        self.replicated: tuple[Replicated, ...] = ()

    def metrics(self) -> dict[str, float]:
        """Values that the estimator adds to a line of metrics."""
        return {}

    @abstractmethod
    def __call__(
        self, target: T, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[Rows]:
        """Compute the gradient at field `position` into ``g``, and yield the rows to update.

        Collective.

        Parameters
        ----------
        target : Target
        position : str
            Field that holds the state.
        prior : bool
            Whether ``g`` may include the prior's gradient; `grad_likelihood` is then not available.
        before : callable, optional
            If hyperparameters are drawn between gradient and update: a function of rows, called
            before these draws with all rows and their gradient.
        """

    def by_block(self, target: T, position: str) -> Iterator[ParameterBlock]:
        """Compute the gradient, and yield blocks to update. Collective.

        For updates that consist of several calls.
        """
        for rows in self(target, position):
            yield from rows.blocks


class PartGradient(GradientEstimator[T]):
    """The stochastic gradient of one part, scaled by 1 / p_t.

    [Ahn 2015, eq. 7; Simsekli 2016, eq. 3]. An updated block is sent at once to where the next part
    needs it, during the work on other blocks. A sampler that visits the cells itself calls `begin`,
    then `take` for each cell, and finally `finish`.
    """

    by_parts: ClassVar[bool] = True

    @override
    def __call__(
        self, target: T, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[Rows]:
        self.begin(target, position)
        for cell in target.visit(send=True):
            self.take(target, cell, position, prior=prior)
            yield from cell.blocks
        self.finish(target)

    def begin(self, target: T, position: str) -> None:
        """Prepare for an iteration, before its cells are visited. Collective."""

    def take(
        self,
        target: T,
        cell: Cell,
        position: str,
        out: str = "g",
        *,
        prior: bool = True,
        errors: bool = True,
    ) -> None:
        """Compute the gradient of a cell's blocks; arguments as in `Cell.gradient`."""
        cell.gradient(position, out, prior, errors)

    @staticmethod
    def finish(target: T) -> None:
        """Call `Target.all_data_seen` if this part was the last of a sweep. Collective."""
        if (target.stream.iteration + 1) % target.sweep_length == 0:
            target.all_data_seen()


class ControlVariate(PartGradient[Target]):
    """A part's gradient, less its gradient at an anchor a, plus the full gradient at a.

    [Nemeth 2021, section 2.3]

        grad U~(theta) = grad U~_t(theta) - grad U~_t(a) + grad U(a)

    Here U stands for minus the log likelihood; the prior's gradient is exact. The estimate is
    unbiased given theta and a, its variance is proportional to |theta - a|^2, and it costs two
    gradients of a part instead of one. Burn-in uses plain gradients of parts, and the anchor is the
    chain's state at its end. The full gradient at a is stored at noise precision 1, so that tau may
    be drawn; other parameters of the likelihood must not change.
    """

    fields: ClassVar[tuple[StateField, ...]] = (StateField("anchor"), StateField("full"))
    scratch: ClassVar[tuple[str, ...]] = ("anchored",)
    fixed_likelihood: ClassVar[bool] = True

    @override
    def begin(self, target: Target, position: str) -> None:
        if target.stream.iteration != self.burn_in:
            return
        for block in target.blocks():
            block["anchor"][:] = block[position]
        target.full_gradient("anchor", "full", errors=False)

    @override
    def take(
        self,
        target: Target,
        cell: Cell,
        position: str,
        out: str = "g",
        *,
        prior: bool = True,
        errors: bool = True,
    ) -> None:
        cell.gradient(position, out, prior, errors)
        if target.stream.iteration < self.burn_in:
            return
        cell.gradient("anchor", "anchored", prior=False, errors=False)
        estimate = f"{out} - anchored + tau * full"
        tau = {"tau": target.noise_precision}
        if prior:
            gradient = Gradient(estimate, numbers=tau)
        else:
            gradient = Gradient(f"{estimate} + grad_prior", likelihood=estimate, numbers=tau)
        for block in cell.blocks:
            block.gradient = gradient


class FullGradient(GradientEstimator[Target]):
    """The gradient over all data, in one tour of the ring at one state; then all rows move at once.

    Hyperparameters are drawn given the state at which the gradient was computed, and the update
    uses their new values. The gradient is exact for the new values: the likelihood's gradient is
    stored at noise precision 1, and scaled when it is read. If the draws change the data, the
    gradient is computed again.
    """

    by_parts: ClassVar[bool] = False

    @override
    def __call__(
        self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[Rows]:
        target.full_gradient(position, "g")
        if before is not None:
            for rows in self._all_rows(target):
                before(rows)
        target.all_data_seen()
        if target.renews_data:
            target.full_gradient(position, "g", errors=False)
        yield from self._all_rows(target)

    @staticmethod
    def _all_rows(target: Target) -> Iterator[Rows]:
        """All rows, with the gradient at the current hyperparameters."""
        gradient = Gradient("tau * g + grad_prior", "tau * g", {"tau": target.noise_precision})
        for rows in target.rows_by_factor():
            rows.gradient = gradient
            yield rows


class NoGradient(GradientEstimator[Target]):
    """No gradient, for samplers that need none and use all data in an iteration."""

    by_parts: ClassVar[bool] = False

    @override
    def __call__(
        self, target: Target, position: str, prior: bool = True, before: BeforeDraws = None
    ) -> Iterator[Rows]:
        yield from ()


#: Estimators by name. To add one, list its class here; samplers declare the estimators that they
#: can use. `dsgmcmc.densities.subsampling` adds those that draw single data.
GRADIENTS: dict[str, type[GradientEstimator[Any]]] = {
    "part": PartGradient,
    "full": FullGradient,
    "none": NoGradient,
    "control-variate": ControlVariate,
}
