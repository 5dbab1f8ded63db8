"""A Bayesian matrix factorisation distributed over the ring of processes.

`FactorTarget` is the factorisation as samplers and chains see it: cells of ratings with gradients,
conditional distributions of rows, draws of the other parameters, and the state that checkpoints
save. The parts of the model (`dsgmcmc.model.parts`) draw and declare everything but the factors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import refusing
from dsgmcmc.kernels.formulas.formula import RowPrior
from dsgmcmc.kernels.normal_rows import squared_errors
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.divergence import divergent_parameters, divergent_rows
from dsgmcmc.model.heldout import HeldOut
from dsgmcmc.model.interleaved import StateParameters
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.parts import PARTS, Noise, Part, RowPriors
from dsgmcmc.model.parts.base import ChainFacts, DrawContext, PrecisionTerms
from dsgmcmc.model.quantity import SHIFT, THETA, Quantities, Sampled, Sizes, sizes_of
from dsgmcmc.model.rounding import precision_limit
from dsgmcmc.model.row_sums import RowSums
from dsgmcmc.parallel.ring import Ring, shapes_of, stacked
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.storage.store import Key, Snapshot
from dsgmcmc.targets.base import Information, Momenta, RowStep, Target
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
from dsgmcmc.types import Array, Factor, Finish, Float32, Float64, Named, Purpose, Shapes

#: A row has diverged if the mean square of its elements exceeds the product of this number, the
#: mean square expected under the prior (at least 1), and the squared distance from the ratings'
#: centre to the most distant rating, in units of their scale (at least 1).
MAX_MEAN_SQUARE = 1e4

#: Name of the array in a warm start that marks the known rows of a block.
KNOWN = "known"

#: The parts of a chain's model, in the order in which they are drawn.
Parts = tuple[Law, Noise, RowPriors, *tuple[Part[Any], ...]]


def read_parts(
    law: type[Law], settings: BaseModel, *, ratings: Ratings, blocks: RatingBlocks, ring: Ring
) -> list[Any]:
    """Read the parts' data from the ratings file, once for all chains of a run. Collective.

    `settings` has the settings of the likelihood `law` and of all other parts.
    """
    return [part.read(settings, ratings, blocks, ring) for part in (law, *PARTS.values())]


def make_parts(settings: BaseModel, chain: ChainFacts, data: list[Any]) -> Parts:
    """Make the parts of a chain's model from the result of `read_parts`. Collective."""
    part_types = (chain.model.law, *PARTS.values())
    parts = [
        part_type.create(settings, chain, read)
        for part_type, read in zip(part_types, data, strict=True)
    ]
    likelihood, noise, rows, *others = (part for part in parts if part)
    return likelihood, noise, rows, *others


class SamplerFields(NamedTuple):
    """The fields of a block that a sampler needs.

    Attributes
    ----------
    kept : sequence of StateField
        Fields that are sent with a block.
    working : tuple of str
        Names of temporary arrays of the shape of theta, which are not sent.
    positions : tuple of str
        The fields that hold the states of the chain (`dsgmcmc.model.interleaved`).
    momentum : str
        The field of the momenta; empty if there are none.
    """

    kept: Sequence[StateField]
    working: tuple[str, ...]
    positions: tuple[str, ...]
    momentum: str = ""


