"""A Bayesian matrix factorisation distributed over the ring of processes, as samplers and chains
see it.

*Sufficient statistics* of a row are sums over its ratings, given the other factor; they are exact.
The statistics of the rows of W stay in place, and a tour of the ring brings them the state of every
column block. For the rows of H (the columns of the rating matrix), a tour sends only the
statistics, (D + 1)(D + 2) / 2 float32 per row of H. If the likelihood has a term for every pair,
rated or not, these terms add the same statistics to every row.

*Fisher information* is approximate: it is computed from averages over all rows of the other factor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import refusing
from dsgmcmc.kernels.formula import Formula, RowPrior, diagonal
from dsgmcmc.kernels.gradient import product_kernel
from dsgmcmc.kernels.normal_rows import add_outer_products, squared_errors, statistics_width
from dsgmcmc.kernels.products import inner
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import OTHER, Circulation, RatingsCell
from dsgmcmc.model.heldout import HeldOut
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.parts import PARTS, Noise, Part, RowPriors
from dsgmcmc.model.parts.base import DrawContext, Place
from dsgmcmc.model.quantity import SHIFT, THETA, Quantities, Sampled, Sizes, sizes_of
from dsgmcmc.parallel.ring import Ring, shapes_of, stacked
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.storage.store import Key, Snapshot
from dsgmcmc.targets.base import REACH, Information, Momenta, RowStep, curvature_bound
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

#: Largest finite parameter, in float32.
MAX_FINITE = float(np.finfo(np.float32).max)

#: Name of the array in a warm start that marks the known rows of a block.
KNOWN = "known"

SUMS = "statistics"
SENT, PRODUCT = "information.sent", "information.product"

SQUARES = Formula(
    """
squared = theta * theta
square = n * squared
size = unit * squared
""",
    columns=("unit",),
    rows=("n",),
    column_sums=("square",),
    row_sums=("size",),
)

#: The parts of a chain's model, in the order in which they are drawn.
Parts = tuple[Law, Noise, RowPriors, *tuple[Part, ...]]


def read_parts(config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> list[Any]:
    """Read the parts' data from the ratings file, once for all chains of a run. Collective."""
    return [part.read(config, ratings, blocks, ring) for part in (config.law, *PARTS.values())]


def make_parts(place: Place, data: list[Any]) -> Parts:
    """Make the parts of a chain's model from the result of `read_parts`. Collective."""
    parts = [
        part.of(place, read)
        for part, read in zip((place.config.law, *PARTS.values()), data, strict=True)
    ]
    likelihood, noise, rows, *others = (part for part in parts if part)
    return likelihood, noise, rows, *others


