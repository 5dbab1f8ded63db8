"""Densities on a plain vector as targets of the samplers that also sample factorisations.

All arrays are float64. The state may have several rows, (n, D); samplers without dot products treat
them as independent chains. Minibatches are parts of the data: part t of B contains the data t, t +
B, t + 2 B, .... A schedule determines the order of the parts. Unless the schedule is cyclic, every
row has a separate order, so the noise of its gradients is independent of other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic

import numpy as np

from dsgmcmc.densities.density import (
    ALL,
    D,
    Data,
    check_gradient,
    precision_of,
    prior_energy,
    prior_gradient,
    start_of,
)
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import RowPrior, diagonal
from dsgmcmc.parallel.ring import Phases, pack, unpack
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.targets.base import Information, Momenta, RowStep
from dsgmcmc.targets.state import (
    BlockLayout,
    Conditional,
    ParameterBlock,
    RandomStream,
    Rows,
    StateField,
    gradient_in,
)
from dsgmcmc.types import Array, Factor, Finish, Float64, Named, Shapes

#: Message for samplers that draw rows from their conditional distributions.
NOT_CONDITIONAL = (
    "this sampler draws rows from their normal conditional distributions, which a density does not"
    " give: choose a sampler that steps along gradients, such as sgld"
)
#: Distance from the start at which a chain has diverged, in the unit 1 / sqrt(curvature + the
#: prior's precision).
FARTHEST = 1e6


class VectorCell:
    """The only cell of the target: the whole vector, with the data of one part."""

    def __init__(self, target: VectorTarget[Any]) -> None:
        self._target = target
        self.blocks = (target.block,)

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` to the stochastic gradient of the energy U at field `position`."""
        target = self._target
        density = target.density
        theta = target.block[position]
        total = target.block[out]
        for rows, data, probability in target.parts_of(target.stream.iteration):
            points = theta if rows is ALL else theta[rows]
            gradient = density.gradient(points, data)
            check_gradient(density, points, gradient)
            if rows is ALL:
                np.divide(gradient, probability, out=total)
            else:
                total[rows] = gradient / probability
        if prior:
            total += prior_gradient(density, theta)
        target.block.gradient = gradient_in(out, prior)


