"""A Bayesian matrix factorisation on the ring, as samplers and chains see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.divergence import find_divergence
from dsgmcmc.model.heldout import HeldOut
from dsgmcmc.model.information import (
    fisher_information,
    keep_errors,
    own_products,
    own_sums,
    row_statistics,
    second_moments,
)
from dsgmcmc.model.model import FactorModel
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.quantity import SHIFT
from dsgmcmc.parallel.named import Named, Shapes, stacked
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.base import NOTHING, Information, Momenta
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
from dsgmcmc.types import Array, Factor, Float64

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring  # which loads MPI
    from dsgmcmc.storage.snapshot import Snapshot


class FactorTarget:
    """The blocks of a Bayesian matrix factorisation that this process holds; a `dsgmcmc.targets.base.Target`.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    schedule : Schedule or None
        Which part each iteration visits; None where an iteration uses all the data, with the column blocks at home.
    model : FactorModel
        The likelihood, and the other parts.
    kept : sequence of StateField
        The sampler's fields of a block, which are sent with it.
    working : tuple of str
        The sampler's arrays of the shape of theta that are not sent.
    positions : tuple of str
        The field that holds the state of each interleaved sub-chain.
    stream : RandomStream
        Seed and chain.
    frozen : frozenset of Factor
        Factors that stay as they are.
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
        frozen: frozenset[Factor] = frozenset(),
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
            common: Any = {"dimension": self.dimension, "frozen": factor in frozen, "origin": origins[factor]}
            return ParameterBlock(stream, ring.phases, self._prior, factor, **common, **place)

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

    def own_scale(self, block: ParameterBlock) -> Array | None:
        """Current noise scales of a block's rows, (n,); None if they have none."""
        return self.likelihood.noise_scale(block) if self.model.noise.factors else None

    def _prior(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows; of the current sub-chain."""
        return self.model.rows.of_block(block, self.subchain)

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks of parameters that are on this process at present.

        Here: rows in block order, then the columns that meet them.
        """
        return self.circulation.blocks()

    def together(self) -> Iterator[Rows]:
        """The rows that are on this process at present, one group per factor."""
        return self.circulation.together()

    def visit(self, send: bool = False) -> Iterator[FactorCell]:
        """Cells of this iteration's part; `send` sends blocks on to where the next part needs them. Collective.

        With `send` the departing blocks come first and travel during the others.
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
        """Add the gradient of the likelihood's energy, times `scale`, to `out` of a cell's blocks."""
        begin = self.timers.enter()
        error = self.likelihood.add_gradient(cell, position, out, scale, share)
        self.model.noise.add_error(cell.row.index, error * share)
        self.timers.leave("gradient", begin)

    def all_data_seen(self) -> None:
        """Draw hyperparameters and all else that the sampler does not move, if due; once a sweep. Collective."""
        context = self.context()
        self.model.draw(context)
        self.model.draw_effects(context)

    @property
    def renews_data(self) -> bool:
        """Whether `all_data_seen` changes the data in this iteration, so that gradients must be recomputed."""
        return self.model.renews_data(self._turn)

    @property
    def renews_prior(self) -> bool:
        """Whether `all_data_seen` draws means of single rows' priors, given these rows, in this iteration."""
        return self.model.renews_prior(self._turn)

    @property
    def _turn(self) -> int:
        """The turn of the parameters of priors and noise, after the sweep that ends with this iteration."""
        return self.model.turn((self.stream.iteration + 1) // self.sweep_length)

    def context(self, factor: Factor | None = None) -> DrawContext:
        """Context in which parts draw: before the rows of a factor are drawn, or after all have moved."""
        return self._context(self._turn, factor)

    def _context(self, turn: int, factor: Factor | None = None) -> DrawContext:
        terms = self.model.precision_terms() if turn else {}
        place = (self.circulation, self._prior, self.positions, self.stream)
        return DrawContext(*place, lambda: self.noise_precision, turn, factor, terms, self.likelihood)

    def conditionals(self, factor: Factor, position: str) -> Iterator[ParameterBlock]:
        """Blocks of a factor, with the conditionals of their rows given everything else. Collective.

        The columns must be at home.
        """
        context = self.context(factor)
        self.model.draw_effects(context)
        likelihood, statistics = self.likelihood, row_statistics(self.circulation, self.likelihood, factor, position)
        with self.timers("gradient"):
            self.model.noise.squared_error[:, 0] = keep_errors(statistics, likelihood, position)
        self.model.draw(context)
        for block, sums in statistics.items():
            scale = self.noise_precision * likelihood.noise_scale(block).astype(np.float64)
            block.conditional = Conditional(sums, scale)
            if not block.frozen:
                yield block
            block.conditional = None

    def information(
        self, position: str, bound: bool = True, earlier: Mapping[Factor, Float64] = NOTHING
    ) -> Information:
        """Fisher information at the state in `position`. Collective."""
        tau = self.noise_precision
        return fisher_information(self.circulation, self.likelihood, self._prior, position, tau, bound, earlier)

    def second_moments(
        self,
        position: str,
        counts: Mapping[ParameterBlock, Array],
        finish: Callable[[dict[Factor, Float64]], Named],
        result: Shapes,
    ) -> dict[str, Float64]:
        """Mean outer products, over the data, of the covariates of each factor's rows. Collective.

        Here: of (H_j, 1) for the rows of W, and the other way round.
        """
        return second_moments(self.circulation, position, counts, self.likelihood.biases, finish, result)

    def own_sums(self, position: str, out: str) -> None:
        """Set field `out` of every row to sum_j w_ij phi_j of its own data, as in `own_products`. Collective.

        Here: of (H_j, 1) for the rows of W, and the other way round.
        """
        own_sums(self.circulation, self.likelihood, position, out)

    def own_products(self, position: str, field: str) -> None:
        """Multiply every row y_i of a field by the second moments of its own data. Collective.

        Here: of (H_j, 1) for the rows of W, and the other way round.
        """
        own_products(self.circulation, self.likelihood, position, field)

    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """All momenta of rows, by names such as ``W.biases``.

        Here: of factors, biases, and what the rows have of the likelihood.
        """
        rank, whole = self.model.rows.rank, slice(None)
        columns = {"factors": slice(0, rank), "biases": slice(rank, self.dimension)}
        of_theta = {"rows": whole} if turned else columns
        momenta: dict[str, Momenta] = {}
        for rows in self.together():
            places = {name: (field, chosen) for name, chosen in of_theta.items()}
            places |= {name: (drift, whole) for name, drift in self.likelihood.momenta_of(rows.factor).items()}
            momenta |= {f"{rows.factor.name}.{name}": Momenta(rows.factor, *place) for name, place in places.items()}
        return momenta

    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Callable[[dict[str, Float64]], Named], result: Shapes
    ) -> dict[str, Float64]:
        """Add named partial sums of all blocks in block order; every process gets `finish(totals)`. Collective."""
        in_order = stacked(partials[block] for pair in self.circulation.pairs() for block in pair)
        return self.ring.sum(in_order, finish, result)

    # ------------------------------------------------------------------ as chains see it

    @property
    def units(self) -> dict[str, Array | float]:
        """For every quantity of rows that a draw has, the factor that converts it to the unit of the data."""
        return self.model.units

    def reset(self) -> None:
        """Set everything but the sampler's fields to its initial value."""
        for part in self.model.parts:
            part.start(self.blocks())
        for shift in (block[SHIFT.name] for block in self.blocks() if SHIFT.name in block.arrays):
            shift.fill(0.0)

    def home(self, names: Sequence[str]) -> Iterator[ParameterBlock]:
        """Blocks with these fields, each on the process that keeps its averages, wherever it is now.

        Here: a column block is at home with the row block of its own number. Collective.
        """
        return self.circulation.home(names)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """State of this process, for a checkpoint."""
        for block in self.blocks():
            for name in self.layout.names:
                yield Key("state", block.factor.name, block.index, name), block[name]
        for part in self.model.parts:
            yield from part.saved(self.ring.blocks)

    def small(self) -> dict[str, Float64]:
        """State that is the same on all processes."""
        return arrays_of(self.model.replicated)

    def load(self, snapshot: Snapshot, but: Collection[str] | None = None) -> None:
        """Load the state of a checkpoint; blocks are placed where the next iteration needs them."""
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
        """A draw's parameters that all rows share, of the current sub-chain, in the unit of the data."""
        return self.model.parameters(self.subchain)

    def find_divergence(self, position: str) -> str:
        """Describe where the state is not finite or has exploded; empty if it is nowhere. Collective."""
        return find_divergence(self.circulation, self.model, position)

    def recorders(self) -> Sequence[HeldOut]:
        """The target's own recorders, besides the one of moments and draws that every run has.

        Here: predictions of the test ratings.
        """
        return [HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision, self.model.effects)]


@dataclass
class FactorCell:
    """A cell as a sampler sees it; a `dsgmcmc.targets.base.Cell`."""

    target: FactorTarget
    cell: RatingsCell

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """The blocks that may be updated."""
        return tuple(block for block in (self.cell.row, self.cell.column) if not block.frozen)

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` of all blocks to the stochastic gradient of the energy U at field `position`.

        Here: of one part, scaled by 1 / p_t [Simsekli 2016, eq. 3].
        """
        target, probability = self.target, self.target.circulation.part_probability
        for block in (self.cell.row, self.cell.column):
            block.begin_gradient(position, out, prior)
        # a sweep's iterations sum to an estimate for all ratings
        share = 1.0 / (probability * target.grid) if errors else 0.0
        target.add_gradient(self.cell, position, out, target.noise_precision / probability, share)
