"""A Bayesian matrix factorisation distributed over the ring of processes, as samplers and chains see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.divergence import find_divergence
from dsgmcmc.model.heldout import HeldOut
from dsgmcmc.model.information import RowInformation
from dsgmcmc.model.model import FactorModel
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.quantity import SHIFT
from dsgmcmc.parallel.ring import Ring, stacked
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.targets.base import Momenta
from dsgmcmc.targets.state import (
    BlockLayout,
    Conditional,
    ParameterBlock,
    RandomStream,
    Rows,
    StateField,
    arrays_of,
    take_all,
)
from dsgmcmc.types import Array, Factor, Float64, Named, Shapes


class FactorTarget(RowInformation):
    """A Bayesian matrix factorisation, of which this process holds some blocks; a `dsgmcmc.targets.base.Target`.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    schedule : Schedule or None
        The part that each iteration visits; None if an iteration uses all the data and column blocks stay at home.
    model : FactorModel
        The likelihood and the other parts of the model.
    kept : sequence of StateField
        The sampler's fields, which are sent with a block.
    working : tuple of str
        Names of the sampler's temporary arrays of the shape of theta, which are not sent.
    positions : tuple of str
        For each interleaved sub-chain, the field that holds its state.
    stream : RandomStream
        Seed and chain.
    """

    def __init__(
        self,
        ring: Ring,
        ratings: RatingBlocks,
        schedule: Schedule | None,
        model: FactorModel,
        kept: Sequence[StateField],
        working: tuple[str, ...],
        positions: tuple[str, ...],
        stream: RandomStream,
    ) -> None:
        self.ring, self.model, self.stream = ring, model, stream
        self.ratings = ratings = model.effects.ratings if model.effects else ratings
        self.likelihood, self.quantities = model.likelihood, model.quantities
        self.metric_uses_current_hyperparameters = schedule is None
        self.timers, self.grid = ring.phases, ring.grid
        self.dimension, self.n_data, self.positions = model.rows.dimension, ratings.n_data, positions
        self.subchain, self.scratch = 0, working[0] if working else None
        self.sweep_length = self.grid if schedule else 1
        self.curvature_bound = ratings.curvature_bound(schedule.probability if schedule else None)
        self.curvature_bound += self.likelihood.curvature_of_all(ratings.shape)
        of_rows = (quantity.field(self.quantities.sizes) for quantity in self.quantities.of_rows)
        self.layout = layout = BlockLayout((*kept, *of_rows), self.dimension)
        starts = {factor: model.rows.origin(factor).astype(np.float32) for factor in Factor}
        origins = {factor: start if start.any() else None for factor, start in starts.items()}

        def make(factor: Factor, **place: Any) -> ParameterBlock:
            given: Any = {"dimension": self.dimension, "origin": origins[factor], **place}
            return ParameterBlock(stream, ring.phases, self.prior, factor, **given)

        self.circulation = Circulation(ring, ratings, schedule, make, layout, working, self.dimension)

    # ------------------------------------------------------------------ as samplers see it

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        self.stream.iteration = iteration
        sweeps, later = divmod(iteration, self.sweep_length)
        for part in self.model.parts:
            part.begin(self.blocks(), not later)
        if not later:
            context = self._context(self.model.turn(sweeps))
            for part in self.model.parts:
                part.move(context)

    @property
    def noise_precision(self) -> float:
        """Noise precision tau of the current sub-chain."""
        return float(self.model.noise.parameters.tau[self.subchain])

    def noise_scales_of(self, block: ParameterBlock) -> Array | None:
        """Current noise scales of a block's rows, (n,); None if rows have no noise scales."""
        return self.likelihood.noise_scale(block) if self.model.noise.factors else None

    def prior(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows in the current sub-chain."""
        return self.model.rows.of_block(block, self.subchain)

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks of parameters that this process holds at present.

        Here: the row blocks in order, then the column blocks paired with them.
        """
        return self.circulation.blocks()

    def rows_by_factor(self) -> Iterator[Rows]:
        """The rows that this process holds at present, in one group per factor."""
        return self.circulation.rows_by_factor()

    def visit(self, send: bool = False) -> Iterator[FactorCell]:
        """Cells of this iteration's part; `send` sends blocks to where the next part needs them. Collective.

        With `send`, cells whose blocks leave come first, and these blocks are sent during the work on the other cells.
        """
        for cell in self.circulation.visit(self.stream.iteration, send):
            yield FactorCell(self, cell)

    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        """Gradient of minus the log likelihood of all data, with all blocks at a fixed state. Collective."""
        kept = self.likelihood.fields
        for cell in self.circulation.tour((position, out, *kept), returning=(out, *kept), sums=(out,)):
            self.add_gradient(cell, position, out, 1.0, float(errors))
        self.likelihood.add_gradient_of_all(self.circulation, position, out)

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> None:
        """Add the gradient of minus the log likelihood of a cell, times `scale`, to `out` of its blocks."""
        begin = self.timers.enter()
        error = self.likelihood.add_gradient(cell, position, out, scale, share)
        self.model.noise.add_error(cell.row.index, error * share)
        self.timers.leave("gradient", begin)

    def all_data_seen(self) -> None:
        """Draw the hyperparameters and other parameters that the sampler does not update, if due. Collective.

        Called once a sweep.
        """
        context = self.context()
        self.model.draw(context)
        self.model.draw_effects(context)

    @property
    def renews_data(self) -> bool:
        """Whether `all_data_seen` changes the data in this iteration, so that gradients must be computed again."""
        return any(part.renews_data(self._turn) for part in self.model.parts)

    @property
    def renews_prior(self) -> bool:
        """Whether `all_data_seen` draws prior means of single rows, given the rows, in this iteration."""
        return any(part.renews_prior(self._turn) for part in self.model.parts)

    @property
    def _turn(self) -> int:
        """Number of the draw of hyperparameters due after the sweep that ends with this iteration; 0 if none is."""
        return self.model.turn((self.stream.iteration + 1) // self.sweep_length)

    def context(self, factor: Factor | None = None) -> DrawContext:
        """Context in which parts draw: before the rows of `factor` are drawn, or after all rows have moved."""
        return self._context(self._turn, factor)

    def _context(self, turn: int, factor: Factor | None = None) -> DrawContext:
        place = (self.circulation, self.prior, self.positions, self.stream)
        return DrawContext(*place, lambda: self.noise_precision, turn, factor, self.likelihood)

    def conditionals(self, factor: Factor, position: str) -> Iterator[ParameterBlock]:
        """Blocks of a factor, with the conditional distributions of their rows given everything else. Collective.

        The column blocks must be at home.
        """
        context = self.context(factor)
        self.model.draw_effects(context)
        likelihood, statistics = self.likelihood, self.row_statistics(factor, position)
        with self.timers("gradient"):
            self.model.noise.squared_error[:, 0] = self.keep_errors(statistics, position)
        self.model.draw(context)
        for block, sums in statistics.items():
            scale = self.noise_precision * likelihood.noise_scale(block).astype(np.float64)
            block.conditional = Conditional(sums, scale)
            yield block
            block.conditional = None

    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """All momenta of rows, by names such as ``W.biases``.

        Here: momenta of factors, of biases, and of the rows' parameters in the likelihood.
        """
        rank, whole = self.model.rows.rank, slice(None)
        columns = {"factors": slice(0, rank), "biases": slice(rank, self.dimension)}
        of_theta = {"rows": whole} if turned else columns
        momenta: dict[str, Momenta] = {}
        for rows in self.rows_by_factor():
            places = {name: (field, chosen) for name, chosen in of_theta.items()}
            places |= {name: (drift, whole) for name, drift in self.likelihood.momenta_of(rows.factor).items()}
            momenta |= {f"{rows.factor.name}.{name}": Momenta(rows.factor, *place) for name, place in places.items()}
        return momenta

    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Callable[[dict[str, Float64]], Named], result: Shapes
    ) -> dict[str, Float64]:
        """Add the named partial sums of all blocks, in block order; every process gets `finish(totals)`. Collective."""
        in_order = stacked(partials[block] for pair in self.circulation.pairs() for block in pair)
        return self.ring.sum(in_order, finish, result)

    # ------------------------------------------------------------------ as chains see it

    @property
    def units(self) -> dict[str, Array | float]:
        """For each row quantity saved with draws, the factor that converts it to the unit of the data."""
        return self.model.units

    def reset(self) -> None:
        """Set all parameters, except the sampler's fields, to their initial values."""
        for part in self.model.parts:
            part.start(self.blocks())
        for shift in (block[SHIFT.name] for block in self.blocks() if SHIFT.name in block.arrays):
            shift.fill(0.0)

    def home(self, names: Sequence[str]) -> Iterator[ParameterBlock]:
        """Blocks with these fields, yielded by the process that keeps the block's averages, its home. Collective.

        A column block may be on another process at the time. Here: its home is that of the row block with its number.
        """
        return self.circulation.home(names)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """The part of the state on this process that a checkpoint saves."""
        for block in self.blocks():
            for name in self.layout.names:
                yield Key("state", block.factor.name, block.index, name), block[name]
        for part in self.model.parts:
            yield from part.saved(self.ring.blocks)

    def small(self) -> dict[str, Float64]:
        """The part of the state that is the same on all processes."""
        return arrays_of(self.model.replicated)

    def load(self, snapshot: Snapshot, but: Collection[str] | None = None) -> None:
        """Load the state of a checkpoint, except fields in `but`; place blocks where the next iteration needs them."""
        if but is None:
            self.circulation.place(snapshot.manifest.iteration)
        for key, array in self.saved():
            if not but or key.field not in but:
                array[:] = snapshot.read(key)
        small = {name: value.array() for name, value in snapshot.manifest.state.items()}
        take_all(self.model.replicated, small)
        for part in self.model.parts:
            part.loaded()

    def rows_at_home(self) -> dict[tuple[Factor, int], int]:
        """Number of rows of every block that `home` yields."""
        bounds = {(factor, b): self.ratings.bounds(factor, b) for b in self.ring.blocks for factor in Factor}
        return {place: stop - start for place, (start, stop) in bounds.items()}

    def parameters(self) -> dict[str, Float64]:
        """Shared parameters of the current sub-chain, in the unit of the data."""
        return self.model.parameters(self.subchain)

    def find_divergence(self, position: str) -> str:
        """Describe where the state is not finite or far too large, else return an empty string. Collective."""
        return find_divergence(self.circulation, self.model, position)

    def recorders(self) -> Sequence[HeldOut]:
        """Recorders specific to the target, in addition to the recorder of moments and draws that every run has.

        Here: predictions of the test ratings.
        """
        return [HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision, self.model.effects)]


@dataclass
class FactorCell:
    """A cell of ratings as a sampler sees it; a `dsgmcmc.targets.base.Cell`."""

    target: FactorTarget
    cell: RatingsCell

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """The blocks of parameters on which the data of the cell depend."""
        return self.cell.row, self.cell.column

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` of all blocks to the stochastic gradient of the energy U at field `position`.

        Here: the likelihood term is that of one part, scaled by 1 / p_t [Simsekli 2016, eq. 3].
        """
        target, probability = self.target, self.target.circulation.part_probability
        for block in (self.cell.row, self.cell.column):
            block.begin_gradient(position, out, prior)
        # with this weight, the squared errors of a sweep add up to an estimate of the sum over all ratings
        share = 1.0 / (probability * target.grid) if errors else 0.0
        target.add_gradient(self.cell, position, out, target.noise_precision / probability, share)