class VectorTarget(Generic[D]):
    """A density of class `D` with the interface of a `dsgmcmc.targets.base.Target`.

    Parameters
    ----------
    density : Density
    schedule : Schedule or None
        Part of the data that each iteration uses; None for all data.
    sampler : Sampler
        Determines the fields of the state, and the working arrays.
    stream : RandomStream
        Seed and chain.
    rows : int
        Number n of vectors that move together.
    """

    #: The data and the prior of a density do not change; it has no hyperparameters, and no noise of
    #: its own.
    renews_data = renews_prior = metric_uses_current_hyperparameters = False
    noise_precision = 1.0

    def __init__(
        self,
        density: D,
        schedule: Schedule | None,
        sampler: Sampler[Any, Any],
        stream: RandomStream,
        *,
        rows: int = 1,
    ) -> None:
        self.density = density
        self.schedule = schedule
        self.stream = stream
        self.n_data = density.n_data
        self.sweep_length = 1
        self._probability: list[float] = []
        if schedule is not None:
            self.sweep_length = schedule.grid
            self._probability = schedule.probability.tolist()
        self.curvature = np.asarray(density.curvature, np.float64)
        self.curvature_bound = float(np.max(self.curvature))
        prior = RowPrior(
            mean=np.ascontiguousarray(density.prior_mean, np.float64),
            precision=np.ascontiguousarray(density.prior_precision, np.float64),
        )
        fields = (*sampler.kept, *map(StateField, sampler.working))
        self.layout = BlockLayout(fields, density.dimension)
        buffer = np.zeros(rows * self.layout.width)
        self.block = ParameterBlock(
            stream=stream,
            timers=Phases(),
            prior=lambda block: prior,
            factor=Factor.W,
            index=0,
            start=0,
            dimension=density.dimension,
            counts=np.full(rows, density.n_data, np.int64),
            arrays=self.layout.views(buffer, rows),
            buffer=buffer,
            origin=start_of(density),
        )
        self.precision = precision_of(density)
        self.block.spread = 1 / np.sqrt(self.precision)

    def parts_of(self, iteration: int) -> Iterator[tuple[Data, Data, float]]:
        """Yield groups of rows, and the data that an iteration uses for them.

        Yields
        ------
        rows : slice or (m,) int64
        data : slice
            The part of the data.
        probability : float
            Probability of the part.
        """
        if self.schedule is None:
            yield ALL, ALL, 1.0
            return
        grid = self.schedule.grid
        n_rows = len(self.block.counts)
        if n_rows == 1:
            part = self.schedule.part(iteration)
            yield ALL, slice(part, None, grid), self._probability[part]
            return
        parts = self.schedule.parts(iteration, n_rows)
        for part in np.unique(parts).tolist():
            data = slice(part, None, grid)
            rows = np.flatnonzero(parts == part)
            if len(rows) == n_rows:
                yield ALL, data, self._probability[part]
            else:
                yield rows, data, self._probability[part]

    # ------------------------------------------------------------------ interface for samplers

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks of parameters that this process holds at present."""
        yield self.block

    #: The rows that this process holds at present, in one group per factor.
    rows_by_factor = blocks

    def visit(self, send: bool = False) -> Iterator[VectorCell]:
        """Yield the cells of this iteration's part; `send`: send blocks to their next processes.

        Collective.
        """
        yield VectorCell(self)

    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        """Set `out` to the gradient of minus the log likelihood of all data, at a fixed state.

        Collective.
        """
        gradient = self.density.gradient(self.block[position])
        check_gradient(self.density, self.block[position], gradient)
        self.block[out][:] = gradient

    def all_data_seen(self) -> None:
        """Do nothing: a density has no parameters that the sampler does not update."""

    def moving(self, step: RowStep) -> AbstractContextManager[None]:
        """Move nothing else: a density has no other parameters."""
        return nullcontext()

    def conditionals(self, factor: Factor, position: str) -> Iterator[tuple[Rows, Conditional]]:
        """Raise `InputError`: a density defines no conditional distributions of rows."""
        raise InputError(NOT_CONDITIONAL)

    def noise_scales_of(self, rows: Rows) -> None:
        """Return None: the data of a density have no noise scales."""

    def information(
        self, position: str, bound: bool, earlier: Mapping[Factor, Float64]
    ) -> Information:
        """Return the curvature of the density as the Fisher information at the state in `position`.

        Collective.

        A density has no second factor that would need a bound.
        """
        block = self.block
        precision = block.prior(block).precision
        n = block.n_data
        zeros = {block: np.zeros(len(n))}
        return Information(
            c={Factor.W: self.curvature / self.n_data},
            lambda_={Factor.W: diagonal(precision)},
            tau=1.0,
            n={block: n},
            squares=zeros,
            bound={block: np.ones(len(n))},
            common={Factor.W: precision},
            sizes=zeros,
        )

    def second_moments(
        self, position: str, counts: Mapping[ParameterBlock, Array], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """Return the curvature, as a diagonal matrix, for the mean outer product of covariates.

        Collective.
        """
        moments = {Factor.W: np.diag(self.curvature / self.n_data)}
        return unpack(pack(finish(moments), result), result)

    def covariate_sums(self, position: str, out: str) -> None:
        """Set field `out` to 0, in place of sums over data, which a density does not define.

        Collective.
        """
        self.block[out].fill(0.0)

    def multiply_by_moments(self, position: str, field: str) -> None:
        """Multiply every row of a field by the curvature, for the second moments of covariates.

        Collective.
        """
        self.block[field][:] *= self.curvature

    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """Return all momenta, under the name ``theta``."""
        return {"theta": Momenta(Factor.W, field)}

    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """Return `finish` of the named sums of the only block. Collective."""
        return unpack(pack(finish(dict(partials[self.block])), result), result)

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        self.stream.iteration = iteration

    # ------------------------------------------------------------------ properties of a state

    def energy(self, position: str) -> Float64:
        """Return the energy of the posterior at every row, (n,)."""
        theta = self.block[position]
        return np.atleast_1d(self.density.energy(theta) + prior_energy(self.density, theta))

    def find_divergence(self, position: str) -> str:
        """Describe an element of the state that is not finite, or too far from the start.

        Empty if there is none. Collective.
        """
        theta = self.block[position]
        farthest = FARTHEST * self.block.spread
        strange = np.argwhere(~(np.abs(theta - self.block.origin) <= farthest))
        if not len(strange):
            return ""
        value = float(theta[tuple(strange[0])])
        found = f"element {strange[0].tolist()} of theta is {value:.6g}"
        if not np.isfinite(value):
            return found
        return f"{found}, over {FARTHEST:,.0f} units of the curvature from its start"
