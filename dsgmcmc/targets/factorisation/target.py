"""The blocks of a matrix factorisation on the ring, as a sampler sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.factorisation.factors import Holdings
from dsgmcmc.targets.factorisation.likelihoods.gaussian import WEIGHT_FIELDS, Likelihood
from dsgmcmc.targets.state import Field, Layout, Side

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring  # which loads MPI

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

SQUARES = Formula("square = n * x * x", fields=("x",), rows=("n",), column_sums=("square",))
PRIOR_GRADIENT = Formula("out = prior", fields=("out", "x"), prior_of="x")


@dataclass
class Block:
    """A row side and a column side that meet, and their ratings."""

    world: FactorWorld
    row: Side
    column: Side
    sides: tuple[Side, ...]

    def gradient(self, position: str, out: str, prior: bool = True, errors: bool = True) -> None:
        """See `TargetBlock.gradient`; of one part, scaled by 1 / p_t [Simsekli 2016, eq. 3]."""
        world = self.world
        for side in (self.row, self.column):
            if prior:
                side.update(PRIOR_GRADIENT, {"out": out, "x": position})
            else:
                side[out].fill(0.0)
        world.accumulate(self, position, out, errors)


class FactorWorld:
    """The blocks of a Bayesian matrix factorisation that this process holds.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    ratings : RatingBlocks
        The ratings of this process's rows.
    schedule : Schedule
        Which part each iteration visits.
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether the last of the D = K + 1 columns of a factor is the bias.
    fields : sequence of Field
        State that travels with a block.
    scratch : sequence of str
        Arrays of the same shape that do not.
    seed, chain : int
        Key of all random numbers.
    weighted : bool
        Whether users or items have noise of their own.
    frozen : frozenset of str
        Factors that stay as they are.
    """

    def __init__(
        self,
        ring: Ring,
        ratings: RatingBlocks,
        schedule: Schedule,
        *,
        rank: int,
        biases: bool,
        fields: tuple[Field, ...],
        scratch: tuple[str, ...],
        seed: int,
        chain: int,
        weighted: bool = False,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.ring, self.ratings, self.schedule = ring, ratings, schedule
        self.phases = ring.phases
        self.seed, self.chain, self.iteration, self.subchain = seed, chain, 0, 0
        self.grid, self.dimension, self.n_data = ring.grid, rank + int(biases), ratings.n_data
        self.biases = biases
        self.likelihood, self.frozen = Likelihood(rank, biases, weighted), frozen
        self.layout = Layout((*fields, *(WEIGHT_FIELDS if weighted else ())), self.dimension)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.nan_to_num(ratings.part_peaks / schedule.probability)
        self.peak_count = float(max(scaled.max(), 1.0))
        self.state: dict[str, Float64] = {}
        #: Draws the hyperparameters; `sweep` calls it at its frozen state.
        self.redraw: Callable[[], None] | None = None
        self.squared_error = np.zeros((len(ring.blocks), 1))
        self._partials: dict[tuple[str, int], Float64] = {}
        self.held = Holdings(self, ratings, ring.blocks, self.layout, scratch, self.dimension)
        self.place(0)

    def place(self, iteration: int) -> None:
        """Allocate the column blocks that rest here before `iteration`; their contents are set by the caller."""
        self.iteration = iteration
        self._at(self.schedule.part(iteration))
        self.held.place(self.part)

    def _at(self, part: int) -> None:
        self.part = part
        self.part_probability = float(self.schedule.probability[part])

    # ------------------------------------------------------------------ what samplers use

    def visit(self, send: bool = False) -> Iterator[Block]:
        """See `World.visit`. With `send` the departing blocks come first and travel during the others."""
        going = None
        columns = self.held.columns
        if send:
            after = self.schedule.part(self.iteration + 1)
            buffers = {c: side.buffer for c, side in columns.items()}
            going = self.ring.move(buffers, self.part, after, self.held.length)
        for b in going.order if going else self.ring.blocks:
            c = column_of(b, self.part, self.grid)
            row, column = self.held.rows[b], columns[c]
            sides = tuple(side for side in (row, column) if side.factor not in self.frozen)
            yield Block(self, row, column, sides)
            if going:
                going.depart(c)
        if going:
            arrived = going.finish()
            self._at(after)
            self.held.settle(arrived, after)

    def sides(self) -> Iterator[Side]:
        """See `World.sides`."""
        yield from self.held

    def rows(self) -> Iterator[Side]:
        """Row sides of this process, in block order."""
        yield from self.held.rows.values()

    def meeting(self, row_block: int) -> Side:
        """Column side that rests with row block `row_block`."""
        return self.held.columns[column_of(row_block, self.part, self.grid)]

    def prior(self, factor: str) -> tuple[Float32, Float32]:
        """See `World.prior`; of the current sub-chain, in the factors' dtype."""
        mean, precision = self.state[f"{factor}.mean"], self.state[f"{factor}.precision"]
        m = self.subchain
        return mean[m].astype(np.float32), precision[m].astype(np.float32)

    def weigh(self, total: str, squares: str) -> None:
        """See `World.weigh`. The columns must be at home."""
        sides = list(self.sides())
        if not self.likelihood.weighted:
            for side in sides:
                side.row(total)[:] = side.row(squares)[:] = side.counts
            return
        for side in sides:
            side.arrays["sums"] = np.zeros((len(side.counts), 2), np.float32)
        for row, c, column in self._round(("weight", "sums"), ("sums",)):
            self.likelihood.weigh(self.ratings.train[row.index, c], row.arrays, column, "sums")
        for side in sides:
            sums = side.arrays.pop("sums")
            side.row(total)[:], side.row(squares)[:] = sums[:, 0], sums[:, 1]

    def curvature(self, position: str, weight: str) -> dict[str, Float64]:
        """See `World.curvature`: of the other factor, weighted by its ratings; 1 for the bias."""
        d = self.dimension
        for side in self.sides():
            n = side.row(weight)
            squares = side.update(SQUARES, {"x": position}, n=n)["square"]
            self.add(side, np.append(squares, n.sum(dtype=np.float64)))
        both = self.reduce(lambda total: total, 2 * (d + 1), by_factor=True).reshape(2, d + 1)
        mean_squares = both[:, :d] / both[:, d:]
        if self.biases:
            mean_squares[:, -1] = 1.0
        return {"W": mean_squares[1], "H": mean_squares[0]}

    def add(self, side: Side, value: Float64) -> None:
        """See `World.add`."""
        self._partials[side.factor, side.index] = value

    def reduce(self, finish: Callable[[Float64], Float64], width: int, by_factor: bool = False) -> Float64:
        """See `World.reduce`; with `by_factor` the sums over W's and over H's blocks, one after the other."""
        partials = [self._partials[side.factor, side.index] for side in self.sides()]
        half = len(partials) // 2
        pairs = np.array([np.stack(pair) for pair in zip(partials[:half], partials[half:], strict=True)])
        self._partials.clear()
        return self.ring.reduce(
            pairs.reshape(half, -1),
            lambda everything: finish(
                everything.sum(axis=0) if by_factor else everything.reshape(2 * self.grid, -1).sum(axis=0)
            ),
            width,
        )

    def accumulate(self, block: Block, position: str, out: str, errors: bool) -> None:
        """Add the stochastic gradient of a block's likelihood to `out` of both sides."""
        scale = float(self.state["tau"][self.subchain]) / self.part_probability
        # a sweep's iterations sum to an estimate for all ratings
        share = 1.0 / (self.part_probability * self.grid) if errors else 0.0
        self._add_gradient(block.row, block.column.index, block.column.arrays, position, out, scale, share)

    def forget_errors(self) -> None:
        """Begin to gather the squared errors of a new sweep."""
        self.squared_error[:] = 0.0
        if self.likelihood.weighted:
            for side in self.held:
                side["row_error"].fill(0.0)

    def _add_gradient(
        self, row: Side, c: int, column: dict[str, Float32], position: str, out: str, scale: float, share: float
    ) -> None:
        begin = self.phases.enter()
        ratings = self.ratings.train[row.index, c]
        error = self.likelihood.add_gradient(ratings, row.arrays, column, position, out, scale, share)
        self.squared_error[row.index - self.ring.blocks.start, 0] += error * share
        self.phases.leave("gradient", begin)

    # ------------------------------------------------------------------ tours of the ring

    def sweep(self, position: str, out: str) -> None:
        """See `World.sweep`. The columns must be at home."""
        for side in self.held:
            side[out].fill(0.0)
        weights = self.layout.names[-2:] if self.likelihood.weighted else ()
        for row, c, column in self._round((position, out, *weights), (out, *weights)):
            self._add_gradient(row, c, column, position, out, 1.0, 1.0)
        if self.redraw:
            self.redraw()

    def _round(
        self, names: tuple[str, ...], changing: tuple[str, ...]
    ) -> Iterator[tuple[Side, int, dict[str, Float32]]]:
        """Show every row block all column blocks, whose `changing` arrays come home changed. Collective.

        The columns must be at home. Every process meets them in the same order, so that sums have the same bits.
        """
        columns = self.held.columns
        if self.ring.size == 1:
            for step in range(self.grid):
                for b in self.ring.blocks:
                    c = column_of(b, step, self.grid)
                    yield self.held.rows[b], c, columns[c].arrays
            return
        layout = self._travelling(names)
        copies = self._copies(layout)
        for b, c, buffer in self.ring.tour(copies, partial(self.held.length, width=layout.width), come_home=True):
            yield self.held.rows[b], c, layout.views(buffer, len(buffer) // layout.width)
        for c, buffer in copies.items():
            home = layout.views(buffer, len(columns[c].counts))
            for name in changing:
                columns[c][name][:] = home[name]

    def tour(self, names: tuple[str, ...], steps: int = 0) -> Iterator[tuple[Side, int, dict[str, Float32]]]:
        """Show every row block all column blocks at a frozen state, or the first `steps` of them. Collective.

        Yields
        ------
        row : Side
        column_block : int
            The first that a row block sees is the one of its own number.
        arrays : dict of str to (n, width) float32
            The column block's fields `names`.
        """
        layout = self._travelling(names)
        length = partial(self.held.length, width=layout.width)
        copies = self._copies(layout)
        going = self.ring.move(copies, self.part, 0, length)
        for c in copies:
            going.depart(c)
        for b, c, buffer in self.ring.tour(going.finish(), length, steps=steps):
            yield self.held.rows[b], c, layout.views(buffer, len(buffer) // layout.width)

    def _travelling(self, names: tuple[str, ...]) -> Layout:
        arrays = next(iter(self.held.columns.values())).arrays
        return Layout([Field(name, arrays[name].shape[1]) for name in names], self.dimension)

    def _copies(self, layout: Layout) -> dict[int, Float32]:
        """Copies of some arrays of the column blocks that rest here, to travel in their place."""
        return {
            c: np.concatenate([side[name].ravel() for name in layout.names]) for c, side in self.held.columns.items()
        }