class FactorTarget(Target):
    """A Bayesian matrix factorisation, of which this process holds some blocks.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    parts : tuple of Part
        The likelihood, the noise, the priors of the rows of both factors, and any other parts.
    fields : SamplerFields
        The fields of a block that the sampler needs.
    stream : RandomStream
        Seed and chain.
    schedule : Schedule, optional
        The part of the data that each iteration visits; None if an iteration uses all data and
        column blocks stay at home.
    sizes : Sizes, optional
        Lengths of the axes of the parts' quantities; by default of the axes that every model has.
    hyper_start : int
        Sweeps before the first draw of the parameters of priors and noise.
    """

    def __init__(
        self,
        ring: Ring,
        ratings: RatingBlocks,
        parts: Parts,
        fields: SamplerFields,
        *,
        stream: RandomStream,
        schedule: Schedule | None = None,
        sizes: Sizes | None = None,
        hyper_start: int = 1,
    ) -> None:
        self.ring = ring
        self.grid = ring.grid
        self.timers = ring.phases
        self.stream = stream
        self._set_parts(parts, sizes, fields.positions)
        self._hyper_start = hyper_start
        self._momentum = fields.momentum
        self.ratings = ratings
        if self.effects is not None:
            self.ratings = self.effects.ratings

        self.scratch = fields.working[0] if fields.working else None
        self.n_data = self.ratings.n_data
        self._set_schedule(schedule)

        sizes = self.quantities.sizes
        row_fields = [StateField(q.name, q.width(sizes)) for q in self.quantities.of_rows]
        self.layout = BlockLayout((*fields.kept, *row_fields), self.dimension)
        self._origins = self._initial_centres()
        self.circulation = Circulation(
            ring=ring,
            ratings=self.ratings,
            schedule=schedule,
            make=self._make_block,
            layout=self.layout,
            scratch=fields.working,
            dimension=self.dimension,
        )
        self._row_sums = RowSums(self.circulation, self.likelihood, self.prior)

    def _set_parts(self, parts: Parts, sizes: Sizes | None, positions: tuple[str, ...]) -> None:
        """Set the parts, their quantities, and the states of their parameters."""
        self.parts = parts
        self.likelihood, self.noise, self.row_priors, *others = parts
        self.likelihood.noise_parameters = self.noise.parameters
        self.effects = next((part for part in others if part.has_effects), None)
        self.dimension = self.row_priors.dimension
        if sizes is None:
            sizes = sizes_of(self.dimension, self.likelihood.n_levels)
        distinct = dict.fromkeys(quantity for part in parts for quantity in part.quantities)
        self.quantities = Quantities(tuple(distinct), sizes)
        self.states = StateParameters(positions, parts, self.quantities.all)

    def _set_schedule(self, schedule: Schedule | None) -> None:
        """Set what depends on whether an iteration uses a part of the data or all data."""
        self.metric_uses_current_hyperparameters = schedule is None
        self.sweep_length = 1
        probability = None
        if schedule is not None:
            self.sweep_length = self.grid
            probability = schedule.probability
        self.curvature_bound = self.ratings.curvature_bound(probability)
        background = self.likelihood.background
        if background is not None:
            self.curvature_bound += background.curvature(self.ratings.shape)

    def _initial_centres(self) -> dict[Factor, Array | None]:
        """Points about which initial rows are drawn, (D,) float32; None for 0."""
        centres: dict[Factor, Array | None] = {}
        for factor in Factor:
            centre = self.row_priors.origin(factor).astype(np.float32)
            centres[factor] = centre if centre.any() else None
        return centres

    def _make_block(self, factor: Factor, **fields: Any) -> ParameterBlock:
        """Make a block of parameters; `fields` are those that differ between blocks."""
        return ParameterBlock(
            stream=self.stream,
            timers=self.timers,
            prior=self.prior,
            factor=factor,
            dimension=self.dimension,
            origin=self._origins[factor],
            **fields,
        )

    # ------------------------------------------------------------------ as samplers see it

    @override
    def begin(self, iteration: int) -> None:
        self.stream.iteration = iteration
        self.states.begin(iteration)
        sweeps, into_sweep = divmod(iteration, self.sweep_length)
        begins_sweep = into_sweep == 0
        for part in self.parts:
            part.begin(self.blocks(), begins_sweep)
        if begins_sweep:
            context = self.context(hyper_sweep=self._hyper_sweep_after(sweeps))
            for part in self.parts:
                part.move(context)

    @property
    @override
    def noise_precision(self) -> float:
        """Noise precision tau of the current state."""
        return float(self.noise.parameters.tau)

    @override
    def noise_scales_of(self, rows: Rows) -> Array | None:
        if not self.noise.factors:
            return None
        return np.concatenate([self.likelihood.noise_scale(block) for block in rows.blocks])

    def prior(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows in the current state."""
        return self.row_priors.of_block(block)

    @override
    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks on this process: row blocks, then the column blocks paired with them."""
        return self.circulation.blocks()

    @override
    def rows_by_factor(self) -> Iterator[Rows]:
        return self.circulation.rows_by_factor()

    @override
    def visit(self, send: bool = False) -> Iterator[FactorCell]:
        """Cells of the part of the data that this iteration visits. Collective.

        With `send`, blocks are sent to where the next part of the data needs them. Cells whose
        blocks must be sent come first, so that their blocks travel during the work on other cells.
        """
        for cell in self.circulation.visit(self.stream.iteration, send):
            yield FactorCell(self, cell)

    @override
    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        likelihood = self.likelihood
        share = float(errors)
        with self.timers("gradient"):
            cells = self.circulation.tour(
                (position, out, *likelihood.fields),
                returning=(out, *likelihood.fields),
                sums=(out,),
            )
            for cell in cells:
                error = likelihood.add_gradient(cell, position, out, scale=1.0, share=share)
                self.noise.add_error(cell.row.index, error * share)
        if likelihood.background is not None:
            likelihood.background.add_gradient(self.circulation, position, out)

    @override
    def all_data_seen(self) -> None:
        with self.timers("draw"):
            context = self.context()
            self.draw_parts(context)
            self.draw_effects(context)

    @property
    @override
    def renews_data(self) -> bool:
        """Whether `all_data_seen` changes the data in this iteration.

        Gradients must then be computed again: they treat the effects on ratings and the noise
        scales as data.
        """
        return any(part.renews_data(self._hyper_sweep) for part in self.parts)

    @property
    @override
    def renews_prior(self) -> bool:
        return any(part.renews_prior(self._hyper_sweep) for part in self.parts)

    @property
    def _hyper_sweep(self) -> int:
        """`DrawContext.hyper_sweep` at the end of this iteration."""
        return self._hyper_sweep_after((self.stream.iteration + 1) // self.sweep_length)

    def _hyper_sweep_after(self, sweeps: int) -> int:
        """`sweeps`, or 0 if hyperparameters are not drawn after so few sweeps."""
        return 0 if sweeps < self._hyper_start else sweeps

    def context(self, factor: Factor | None = None, hyper_sweep: int | None = None) -> DrawContext:
        """Context for draws of parts: before the rows of `factor`, or after all rows have moved.

        `hyper_sweep` is by default that of the sweep that ends with this iteration.
        """
        return DrawContext(
            circulation=self.circulation,
            prior=self.prior,
            position=self.states.position,
            stream=self.stream,
            tau=lambda: self.noise_precision,
            hyper_sweep=self._hyper_sweep if hyper_sweep is None else hyper_sweep,
            factor=factor,
            law=self.likelihood,
            momentum=self._momentum,
        )

    @override
    @contextmanager
    def moving(self, step: RowStep) -> Iterator[None]:
        context = self.context()
        with ExitStack() as moves:
            with self.timers("draw"):
                for part in self.parts:
                    moves.enter_context(part.moving(context, step))
            yield

    @override
    def conditionals(self, factor: Factor, position: str) -> Iterator[tuple[Rows, Conditional]]:
        """Yield the rows of a factor on this process, with their conditionals. Collective.

        Effects on ratings, and parts, that are due are drawn first. The column blocks must be at
        home.
        """
        context = self.context(factor)
        self.draw_effects(context)
        likelihood = self.likelihood
        if factor == Factor.W:
            with self.timers("draw"):
                likelihood.draw_weights(context)
        rows, statistics = self._row_sums.statistics(factor, position)
        # those of H are needed for noise scales alone: tau is drawn before the rows of W
        if likelihood.has_noise and (factor == Factor.W or self.noise.factors):
            self._keep_errors(rows, statistics, position)
        self.draw_parts(context)
        scales = [likelihood.conditional_scale(block) for block in rows.blocks]
        scale = self.noise_precision * np.concatenate(scales, dtype=np.float64)
        yield rows, Conditional(statistics, scale)

    def _keep_errors(self, rows: Rows, statistics: Float32, position: str) -> None:
        """Keep the squared errors of rows for draws of the noise, given the rows' statistics."""
        likelihood = self.likelihood
        with self.timers("gradient"):
            errors = squared_errors(rows.joined(position, np.float32), statistics)
            scales = self.noise_scales_of(rows)
            if scales is not None:
                for block, of_block in rows.by_block(errors):
                    likelihood.keep_errors(block, of_block)
                errors = scales * errors
            for number, (_, of_block) in enumerate(rows.by_block(errors)):
                self.noise.squared_error[number, 0] = np.add.reduce(of_block)

    @override
    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """All momenta of rows, by names such as ``W.biases``.

        They are those of factors, of biases, and of the rows' parameters in other parts. With
        `turned`, the columns of `field` belong to rotated axes, so that factors and biases are not
        separate.
        """
        rank = self.row_priors.rank
        momenta: dict[str, Momenta] = {}
        for rows in self.rows_by_factor():
            factor = rows.factor
            if turned:
                momenta[f"{factor.name}.rows"] = Momenta(factor, field)
            else:
                biases = slice(rank, self.dimension)
                momenta[f"{factor.name}.factors"] = Momenta(factor, field, slice(0, rank))
                momenta[f"{factor.name}.biases"] = Momenta(factor, field, biases)
            for part in self.parts:
                for name, drift in part.momenta_of(factor).items():
                    momenta[f"{factor.name}.{name}"] = Momenta(factor, drift)
        return momenta

    @override
    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        in_order = stacked(partials[block] for pair in self.circulation.pairs() for block in pair)
        return self.ring.sum(in_order, finish, result)

    @override
    def information(
        self, position: str, bound: bool, earlier: Mapping[Factor, Float64]
    ) -> Information:
        return self._row_sums.information(position, bound, earlier, self.noise_precision)

    @override
    def second_moments(
        self, position: str, counts: Mapping[ParameterBlock, Array], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        return self._row_sums.second_moments(position, counts, finish, result)

    @override
    def covariate_sums(self, position: str, out: str) -> None:
        self._row_sums.covariate_sums(position, out)

    @override
    def multiply_by_moments(self, position: str, field: str) -> None:
        self._row_sums.multiply_by_moments(position, field)

    # --------------------------------------------------------------- draws of the parts' parameters

    def draw_parts(self, context: DrawContext) -> None:
        """Draw all parameters that are due, except by `draw_effects`. Collective."""
        if context.is_due():
            self.draw_shared(context)
        with self.states.first_for_all() as position:
            if position != context.position:
                context = context._replace(position=position)
            for part in self.parts:
                if not (part.has_effects or part.draws_ratings):
                    part.draw(context)

    def draw_effects(self, context: DrawContext) -> None:
        """Draw the effects on single ratings, and ratings within bounds. Collective."""
        for part in self.parts:
            if part.has_effects or part.draws_ratings:
                part.draw(context)

    def draw_shared(self, context: DrawContext) -> None:
        """Draw the shared parameters of every state. Collective."""
        rng = context.stream.generator(Purpose.HYPERPARAMETERS)
        for position in self.states.each():
            self._draw_shared_of_state(position, context, rng)

    def _draw_shared_of_state(
        self, position: str, context: DrawContext, rng: np.random.Generator
    ) -> None:
        """Draw the shared parameters, from sums that are added in one message. Collective."""
        terms: dict[Factor, PrecisionTerms] = {}
        for part in self.parts:
            terms |= part.precision_terms()
        context = context._replace(
            position=position,
            terms=terms,
            precision_limit=precision_limit(self.circulation, self.likelihood.factors),
        )
        partials: dict[str, Float64] = {}
        drawn_parts = []
        for part in self.parts:
            sums = part.sums(context)
            if sums:
                partials |= sums
                drawn_parts.append(part)
        if not drawn_parts:
            return

        replicated = [parameters for part in drawn_parts for parameters in part.replicated]

        def draw(sums: dict[str, Float64]) -> dict[str, Float64]:
            """Draw the parameters; runs at the root."""
            for part in drawn_parts:
                part.draw_shared(sums, context, rng)
            return arrays_of(replicated)

        shapes = shapes_of(arrays_of(replicated))
        take_all(replicated, self.ring.sum(partials, draw, shapes))

    # ------------------------------------------------------------------ as chains see it

    @cached_property
    def units(self) -> dict[str, Array | float]:
        """For each row quantity in draws, the multiplier that converts it to the data's unit."""
        columns = self.row_priors.unit
        rating = self.row_priors.scale
        units: dict[str, Array | float] = {}
        for quantity in self.quantities.drawn_of_rows:
            if quantity.columns:
                unit = quantity.in_rating_unit(np.ones(len(columns)), columns, rating)
                units[quantity.name] = unit.astype(np.float32)
            else:
                units[quantity.name] = float(rating**quantity.rating)
        return units

    @property
    def replicated(self) -> list[Sampled]:
        """Small parameters of the current state, the same on all processes."""
        return self.states.replicated

    def reset(self) -> None:
        """Set all parameters, except the sampler's fields, to their initial values."""
        for part in self.parts:
            part.start(self.blocks())
        self.states.start()
        for block in self.blocks():
            if SHIFT.name in block.arrays:
                block[SHIFT.name].fill(0.0)

    def home(self, names: Sequence[str]) -> Iterator[ParameterBlock]:
        """Yield blocks with these fields, each on its home, which keeps its averages. Collective.

        A column block may rest on another process at the time. Its home is the process of the row
        block with the same number.
        """
        return self.circulation.home(names)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """The part of the state on this process that a checkpoint saves."""
        for block in self.blocks():
            for name in self.layout.names:
                yield Key("state", block.factor.name, block.index, name), block[name]
        for part in self.parts:
            yield from part.saved(self.ring.blocks)

    def small(self) -> dict[str, Float64]:
        """The part of the state that is the same on all processes."""
        return self.states.arrays()

    def load(self, snapshot: Snapshot, skip: Collection[str] | None = None) -> None:
        """Load the state of a checkpoint, except fields in `skip`.

        If `skip` is None, blocks are first placed where the next iteration needs them.
        """
        if skip is None:
            self.circulation.allocate_columns(snapshot.manifest.iteration)
            skip = ()
        wanted = (saved for saved in self.saved() if saved[0].field not in skip)
        # a shard is opened once for a block
        for _, arrays_of_block in groupby(wanted, lambda saved: saved[0][:3]):
            keys, arrays = zip(*arrays_of_block, strict=True)
            for array, stored in zip(arrays, snapshot.read_all(keys), strict=True):
                array[:] = stored
        self.states.take(_small_arrays(snapshot))
        for part in self.parts:
            part.loaded()

    def take_start(self, start: Snapshot) -> None:
        """Set the known rows and parameters to the values in a warm start with the same blocks.

        A warm start (`dsgmcmc.runs.warm_start`) has the state of an earlier chain on other ratings,
        for the rows and parameters that both chains have: the factors, the rows' noise and prior
        parameters, and the shared parameters. New rows, momenta and shifts of the rows' prior means
        keep their usual initial values; the chain draws the shifts given the factors and the new
        ratings.

        Raises
        ------
        InputError
            If `start` is damaged, or its shapes do not fit the target.
        """
        with refusing(
            f"{start.path} does not have the shapes of the model", ValueError, IndexError
        ):
            for block in self.blocks():
                self._take_known_rows(block, start)
            self._take_parameters(_small_arrays(start))
            for block in self.blocks():
                self.likelihood.refresh_derived_fields(block)

    def _take_known_rows(self, block: ParameterBlock, start: Snapshot) -> None:
        """Set the known rows of a block to their values in a warm start."""

        def stored(name: str) -> Array:
            return start.read(Key("start", block.factor.name, block.index, name))

        known = stored(KNOWN).astype(bool)
        for position in self.states.positions:
            block[position][known] = stored(THETA.name)[known]
        for quantity in self.quantities.of_rows:
            if quantity.started:
                block[quantity.name][known] = stored(quantity.name)[known]

    def _take_parameters(self, arrays: Mapping[str, Float64]) -> None:
        """Set the shared parameters of all states to arrays of one state."""
        new = {}
        for name, own in self.states.arrays().items():
            if name in arrays:
                new[name] = np.broadcast_to(arrays[name], own.shape).copy()
        self.states.take(new)

    def fit_biases(self) -> None:
        """Set biases to their conditional means, first in W, then in H. Collective.

        Biases account for most of the variance of ratings. If gradient steps had to bring the
        biases there, they would drag the factors along. Biases are set only if ratings are
        Gaussian, so that the conditional mean is known in closed form, and if an iteration uses all
        ratings.
        """
        if not (self.likelihood.is_conditionally_gaussian() and self.row_priors.biases):
            return
        if self.scratch is None or self.sweep_length > 1:
            return
        counts, _ = self.likelihood.counts(self.circulation)
        for factor in Factor:
            self.full_gradient(self.states.position, self.scratch, errors=False)
            for block in self.blocks():
                if block.factor == factor:
                    self._fit_biases_of(block, counts[block], block[self.scratch])

    def _fit_biases_of(self, block: ParameterBlock, counts: Array, gradient: Array) -> None:
        """Set the biases of a block to their conditional means, given the full gradient there."""
        tau = self.noise_precision
        prior = block.prior(block)
        precision = np.atleast_1d(prior.precision[-1])[-1]
        bias = block[self.states.position][:, -1]
        deviation = bias - prior.mean[-1]
        if prior.shift is not None:
            deviation = deviation - prior.shift[:, -1]
        bias -= (tau * gradient[:, -1] + precision * deviation) / (tau * counts + precision)

    def rows_at_home(self) -> dict[tuple[Factor, int], int]:
        """Number of rows of every block that `home` yields."""
        numbers = {}
        for index in self.ring.blocks:
            for factor in Factor:
                start, stop = self.ratings.bounds(factor, index)
                numbers[factor, index] = stop - start
        return numbers

    def parameters(self) -> dict[str, Float64]:
        """Shared parameters of the current state, in the unit of the data."""
        columns = self.row_priors.unit
        rating = self.row_priors.scale
        parameters = {}
        for sampled in self.replicated:
            for quantity, value in sampled.drawn():
                parameters[quantity.name] = quantity.in_rating_unit(value, columns, rating)
        return parameters

    def find_divergence(self, position: str) -> str:
        """Describe where the state is not finite or far too large; an empty string if nowhere.

        Collective.
        """
        extreme = max(1.0, self.ratings.extreme**2)
        evidence = divergent_rows(
            self.rows_by_factor(),
            position,
            largest=MAX_MEAN_SQUARE * self.row_priors.expected_square * extreme,
            drawn=[quantity.name for quantity in self.quantities.of_rows if quantity.drawn],
        )
        for found in self.ring.comm.allgather(next(evidence, "")):
            if found:
                return str(found)
        return next(divergent_parameters(self.replicated), "")

    def recorders(self) -> Sequence[HeldOut]:
        """Recorders of the predictions of the test ratings.

        Every run also has a recorder of moments and draws.
        """
        return [
            HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision, self.effects)
        ]


def _small_arrays(snapshot: Snapshot) -> dict[str, Float64]:
    """The arrays in the manifest of a snapshot, by name."""
    return {name: value.array() for name, value in snapshot.manifest.state.items()}


class FactorCell(NamedTuple):
    """A cell of ratings as a sampler sees it; a `dsgmcmc.targets.base.Cell`."""

    target: FactorTarget
    cell: RatingsCell

    @property
    def blocks(self) -> tuple[ParameterBlock, ...]:
        """The blocks of parameters on which the data of the cell depend."""
        return self.cell.row, self.cell.column

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """Set `out` of all blocks to the stochastic gradient of the energy U at field `position`.

        The likelihood term is computed from one part of the data, and divided by the probability
        p_t of visiting this part [Simsekli 2016, eq. 3].
        """
        target = self.target
        probability = target.circulation.part_probability
        for block in self.blocks:
            block.begin_gradient(position, out, prior)
        share = 0.0
        if errors:
            # the squared errors of a sweep then add up to an estimate of the sum over all ratings
            share = 1.0 / (probability * target.grid)
        scale = target.noise_precision / probability
        begin = target.timers.enter()
        error = target.likelihood.add_gradient(self.cell, position, out, scale=scale, share=share)
        target.noise.add_error(self.cell.row.index, error * share)
        target.timers.leave("gradient", begin)
