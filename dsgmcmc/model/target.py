"""A Bayesian matrix factorisation on the ring: what a sampler and a chain see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model import background
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.divergence import find_divergence
from dsgmcmc.model.factors import LocalFactors
from dsgmcmc.model.heldout import HeldOut
from dsgmcmc.model.hyperparameters import HyperparameterModel, Hyperparameters
from dsgmcmc.model.information import fisher_information, own_squares, second_moments
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.parts import PriorMean
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.parts.time import TimeEffects
from dsgmcmc.model.quantity import SHIFT, THETA, Sampled, collected, sizes_of
from dsgmcmc.model.statistics import keep_errors, row_statistics
from dsgmcmc.parallel.named import Named, Shapes
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.base import Information
from dsgmcmc.targets.state import Conditional, Layout, ParameterBlock, StateField, Stream
from dsgmcmc.types import Array, Factor, Float64

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring  # which loads MPI
    from dsgmcmc.storage.snapshot import Snapshot


class FactorTarget:
    """The blocks of a Bayesian matrix factorisation that this process holds; a `dsgmcmc.targets.base.RunTarget`.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    schedule : Schedule or None
        Which part each iteration visits; None where an iteration uses all the data, with the column blocks at home.
    model : HyperparameterModel
        Rank, biases, priors and noise.
    likelihood : Law
        Law of a rating.
    prior_means : sequence of PriorMean
        What the rows' prior means have besides m.
    time : TimeEffects, optional
        Effects of levels of time.
    fields : sequence of StateField
        State that travels with a block.
    scratch : sequence of str
        Arrays of the same shape that do not.
    positions : sequence of str
        The field that holds the state of each interleaved sub-chain.
    stream : Stream
        Seed and chain.
    frozen : frozenset of Factor
        Factors that stay as they are.
    """

    def __init__(
        self,
        ring: Ring,
        ratings: RatingBlocks,
        schedule: Schedule | None,
        model: HyperparameterModel,
        likelihood: Law,
        prior_means: Sequence[PriorMean] = (),
        *,
        time: TimeEffects | None = None,
        fields: Sequence[StateField],
        scratch: tuple[str, ...],
        positions: tuple[str, ...],
        stream: Stream,
        frozen: frozenset[Factor] = frozenset(),
    ) -> None:
        self.ring, self.time = ring, time or TimeEffects(None, ratings, ring)
        self.metric_uses_current_hyperparameters = schedule is None
        self.ratings = ratings = self.time.ratings
        self.model, self.likelihood, self.stream = model, likelihood, stream
        self.prior_means = tuple(prior_means)
        self.timers, self.grid = ring.phases, ring.grid
        self.dimension, self.n_data, self.positions = model.dimension, ratings.n_data, positions
        self.subchain, self._align_in = 0, scratch[0] if scratch else None
        self.sweep_length = self.grid if schedule else 1
        self.curvature_bound = ratings.curvature_bound(schedule.probability if schedule else None)
        self.curvature_bound += (likelihood.background or 0.0) * max(ratings.shape)
        self.hyperparameters = model.start(len(positions))
        self.squared_error = np.zeros((len(ring.blocks), 1))
        sizes = sizes_of(self.dimension, likelihood.n_levels)
        means = [quantity for part in prior_means for quantity in part.quantities]
        self.quantities = collected(model.quantities, likelihood.quantities, means, self.time.quantities, sizes)
        of_rows = (quantity.field(sizes) for quantity in self.quantities.of_rows)
        self.layout = layout = Layout((*fields, *of_rows), self.dimension)
        common: Any = {"dimension": self.dimension, "clip_kicks": likelihood.clips_kicks}
        common["origin"] = model.origin.astype(np.float32) if model.bias_mean else None

        def make(factor: Factor, **place: Any) -> ParameterBlock:
            return ParameterBlock(stream, ring.phases, self._prior, factor, frozen=factor in frozen, **common, **place)

        factors = LocalFactors(make, ratings, ring.blocks, layout, scratch, self.dimension)
        self.circulation = Circulation(ring, ratings, schedule, factors)
        self._context = DrawContext(self.circulation, self._prior, positions[0], stream)

    # ------------------------------------------------------------------ what samplers use

    @property
    def noise_precision(self) -> float:
        """See `Target`; of the current sub-chain."""
        return float(self.hyperparameters.tau[self.subchain])

    def own_scale(self, block: ParameterBlock) -> Array | None:
        """See `Target.own_scale`."""
        return self.likelihood.noise_scale(block) if self.model.heteroscedastic else None

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """Small parameters, the same on all processes."""
        means = (part.parameters for part in self.prior_means)
        return (self.hyperparameters, *means, self.time.parameters, *self.likelihood.replicated)

    def _prior(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows; of the current sub-chain, in their dtype."""
        state, m = self.hyperparameters, self.subchain
        mean, precision = state.mean[block.factor][m], state.precision[block.factor][m]
        shift = block.arrays.get(SHIFT.name)
        return RowPrior(mean.astype(np.float32), precision.astype(np.float32), shift)

    def blocks(self) -> Iterator[ParameterBlock]:
        """See `Target.blocks`: rows in block order, then the columns that meet them."""
        return self.circulation.blocks()

    def visit(self, send: bool = False) -> Iterator[FactorCell]:
        """See `Target.visit`. With `send` the departing blocks come first and travel during the others."""
        for cell in self.circulation.visit(self.stream.iteration, send):
            yield FactorCell(self, cell)

    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        """See `Target.full_gradient`."""
        for block in self.blocks():
            block[out].fill(0.0)
        kept = self.likelihood.fields
        for cell in self.circulation.tour((position, out, *kept), returning=(out, *kept)):
            self.add_gradient(cell, position, out, 1.0, float(errors))
        if self.likelihood.background is not None:
            background.add_gradient(self.circulation, self.likelihood.background, position, out)

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> None:
        """Add the gradient of the likelihood's energy, times `scale`, to `out` of a cell's blocks; see `Law`."""
        begin = self.timers.enter()
        error = self.likelihood.add_gradient(cell, position, out, scale, share)
        self.squared_error[cell.row.index - self.ring.blocks.start, 0] += error * share
        self.timers.leave("gradient", begin)

    def all_data_seen(self) -> None:
        """See `Target.all_data_seen`: moves the likelihood's own parameters, and draws the hyperparameters."""
        self.likelihood.all_data_seen(self.circulation, self.stream)
        if turn := self.model.turn(self._sweeps):
            self.draw_hyperparameters()
            self._draw_priors(turn)
        if self.model.is_turn_of_noise(self._sweeps):
            self.model.draw_noise_in_turn(self.hyperparameters, self.circulation, self.stream)
        self._draw_time()

    @property
    def renews_data(self) -> bool:
        """See `Target.renews_data`: where noise scales are drawn, or effects of time."""
        return self._is_turn_of_time or (self.model.noise_every > 1 and self.model.is_turn_of_noise(self._sweeps))

    @property
    def _is_turn_of_time(self) -> bool:
        return self._sweeps >= self.model.first and self.time.is_turn(self._sweeps)

    def _draw_time(self) -> None:
        """Draw the effects of time, if it is their turn. Collective."""
        if self._is_turn_of_time:
            self.time.draw(self._context, self.likelihood, self.noise_precision)

    @property
    def _sweeps(self) -> int:
        """Sweeps made, with the one that ends with this iteration."""
        return (self.stream.iteration + 1) // self.sweep_length

    def _draw_priors(self, turn: int) -> None:
        """Draw what the rows' priors have besides m and Lambda. Collective."""
        for part in self.prior_means:
            part.draw(self._context, turn)

    def draw_hyperparameters(self) -> None:
        """Draw them given the state as it is. Collective."""
        terms = {factor: term for part in self.prior_means for factor, term in part.precision_terms().items()}
        self.model.draw(self.hyperparameters, self.circulation, self.stream, self.positions, self.squared_error, terms)

    def conditionals(self, factor: Factor, position: str) -> Iterator[ParameterBlock]:
        """See `Target.conditionals`. The columns must be at home."""
        if factor == Factor.W:
            self._draw_time()
        likelihood, statistics = self.likelihood, row_statistics(self.circulation, self.likelihood, factor, position)
        with self.timers("gradient"):
            self.squared_error[:, 0] = keep_errors(statistics, likelihood, position)
        if turn := self.model.turn(self._sweeps):
            if factor == Factor.W:
                self.draw_hyperparameters()
                self._draw_priors(turn)
            self.model.draw_noise(self.hyperparameters, factor, self.circulation, self.stream)
        for block, sums in statistics.items():
            scale = self.noise_precision * likelihood.noise_scale(block).astype(np.float64)
            block.conditional = Conditional(sums, scale)
            if not block.frozen:
                yield block
            block.conditional = None

    def information(self, position: str, bound: bool = True) -> Information:
        """See `Target.information`."""
        at = (self._prior, position, self.noise_precision, self.model.biases)
        return fisher_information(self.circulation, self.likelihood, *at, self._align_in, bound)

    def second_moments(
        self,
        position: str,
        counts: Mapping[ParameterBlock, Array],
        finish: Callable[[dict[Factor, Float64]], Named],
        result: Shapes,
    ) -> dict[str, Float64]:
        """See `Target.second_moments`; of (H_j, 1) for the rows of W, and the other way round."""
        return second_moments(self.circulation, position, counts, self.model.biases, finish, result)

    def own_squares(self, position: str, axes: Mapping[Factor, Float64], out: str) -> None:
        """See `Target.own_squares`; of (H_j, 1) for the rows of W, and the other way round."""
        own_squares(self.circulation, self.likelihood, position, axes, self.model.biases, out)

    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Callable[[dict[str, Float64]], Named], result: Shapes
    ) -> dict[str, Float64]:
        """See `Target.sum`."""
        return self.ring.sum([[partials[block] for block in pair] for pair in self.circulation.pairs()], finish, result)

    # ------------------------------------------------------------------ what a run uses

    def begin(self, iteration: int) -> None:
        """See `Target.begin`."""
        self.stream.iteration = iteration
        if iteration % self.sweep_length == 0:  # tau is drawn from the errors of one sweep, however rarely
            self.squared_error[:] = 0.0
            self.likelihood.reset_errors(self.blocks())
        self.time.prepare()

    def at_once(self) -> int:
        """See `RunTarget.at_once`: after every iteration all processes of the ring agree."""
        return 1

    def reset(self) -> None:
        """See `RunTarget.reset`."""
        self.hyperparameters = self.model.start(len(self.positions))
        self.likelihood.start(self.blocks())
        self.time.start()
        for part in self.prior_means:
            part.start(self.blocks())
        for shift in (block[SHIFT.name] for block in self.blocks() if SHIFT.name in block.arrays):
            shift.fill(0.0)

    def home(self, names: Sequence[str]) -> Iterator[ParameterBlock]:
        """See `RunTarget.home`: a column block is at home with the row block of its own number."""
        return self.circulation.home(names)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """See `RunTarget.saved`."""
        for block in self.blocks():
            for name in self.layout.names:
                yield Key("state", block.factor.name, block.index, name), block[name]
        for local, b in enumerate(self.ring.blocks):
            yield Key("state", "W", b, "squared_error"), self.squared_error[local]
        yield from self.likelihood.saved(self.ring.blocks)
        yield from self.time.saved()

    def small(self) -> dict[str, Float64]:
        """See `RunTarget.small`."""
        return {name: value for part in self.replicated for name, value in part.arrays().items()}

    def load(self, snapshot: Snapshot) -> None:
        """See `RunTarget.load`."""
        self.circulation.place(snapshot.manifest.iteration)
        for key, array in self.saved():
            array[:] = snapshot.read(key)
        self.hyperparameters = Hyperparameters.empty()
        for part in self.replicated:
            part.take({name: value.array() for name, value in snapshot.manifest.state.items()})
        self.time.loaded()

    def accumulators(self) -> dict[tuple[Factor, int], dict[str, Array]]:
        """See `RunTarget.accumulators`."""
        quantities = self.quantities
        widths = {quantity.name: quantity.width(quantities.sizes) for quantity in quantities.drawn_of_rows}
        return {(factor, b): self.ratings.zeros(factor, b, widths) for b in self.ring.blocks for factor in Factor}

    def drawn_fields(self, position: str) -> dict[str, str]:
        """See `RunTarget.drawn_fields`."""
        names = [quantity.name for quantity in self.quantities.drawn_of_rows]
        return {position if name == THETA.name else name: name for name in names}

    def unit(self, field: str) -> Array | float:
        """See `RunTarget.unit`."""
        (quantity,) = (quantity for quantity in self.quantities.drawn_of_rows if quantity.name == field)
        return self.model.unit.astype(np.float32) if quantity.columns else 1.0

    def parameters(self) -> dict[str, Float64]:
        """See `RunTarget.parameters`."""
        unit, scale = self.model.unit, self.model.scale
        drawn = (each for part in self.replicated for each in part.drawn(self.subchain))
        return {quantity.name: quantity.in_rating_unit(value, unit, scale) for quantity, value in drawn}

    def is_traced(self, parameter: str) -> bool:
        """See `RunTarget.is_traced`."""
        return any(quantity.name == parameter for quantity in self.quantities.traced)

    def find_divergence(self, position: str) -> str:
        """See `RunTarget.find_divergence`."""
        return find_divergence(self.circulation, position)

    def recorders(self) -> Sequence[HeldOut]:
        """See `RunTarget.recorders`: predictions of the test ratings."""
        return [HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision, self.time)]


@dataclass
class FactorCell:
    """A cell as a sampler sees it; a `dsgmcmc.targets.base.Cell`."""

    target: FactorTarget
    cell: RatingsCell

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """See `Cell.blocks`."""
        return tuple(block for block in (self.cell.row, self.cell.column) if not block.frozen)

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """See `Cell.gradient`; of one part, scaled by 1 / p_t [Simsekli 2016, eq. 3]."""
        target, probability = self.target, self.target.circulation.part_probability
        for block in (self.cell.row, self.cell.column):
            block.begin_gradient(position, out, prior)
        # a sweep's iterations sum to an estimate for all ratings
        share = 1.0 / (probability * target.grid) if errors else 0.0
        target.add_gradient(self.cell, position, out, target.noise_precision / probability, share)
