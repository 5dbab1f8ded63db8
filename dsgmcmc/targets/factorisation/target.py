"""A Bayesian matrix factorisation on the ring: what a sampler and a chain see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.parallel.named import Named, Shapes
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.base import Information
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.factorisation.cell import RatingsCell
from dsgmcmc.targets.factorisation.circulation import Circulation
from dsgmcmc.targets.factorisation.divergence import find_divergence
from dsgmcmc.targets.factorisation.factors import LocalFactors
from dsgmcmc.targets.factorisation.heldout import HeldOut
from dsgmcmc.targets.factorisation.hyperparameters import HyperparameterModel, Hyperparameters
from dsgmcmc.targets.factorisation.likelihoods import Likelihood
from dsgmcmc.targets.information import curvature_bound
from dsgmcmc.targets.state import Layout, ParameterBlock, StateField, Stream
from dsgmcmc.types import Array, Factor, Float32, Float64

if TYPE_CHECKING:
    from dsgmcmc.parallel.ring import Ring  # which loads MPI
    from dsgmcmc.storage.snapshot import Snapshot


SQUARES = Formula("square = n * theta * theta", rows=("n",), column_sums=("square",))


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
    likelihood : Likelihood
        Law of a rating.
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
        likelihood: Likelihood,
        *,
        fields: Sequence[StateField],
        scratch: tuple[str, ...],
        positions: tuple[str, ...],
        stream: Stream,
        frozen: frozenset[Factor] = frozenset(),
    ) -> None:
        self.ring, self.ratings = ring, ratings
        self.model, self.likelihood, self.stream = model, likelihood, stream
        self.timers, self.grid = ring.phases, ring.grid
        self.dimension, self.n_data, self.positions = model.dimension, ratings.n_data, positions
        self.subchain = 0
        self.sweep_length = self.grid if schedule else 1
        self.curvature_bound = ratings.curvature_bound(schedule.probability if schedule else None)
        self.hyperparameters = model.start(len(positions))
        self.squared_error = np.zeros((len(ring.blocks), 1))
        layout = Layout((*fields, *likelihood.fields), self.dimension)
        self.layout = layout

        def make(factor: Factor, **place: Any) -> ParameterBlock:
            return ParameterBlock(
                stream, ring.phases, self._prior, factor, dimension=self.dimension, frozen=factor in frozen, **place
            )

        factors = LocalFactors(make, ratings, ring.blocks, layout, scratch, self.dimension)
        self.circulation = Circulation(ring, ratings, schedule, factors)

    # ------------------------------------------------------------------ what samplers use

    @property
    def noise_precision(self) -> float:
        """See `Target`; of the current sub-chain."""
        return float(self.hyperparameters.tau[self.subchain])

    def _prior(self, block: ParameterBlock) -> tuple[Float32, Float32]:
        """Mean (D,) and precision (D,) or (D, D) of a block's rows; of the current sub-chain, in their dtype."""
        state, m = self.hyperparameters, self.subchain
        return state.mean[block.factor][m].astype(np.float32), state.precision[block.factor][m].astype(np.float32)

    def blocks(self) -> Iterator[ParameterBlock]:
        """See `Target.blocks`: rows in block order, then the columns that meet them."""
        return self.circulation.blocks()

    def visit(self, send: bool = False) -> Iterator[FactorCell]:
        """See `Target.visit`. With `send` the departing blocks come first and travel during the others."""
        for cell in self.circulation.visit(self.stream.iteration, send):
            yield FactorCell(self, cell)

    def full_gradient(self, position: str, out: str) -> None:
        """See `Target.full_gradient`. The columns must be at home."""
        for block in self.blocks():
            block[out].fill(0.0)
        kept = [field.name for field in self.likelihood.fields]
        for cell in self.circulation.tour((position, out, *kept), returning=(out, *kept)):
            self.add_gradient(cell, position, out, 1.0, 1.0)

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> None:
        """Add the gradient of the likelihood's energy, times `scale`, to `out` of a cell's blocks.

        Parameters
        ----------
        cell : RatingsCell
            Where to take it.
        position, out : str
            Field to take it at, and what it is added to.
        scale : float
            tau / p_t.
        share : float
            What the squared errors count for; 0 if they do not.
        """
        begin = self.timers.enter()
        error = self.likelihood.add_gradient(cell, position, out, scale, share)
        self.squared_error[cell.row.index - self.ring.blocks.start, 0] += error * share
        self.timers.leave("gradient", begin)

    def all_data_seen(self) -> None:
        """See `Target.all_data_seen`: draws the hyperparameters."""
        sweeps = (self.stream.iteration + 1) // self.sweep_length
        if self.model.is_turn(sweeps):
            self.draw_hyperparameters()

    def draw_hyperparameters(self) -> None:
        """Draw them given the state as it is. Collective."""
        self.model.draw(self.hyperparameters, self.circulation, self.stream, self.positions, self.squared_error)

    def information(self, position: str) -> Information:
        """See `Target.information`. The columns must be at home."""
        n, squares = self.likelihood.counts(self.circulation)
        d = self.dimension
        partials = []
        for pair in self.circulation.pairs():
            sums = {}
            for block in pair:
                square = block.update(SQUARES, theta=position, n=n[block])["square"]
                sums[block.factor.name] = np.append(square, n[block].sum(dtype=np.float64))
            partials.append([sums])
        both = self.ring.sum(partials)
        c = {}
        for factor, other in ((Factor.W, Factor.H), (Factor.H, Factor.W)):
            c[factor] = both[other.name][:d] / both[other.name][d]
            if self.model.biases:
                c[factor][-1] = 1.0
        lambda_ = {}
        for row, column in self.circulation.pairs():
            for block in (row, column):
                _, precision = self._prior(block)
                lambda_[block.factor] = (np.diag(precision) if precision.ndim == 2 else precision).astype(np.float64)
        tau = self.noise_precision
        bound = {}
        for block in self.blocks():
            metric = {"c": c[block.factor].astype(np.float32), "lambda_": lambda_[block.factor].astype(np.float32)}
            bound[block] = curvature_bound(block, n[block], squares[block], tau=tau, **metric)
        return Information(c, lambda_, tau, n, bound)

    def sum(
        self,
        partials: Mapping[ParameterBlock, Named],
        finish: Callable[[dict[str, Float64]], Named],
        result: Shapes,
    ) -> dict[str, Float64]:
        """See `Target.sum`."""
        return self.ring.sum([[partials[block] for block in pair] for pair in self.circulation.pairs()], finish, result)

    # ------------------------------------------------------------------ what a run uses

    def begin(self, iteration: int) -> None:
        """See `RunTarget.begin`."""
        self.stream.iteration = iteration
        if iteration % self.sweep_length == 0:  # tau is drawn from the errors of one sweep, however rarely
            self.squared_error[:] = 0.0
            self.likelihood.reset_errors(self.blocks())

    def reset(self) -> None:
        """See `RunTarget.reset`."""
        self.hyperparameters = self.model.start(len(self.positions))
        self.likelihood.start(self.blocks())

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

    def small(self) -> dict[str, Float64]:
        """See `RunTarget.small`."""
        return self.hyperparameters.arrays()

    def load(self, snapshot: Snapshot) -> None:
        """See `RunTarget.load`."""
        self.circulation.place(snapshot.manifest.iteration)
        for key, array in self.saved():
            array[:] = snapshot.read(key)
        self.hyperparameters = Hyperparameters.empty()
        self.hyperparameters.take({name: value.array() for name, value in snapshot.manifest.state.items()})

    def accumulators(self) -> dict[tuple[Factor, int], dict[str, Array]]:
        """See `RunTarget.accumulators`."""
        widths = {"theta": self.dimension} | dict.fromkeys(self.likelihood.drawn, 1)
        return {
            (factor, b): {
                name: np.zeros((np.subtract(*self.ratings.bounds(factor, b)[::-1]), width), np.float32)
                for name, width in widths.items()
            }
            for b in self.ring.blocks
            for factor in Factor
        }

    def drawn_fields(self, position: str) -> dict[str, str]:
        """See `RunTarget.drawn_fields`."""
        return {position: "theta"} | {name: name for name in self.likelihood.drawn}

    def parameters(self) -> dict[str, Float64]:
        """See `RunTarget.parameters`."""
        return self.hyperparameters.of(self.subchain)

    def find_divergence(self, position: str) -> str:
        """See `RunTarget.find_divergence`."""
        return find_divergence(self.circulation, position)

    def recorders(self) -> Sequence[HeldOut]:
        """See `RunTarget.recorders`: predictions of the test ratings."""
        return [HeldOut(self.circulation, self.likelihood, lambda: self.noise_precision)]