class FactorTarget:
    """A Bayesian matrix factorisation, of which this process holds some blocks; a
    `dsgmcmc.targets.base.Target`.

    Docstrings of the protocol's methods repeat its descriptions; "Here:" introduces details of this
    target.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    schedule : Schedule or None
        The part of the data that each iteration visits; None if an iteration uses all data and
        column blocks stay at home.
    parts : tuple of Part
        The likelihood, the noise, the priors of the rows of both factors, and any other parts.
    kept : sequence of StateField
        The sampler's fields, which are sent with a block.
    working : tuple of str
        Names of the sampler's temporary arrays of the shape of theta, which are not sent.
    positions : tuple of str
        For each interleaved sub-chain, the field that holds its state.
    stream : RandomStream
        Seed and chain.
    sizes : Sizes, optional
        Lengths of the axes of the parts' quantities; by default of the axes that every model has.
    first : int
        Sweeps before the first draw of the parameters of priors and noise.
    """

    def __init__(
        self,
        ring: Ring,
        ratings: RatingBlocks,
        schedule: Schedule | None,
        parts: Parts,
        kept: Sequence[StateField],
        working: tuple[str, ...],
        positions: tuple[str, ...],
        stream: RandomStream,
        *,
        sizes: Sizes | None = None,
        first: int = 1,
    ) -> None:
        self.parts = parts
        self.likelihood, self.noise, self.row_priors, *others = parts
        self.likelihood.noise_parameters = self.noise.parameters
        self.effects = next((part for part in others if part.has_effects), None)
        self.dimension, self._first = self.row_priors.dimension, first
        quantities = dict.fromkeys(quantity for part in parts for quantity in part.quantities)
        self.quantities = Quantities(
            tuple(quantities), sizes or sizes_of(self.dimension, self.likelihood.n_levels)
        )
        self.ring, self.stream = ring, stream
        self.ratings = ratings = self.effects.ratings if self.effects else ratings
        self.metric_uses_current_hyperparameters = schedule is None
        self.timers, self.grid = ring.phases, ring.grid
        self.n_data, self.positions = ratings.n_data, positions
        self.subchain, self.scratch = 0, working[0] if working else None
        self.sweep_length = self.grid if schedule else 1
        self.curvature_bound = ratings.curvature_bound(schedule.probability if schedule else None)
        self.curvature_bound += self.likelihood.curvature_of_all(ratings.shape)
        row_fields = [
            StateField(q.name, q.width(self.quantities.sizes)) for q in self.quantities.of_rows
        ]
        self.layout = layout = BlockLayout((*kept, *row_fields), self.dimension)
        starts = {factor: self.row_priors.origin(factor).astype(np.float32) for factor in Factor}
        origins = {factor: start if start.any() else None for factor, start in starts.items()}

        def make(factor: Factor, **place: Any) -> ParameterBlock:
            given: Any = {"dimension": self.dimension, "origin": origins[factor], **place}
            return ParameterBlock(stream, ring.phases, self.prior, factor, **given)

        self.circulation = Circulation(
            ring, ratings, schedule, make, layout, working, self.dimension
        )

    # ------------------------------------------------------------------ as samplers see it

    def begin(self, iteration: int) -> None:
        """Begin an iteration."""
        self.stream.iteration = iteration
        sweeps, into_sweep = divmod(iteration, self.sweep_length)
        for part in self.parts:
            part.begin(self.blocks(), not into_sweep)
        if not into_sweep:
            context = self.context(turn=self._turn_after(sweeps))
            for part in self.parts:
                part.move(context)

    @property
    def noise_precision(self) -> float:
        """Noise precision tau of the current sub-chain."""
        return float(self.noise.parameters.tau[self.subchain])

    def noise_scales_of(self, rows: Rows) -> Array | None:
        """Current noise scales of rows, (n,); None if rows have no noise scales."""
        return (
            np.concatenate([*map(self.likelihood.noise_scale, rows.blocks)])
            if self.noise.factors
            else None
        )

    def prior(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows in the current sub-chain."""
        return self.row_priors.of_block(block, self.subchain)

    def blocks(self) -> Iterator[ParameterBlock]:
        """All blocks of parameters that this process holds at present.

        Here: the row blocks in order, then the column blocks paired with them.
        """
        return self.circulation.blocks()

    def rows_by_factor(self) -> Iterator[Rows]:
        """The rows that this process holds at present, in one group per factor."""
        return self.circulation.rows_by_factor()

    def visit(self, send: bool = False) -> Iterator[FactorCell]:
        """Cells of the part of the data that this iteration visits. Collective.

        With `send`, blocks are sent to where the next part of the data needs them. Cells whose
        blocks must be sent come first, so that their blocks travel during the work on other cells.
        """
        for cell in self.circulation.visit(self.stream.iteration, send):
            yield FactorCell(self, cell)

    def full_gradient(self, position: str, out: str, errors: bool = True) -> None:
        """Gradient of minus the log likelihood of all data, with all blocks at a fixed state.

        Collective.

        With `errors`, the squared errors at this state are kept for the next draw of the noise
        precision.
        """
        kept, share = self.likelihood.fields, float(errors)
        with self.timers("gradient"):
            for cell in self.circulation.tour(
                (position, out, *kept), returning=(out, *kept), sums=(out,)
            ):
                error = self.likelihood.add_gradient(cell, position, out, 1.0, share)
                self.noise.add_error(cell.row.index, error * share)
        self.likelihood.add_gradient_of_all(self.circulation, position, out)

    def all_data_seen(self) -> None:
        """Draw the hyperparameters and other parameters that the sampler does not update, if due.

        Collective.

        Called once a sweep.
        """
        with self.timers("draw"):
            context = self.context()
            self.draw_parts(context)
            self.draw_effects(context)

    @property
    def renews_data(self) -> bool:
        """Whether `all_data_seen` changes the data in this iteration, so that gradients must be
        computed again.

        Here: gradients treat the effects on ratings and the noise scales as data.
        """
        return any(part.renews_data(self._turn) for part in self.parts)

    @property
    def renews_prior(self) -> bool:
        """Whether `all_data_seen` draws the prior means of individual rows, given these rows, in
        this iteration.
        """
        return any(part.renews_prior(self._turn) for part in self.parts)

    @property
    def _turn(self) -> int:
        """Number of sweeps completed at the end of this iteration; 0 if hyperparameters are not
        drawn after so few.
        """
        return self._turn_after((self.stream.iteration + 1) // self.sweep_length)

    def _turn_after(self, sweeps: int) -> int:
        """`sweeps`, or 0 if hyperparameters are not drawn after so few sweeps."""
        return 0 if sweeps < self._first else sweeps

    def context(self, factor: Factor | None = None, turn: int | None = None) -> DrawContext:
        """Context for draws of parts: before the rows of `factor` are drawn or, if None, after all
        rows have moved.

        `turn` is by default the turn of the sweep that ends with this iteration.
        """
        common = (
            self.circulation,
            self.prior,
            self.positions,
            self.stream,
            lambda: self.noise_precision,
        )
        return DrawContext(*common, self._turn if turn is None else turn, factor, self.likelihood)

    @contextmanager
    def moving(self, step: RowStep) -> Iterator[None]:
        """Move other parameters by the gradient of the rows, which make `step` in the ``with``
        block. Collective.
        """
        context = self.context()
        with ExitStack() as moves:
            with self.timers("draw"):
                for part in self.parts:
                    moves.enter_context(part.moving(context, step))
            yield

    def conditionals(
        self, factor: Factor, position: str
    ) -> Iterator[tuple[ParameterBlock, Conditional]]:
        """Blocks of a factor, with the conditional distributions of their rows given everything
        else. Collective.

        Effects on ratings, and parts, that are due are drawn first. The column blocks must be at
        home.
        """
        context = self.context(factor)
        self.draw_effects(context)
        likelihood, statistics = self.likelihood, self.row_statistics(factor, position)
        with self.timers("gradient"):
            for number, (block, sums) in enumerate(statistics.items()):
                errors = squared_errors(block[position], sums)
                likelihood.keep_errors(block, errors)
                self.noise.squared_error[number, 0] = (likelihood.noise_scale(block) * errors).sum()
        self.draw_parts(context)
        for block, sums in statistics.items():
            scale = self.noise_precision * likelihood.noise_scale(block).astype(np.float64)
            yield block, Conditional(sums, scale)

    def momenta(self, field: str, turned: bool) -> dict[str, Momenta]:
        """All momenta of rows, by names such as ``W.biases``.

        Here: momenta of factors, of biases, and of the rows' parameters in the likelihood. With
        `turned`, the columns of `field` belong to rotated axes, so that factors and biases are not
        separate.
        """
        rank, whole = self.row_priors.rank, slice(None)
        columns = {"factors": slice(0, rank), "biases": slice(rank, self.dimension)}
        of_rows = {"rows": whole} if turned else columns
        momenta: dict[str, Momenta] = {}
        for rows in self.rows_by_factor():
            places = {name: (field, chosen) for name, chosen in of_rows.items()}
            for part in self.parts:
                places |= {
                    name: (drift, whole) for name, drift in part.momenta_of(rows.factor).items()
                }
            momenta |= {
                f"{rows.factor.name}.{name}": Momenta(rows.factor, *place)
                for name, place in places.items()
            }
        return momenta

    def sum(
        self, partials: Mapping[ParameterBlock, Named], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """Add the named partial sums of all blocks, in block order; every process gets
        `finish(totals)`. Collective.
        """
        in_order = stacked(partials[block] for pair in self.circulation.pairs() for block in pair)
        return self.ring.sum(in_order, finish, result)

    # ----------------------------------------------------------- sums over the ratings of every row

    def row_statistics(self, factor: Factor, position: str) -> dict[ParameterBlock, Float32]:
        """Sufficient statistics of all rows of a factor, in the layout of
        `dsgmcmc.kernels.normal_rows`. Collective.

        Column blocks must be at home, and the likelihood conditionally Gaussian.

        Parameters
        ----------
        factor : Factor
            The factor to which the rows belong.
        position : str
            Field that holds the other factor's state.
        """
        circulation, likelihood = self.circulation, self.likelihood
        blocks = [block for block in circulation.blocks() if block.factor == factor]
        for block in blocks:
            block.arrays[SUMS] = np.zeros(
                (len(block.counts), statistics_width(block.dimension)), np.float32
            )
        if factor == Factor.W:
            cells = circulation.tour((position, *likelihood.drawn))
        else:
            cells = circulation.tour((SUMS,), returning=(SUMS,))
        for row, column, ratings in cells:
            rows, others, seen = (
                (row, column, ratings) if factor == Factor.W else (column, row, ratings.by_column)
            )
            with self.timers("gradient"):
                root = np.sqrt(likelihood.noise_scale(others))
                add_outer_products(seen.arrays, others[position], root, likelihood.rank, rows[SUMS])
        gram_of_all = likelihood.gram_of_all(circulation, position, factor)
        if gram_of_all is not None:
            common = gram_of_all[np.tril_indices(len(gram_of_all))]
            for block in blocks:
                block.arrays[SUMS][:, : len(common)] += common
        return {block: block.arrays.pop(SUMS) for block in blocks}

    def information(
        self, position: str, bound: bool, earlier: Mapping[Factor, Float64]
    ) -> Information:
        """Fisher information of every row at the state in `position`. Collective.

        `bound` requests curvature bounds; they are also computed if a row's size in units of the
        mean squares `earlier` exceeds its field ``reach``.
        """
        circulation, likelihood = self.circulation, self.likelihood
        tau = self.noise_precision
        n, squares = likelihood.counts(circulation)
        c, sizes, grown = self._mean_squares(position, n, earlier)
        first = [rows.blocks[0] for rows in circulation.rows_by_factor()]
        common = {block.factor: self.prior(block).precision.astype(np.float64) for block in first}
        common, curvature = likelihood.common_precision(circulation, position, common, tau)
        lambda_ = {factor: diagonal(p) for factor, p in common.items()}
        information = Information(c, lambda_, tau, n, squares, None, common, sizes)
        if not (bound or grown):
            return information
        bounds: dict[ParameterBlock, Float64] = {}
        for block in circulation.blocks():
            mean, shared = (values[block.factor].astype(np.float32) for values in (c, lambda_))
            data = np.float32(tau) * n[block][:, None] * mean
            bounds[block] = curvature_bound(n[block], squares[block], data, shared) + (
                curvature[block.factor] - 1
            )
        return information._replace(bound=bounds)

    def second_moments(
        self, position: str, counts: Mapping[ParameterBlock, Array], finish: Finish, result: Shapes
    ) -> dict[str, Float64]:
        """Mean outer products, over the data, of the covariates of each factor's rows. Collective.

        Here: rows of W have the covariates (H_j, 1), rows of H the covariates (W_i, 1).
        """
        partials = {}
        for rows in self.circulation.rows_by_factor():
            name = rows.factor.name
            covariates = [
                self._covariates(block, position, np.sqrt(counts[block])) for block in rows.blocks
            ]
            partials[name] = np.array([inner(of_block, of_block) for of_block in covariates])
            partials[f"{name}.n"] = np.array(
                [[counts[block].sum(dtype=np.float64)] for block in rows.blocks]
            )

        def means(sums: dict[str, Float64]) -> Named:
            return finish(
                {
                    factor: sums[other.name] / sums[f"{other.name}.n"]
                    for factor, other in OTHER.items()
                }
            )

        return self.circulation.ring.sum(partials, means, result)

    def covariate_sums(self, position: str, out: str) -> None:
        """Set field `out` of every row i to the sum over its data of w_ij phi_j, with covariates
        phi_j. Collective.

        Here: phi_j is (H_j, 1) for the rows of W, and (W_j, 1) for the rows of H; w_ij is the
        product of the noise scales of both rows.
        """
        scale = self.likelihood.noise_scale
        for block in self.circulation.blocks():
            block.arrays[SENT] = self._covariates(block, position, scale(block))
        self.circulation.spread(SENT, out)
        for block in self.circulation.blocks():
            del block.arrays[SENT]
            block[out][:] *= scale(block)[:, None]

    def multiply_by_moments(self, position: str, field: str) -> None:
        """Multiply every row y_i of a field by the second moments of the row's covariates.

        Collective.

        Here: phi_j is (H_j, 1) for the rows of W, and (W_j, 1) for the rows of H.
        """
        scale, blocks = self.likelihood.noise_scale, list(self.circulation.blocks())
        for block in blocks:
            block.arrays[SENT] = self._covariates(block, position, np.sqrt(scale(block)))
            block.arrays[PRODUCT] = np.empty_like(block[SENT])
        kernel = product_kernel(blocks[0].dimension)
        with self.timers("gradient"):
            cells = self.circulation.tour(
                (SENT, field, PRODUCT), returning=(PRODUCT,), sums=(PRODUCT,)
            )
            for row, column, ratings in cells:
                kernel(
                    *ratings.pattern,
                    row[field],
                    column[SENT],
                    row[PRODUCT],
                    np.empty_like(column[SENT]),
                )
                kernel(
                    *ratings.pattern,
                    row[SENT],
                    column[field],
                    np.empty_like(row[SENT]),
                    column[PRODUCT],
                )
        for block in blocks:
            del block.arrays[SENT]
            np.multiply(block.arrays.pop(PRODUCT), scale(block)[:, None], out=block[field])

    def _covariates(self, block: ParameterBlock, position: str, scale: Array) -> Array:
        """Return a block's rows as covariates of the other factor, (n, D), each times its element
        of `scale`, (n,).
        """
        covariates = block[position].copy()
        if self.likelihood.biases:
            covariates[:, -1] = 1.0
        covariates *= scale[:, None]
        return covariates

    def _mean_squares(
        self, position: str, n: dict[ParameterBlock, Array], earlier: Mapping[Factor, Float64]
    ) -> tuple[dict[Factor, Float64], dict[ParameterBlock, Float64], bool]:
        """Mean squares of the covariates, sizes of rows, and whether a row has grown. Collective.

        Returns
        -------
        c : dict of Factor to (D,) float64
            Means over all ratings.
        sizes : dict of ParameterBlock to (n,) float64
            Mean, over all columns except the bias, of a row's squared elements, each divided by the
            column's mean square in `earlier`; 0 if `earlier` is empty.
        grown : bool
            Whether the size of any row is above its field ``reach``.
        """
        biases = self.likelihood.biases
        partials: dict[str, Float64] = {}
        sizes: dict[ParameterBlock, Float64] = {}
        for rows in self.circulation.rows_by_factor():
            name, counts = rows.factor.name, [n[block] for block in rows.blocks]
            unit = np.zeros(rows.dimension, rows.dtype)
            if earlier:
                unit[:] = 1 / (
                    max(len(unit) - biases, 1) * np.maximum(earlier[OTHER[rows.factor]], 1e-30)
                )
                unit[len(unit) - biases :] = 0
            sums = rows.update(SQUARES, theta=position, n=np.concatenate(counts), unit=unit)
            sizes.update(rows.by_block(sums["size"]))
            partials[name] = sums["square"]
            partials[f"{name}.n"] = np.array([[count.sum(dtype=np.float64)] for count in counts])
            if earlier:
                grown = [np.count_nonzero(sizes[block] > block.row(REACH)) for block in rows.blocks]
                partials[f"{name}.grown"] = np.array(grown, np.float64)[:, None]
        totals = self.circulation.ring.sum(partials)
        c = {}
        for factor, other in OTHER.items():
            c[factor] = totals[other.name] / totals[f"{other.name}.n"]
            if biases:
                c[factor][-1] = 1.0
        return c, sizes, any(totals[f"{factor.name}.grown"][0] for factor in OTHER if earlier)

    # --------------------------------------------------------------- draws of the parts' parameters

    def draw_parts(self, context: DrawContext) -> None:
        """Draw all parameters that are due, in all parts but the effects on ratings. Collective."""
        if context.is_turn():
            self.draw_shared(context)
        for part in self.parts:
            if part is not self.effects:
                part.draw(context)

    def draw_effects(self, context: DrawContext) -> None:
        """Draw the effects on single ratings. Collective."""
        if self.effects is not None:
            self.effects.draw(context)

    def draw_shared(self, context: DrawContext) -> None:
        """Draw the shared parameters from sums over all blocks, which are added in one message.

        Collective.
        """
        partials: dict[str, Float64] = {}
        drawn = []
        for part in self.parts:
            if sums := part.sums(context):
                partials |= sums
                drawn.append(part)
        if not drawn:
            return

        terms = {
            factor: term for part in self.parts for factor, term in part.precision_terms().items()
        }
        context = context._replace(terms=terms)
        replicated = [parameters for part in drawn for parameters in part.replicated]
        before = arrays_of(replicated)

        def draw(sums: dict[str, Float64]) -> dict[str, Float64]:
            take_all(replicated, {name: array.copy() for name, array in before.items()})
            rng = context.stream.generator(Purpose.HYPERPARAMETERS)
            for subchain in range(len(context.positions)):
                for part in drawn:
                    part.draw_shared(subchain, sums, context, rng)
            return arrays_of(replicated)

        take_all(replicated, self.ring.sum(partials, draw, shapes_of(before)))

    # ------------------------------------------------------------------ as chains see it

    @cached_property
    def units(self) -> dict[str, Array | float]:
        """For each row quantity saved with draws, the multiplier that converts it to the unit of
        the data.
        """
        columns, rating = self.row_priors.unit, self.row_priors.scale
        units: dict[str, Array | float] = {}
        for quantity in self.quantities.drawn_of_rows:
            unit: Array | float = float(rating**quantity.rating)
            if quantity.columns:
                unit = quantity.in_rating_unit(np.ones(len(columns)), columns, rating).astype(
                    np.float32
                )
            units[quantity.name] = unit
        return units

    @property
    def replicated(self) -> Iterator[Sampled]:
        """Small parameters, the same on all processes."""
        return (parameters for part in self.parts for parameters in part.replicated)

    def reset(self) -> None:
        """Set all parameters, except the sampler's fields, to their initial values."""
        for part in self.parts:
            part.start(self.blocks())
        for shift in (block[SHIFT.name] for block in self.blocks() if SHIFT.name in block.arrays):
            shift.fill(0.0)

    def home(self, names: Sequence[str]) -> Iterator[ParameterBlock]:
        """Blocks with these fields, each yielded on its home, the process that keeps its averages.

        Collective.

        A column block may rest on another process at the time.
        Here: the home of a column block is the process of the row block with the same number.
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
        return arrays_of(self.replicated)

    def load(self, snapshot: Snapshot, skip: Collection[str] | None = None) -> None:
        """Load the state of a checkpoint, except fields in `skip`.

        If `skip` is None, blocks are first placed where the next iteration needs them.
        """
        if skip is None:
            self.circulation.place(snapshot.manifest.iteration)
        wanted = (saved for saved in self.saved() if not skip or saved[0].field not in skip)
        for _, of_block in groupby(
            wanted, lambda saved: saved[0][:3]
        ):  # a shard is opened once for a block
            keys, arrays = zip(*of_block, strict=True)
            for array, stored in zip(arrays, snapshot.read_all(keys), strict=True):
                array[:] = stored
        small = {name: value.array() for name, value in snapshot.manifest.state.items()}
        take_all(self.replicated, small)
        for part in self.parts:
            part.loaded()

    def take_start(self, start: Snapshot) -> None:
        """Set the known rows and parameters to the values in a warm start with the same blocks as
        this target.

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
                place = "start", block.factor.name, block.index
                known = start.read(Key(*place, KNOWN)).astype(bool)
                names = [(position, THETA.name) for position in self.positions]
                names += [(q.name, q.name) for q in self.quantities.of_rows if q.started]
                for name, stored in names:
                    block[name][known] = start.read(Key(*place, stored))[known]
            small = {name: value.array() for name, value in start.manifest.state.items()}
            for part in self.replicated:
                arrays = part.arrays()
                # every interleaved sub-chain gets the same parameters
                part.take(
                    {
                        n: np.broadcast_to(small[n], arrays[n].shape).copy()
                        for n in small.keys() & arrays.keys()
                    }
                )
            for block in self.blocks():
                self.likelihood.refresh_derived_fields(block)

    def fit_biases(self) -> None:
        """Set biases to their conditional means, first in W, then in H. Collective.

        Biases account for most of the variance of ratings. If gradient steps had to bring the
        biases there, they would drag the factors along. Biases are set only if ratings are
        Gaussian, so that the conditional mean is known in closed form, and if an iteration uses all
        ratings.
        """
        likelihood, scratch = self.likelihood, self.scratch
        position = self.positions[0]
        normal = likelihood.is_conditionally_gaussian()
        if not (normal and self.row_priors.biases and scratch and self.sweep_length == 1):
            return
        tau, (counts, _) = self.noise_precision, likelihood.counts(self.circulation)
        for factor in Factor:
            self.full_gradient(position, scratch, errors=False)
            for block in self.blocks():
                if block.factor == factor:
                    prior, bias = block.prior(block), block[position][:, -1]
                    strength = np.atleast_1d(prior.precision[-1])[-1]
                    away = (
                        bias - prior.mean[-1] - (0.0 if prior.shift is None else prior.shift[:, -1])
                    )
                    bias -= (tau * block[scratch][:, -1] + strength * away) / (
                        tau * counts[block] + strength
                    )

    def rows_at_home(self) -> dict[tuple[Factor, int], int]:
        """Number of rows of every block that `home` yields."""
        bounds = {
            (factor, b): self.ratings.bounds(factor, b)
            for b in self.ring.blocks
            for factor in Factor
        }
        return {place: stop - start for place, (start, stop) in bounds.items()}

    def parameters(self) -> dict[str, Float64]:
        """Shared parameters of the current sub-chain, in the unit of the data."""
        unit, scale = self.row_priors.unit, self.row_priors.scale
        drawn = (pair for sampled in self.replicated for pair in sampled.drawn(self.subchain))
        return {
            quantity.name: quantity.in_rating_unit(value, unit, scale) for quantity, value in drawn
        }

    def find_divergence(self, position: str) -> str:
        """Return a description of where the state is not finite or far too large, or an empty
        string. Collective.
        """
        local = next(self._divergent_rows(position), "")
        return next(filter(None, self.ring.comm.allgather(local)), "") or next(
            self._divergent_parameters(), ""
        )

    def _divergent_rows(self, position: str) -> Iterator[str]:
        """Yield a description of every block on this process with a row that is out of bounds."""
        largest = (
            MAX_MEAN_SQUARE * self.row_priors.expected_square * max(1.0, self.ratings.extreme**2)
        )
        drawn = [quantity.name for quantity in self.quantities.of_rows if quantity.drawn]
        for block in self.blocks():
            rows = block[position]
            worst = (
                np.einsum("ij,ij->i", rows, rows).max() / block.dimension
            )  # NaN if an element is NaN
            if not worst <= largest:
                yield (
                    f"block {block.index} of {block.factor.name} has a row of mean square"
                    f" {worst:.3g}"
                )
            for name in drawn:
                size = np.abs(block[name]).max(initial=0.0) if name in block.arrays else 0.0
                if not size <= MAX_FINITE:
                    yield (
                        f"block {block.index} of {block.factor.name} has a row whose {name} is"
                        f" {size:.3g}"
                    )

    def _divergent_parameters(self) -> Iterator[str]:
        """Yield a description of every shared parameter that is out of bounds."""
        for quantity, value in (pair for sampled in self.replicated for pair in sampled.drawn()):
            elements = np.diag(value) if quantity.positive and value.ndim == 2 else np.ravel(value)
            sound = np.abs(elements) <= MAX_FINITE  # false for NaN
            if quantity.positive:
                sound &= elements > 0
            if not sound.all():
                yield f"{quantity.name} is {elements[np.argmin(sound)]:.3g}"

    def recorders(self) -> Sequence[HeldOut]:
        """Recorders specific to the target, in addition to the recorder of moments and draws that
        every run has.

        Here: predictions of the test ratings.
        """
        return [
            HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision, self.effects)
        ]


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

        Here: the likelihood term is computed from one part of the data, and divided by the
        probability p_t of visiting this part [Simsekli 2016, eq. 3].
        """
        target, probability = self.target, self.target.circulation.part_probability
        for block in (self.cell.row, self.cell.column):
            block.begin_gradient(position, out, prior)
        # this weight makes the squared errors of a sweep add up to an estimate of the sum over all
        # ratings
        share = 1.0 / (probability * target.grid) if errors else 0.0
        scale, begin = target.noise_precision / probability, target.timers.enter()
        error = target.likelihood.add_gradient(self.cell, position, out, scale, share)
        target.noise.add_error(self.cell.row.index, error * share)
        target.timers.leave("gradient", begin)
