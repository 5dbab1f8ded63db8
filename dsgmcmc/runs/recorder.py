"""Records a chain: moments of its parameters, saved draws, and traces of the small parameters.

A checkpoint contains the moments, the traces and the iterations of the saved draws; the saved draws
are in separate snapshots. The weight of a draw is its step size [Simsekli 2016, eq. 12]. Every
`spacing`-th draw is saved. When 2 `keep` draws would be saved, every other saved draw is dropped,
and `spacing` doubles. The choice depends only on the number of draws. A chain of at least `keep`
draws has from `keep` to 2 `keep` - 1 saved draws, evenly spread over the whole chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dsgmcmc.kernels.formulas.formula import Batch
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.storage.store import SAVED_DRAWS, Key, Lazy, Snapshot
from dsgmcmc.targets.base import COUNT_DRAW, DrawInfo
from dsgmcmc.types import Array, Factor, Float64

THETA = "theta"
MOMENTS = ("mean", "m2")  # m2 is the weighted sum of squared deviations


class DrawNumbers:
    """Chooses the draws that are saved, by the rule at the head of this module.

    Attributes
    ----------
    keep : int
        Smallest number of saved draws of a chain with at least as many draws; 0 to save none.
    count : int
        Number of draws of the chain.
    spacing : int
        Distance between successive saved draws, in draws.
    kept : list of int
        Iterations of the saved draws.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.count = 0
        self.spacing = 1
        self.kept: list[int] = []

    def offer(self, iteration: int) -> bool:
        """Count the draw of an iteration, and return whether to save it.

        `kept` and `spacing` are updated.
        """
        number = self.count
        self.count += 1
        if self.keep == 0 or number % self.spacing:
            return False
        if len(self.kept) == 2 * self.keep - 1:
            self.kept = self.kept[::2]
            self.spacing *= 2
            return False  # the number is an odd multiple of the previous spacing
        self.kept.append(iteration)
        return True


class DrawRecorder:
    """Moments, saved draws and traces of one chain on this process.

    It is a `dsgmcmc.targets.base.Recorder` without metrics.

    Parameters
    ----------
    target : FactorTarget
        Target of the chain.
    at_root : bool
        Whether this is process 0, which saves the traces and the shared parameters.
    save_draws : int
        `keep` at the head of this module.
    """

    def __init__(self, target: FactorTarget, at_root: bool, save_draws: int) -> None:
        self.target = target
        self._at_root = at_root
        self.numbers = DrawNumbers(save_draws)
        #: Arrays of the saved draws that are not on disk, by iteration.
        self.pending: dict[int, dict[Key, Array]] = {}
        #: Total weight of all draws.
        self.weight = 0.0
        #: Iteration, weight and small parameters of every draw; used only on process 0.
        self.trace: dict[str, list[Float64]] = {}
        #: Mean and ``m2`` of every quantity of rows, and its latest draw ``x``, by factor and
        #: block.
        self._moments = {
            (factor, block): self._zero_moments(factor, rows)
            for (factor, block), rows in target.rows_at_home().items()
        }
        of_blocks = self._moments.values()
        self._batches = [
            Batch([block[quantity.name] for block in of_blocks if quantity.name in block])
            for quantity in target.quantities.drawn_of_rows
        ]
        self._traced = {quantity.name for quantity in target.quantities.traced}

    def _zero_moments(self, factor: Factor, rows: int) -> dict[str, dict[str, Array]]:
        """Return moments that are zero, by name of the quantity, for a block with `rows` rows."""
        quantities = self.target.quantities
        return {
            quantity.name: {
                name: np.zeros((rows, quantity.width(quantities.sizes)), np.float32)
                for name in MOMENTS
            }
            for quantity in quantities.drawn_of_rows
            if quantity.is_of(factor)
        }

    def next(self, iteration: int, weight: float) -> DrawInfo:
        """Add the weight of the draw after `iteration` iterations; return its `DrawInfo`."""
        self.weight += weight
        return DrawInfo(iteration, weight, weight / self.weight)

    def record(self, position: str, draw: DrawInfo | None) -> None:
        """Record the state in field `position` as a draw; nothing is done if `draw` is None.

        Collective.
        """
        if draw is None:
            return
        spacing = self.numbers.spacing
        is_saved = self.numbers.offer(draw.iteration)
        parameters = self.target.parameters()
        self._note(draw, parameters)
        blocks = self._read_blocks(position, is_saved)
        values = draw._asdict()
        for batch in self._batches:
            COUNT_DRAW.apply(batch, values)
        if is_saved:
            if self._at_root:
                for name, value in parameters.items():
                    blocks[Key("draw", "run", 0, name)] = np.array(value)
            self.pending[draw.iteration] = blocks
        if self.numbers.spacing > spacing:  # every other saved draw was dropped
            kept = set(self.numbers.kept)
            self.pending = {
                drawn: arrays for drawn, arrays in self.pending.items() if drawn in kept
            }

    def _read_blocks(self, position: str, copied: bool) -> dict[Key, Array]:
        """Hand the rows' state to the moments; return copies in the unit of the data if `copied`.

        Collective.
        """
        fields = {
            position if quantity.name == THETA else quantity.name: quantity
            for quantity in self.target.quantities.drawn_of_rows
        }
        copies: dict[Key, Array] = {}
        for block in self.target.home(tuple(fields)):
            for field, quantity in fields.items():
                if not quantity.is_of(block.factor):
                    continue
                values = block[field]
                self._moments[block.factor, block.index][quantity.name]["x"] = values
                if copied:
                    key = Key("draw", block.factor.name, block.index, quantity.name)
                    copies[key] = values * self.target.units[quantity.name]
        return copies

    def _note(self, draw: DrawInfo, parameters: dict[str, Float64]) -> None:
        """Append the traced parameters of a draw to the trace.

        A precision matrix is reduced to its diagonal.
        """
        self._append("iteration", float(draw.iteration))
        self._append("weight", draw.weight)
        for name, parameter in parameters.items():
            if name in self._traced:
                self._append(name, parameter)

    def _append(self, name: str, parameter: float | Float64) -> None:
        value = np.array(parameter, ndmin=1)
        if value.ndim == 2:
            value = np.diag(value).copy()
        self.trace.setdefault(name, []).append(value)

    # ------------------------------------------------------------------ saving

    @property
    def draw_bytes(self) -> int:
        """Bytes of the rows of one saved draw on this process."""
        return sum(
            moments["mean"].nbytes
            for fields in self._moments.values()
            for moments in fields.values()
        )

    def take_pending(self) -> tuple[list[int], dict[Key, Lazy]]:
        """Clear `pending`; return the iterations and the arrays of all draws that it had.

        The arrays are (draws, ...).
        """
        draws = self.pending
        self.pending = {}
        keys = next(iter(draws.values()), {})
        stacked: dict[Key, Lazy] = {
            key: partial(np.stack, [arrays[key] for arrays in draws.values()]) for key in keys
        }
        return list(draws), stacked

    def small(self) -> dict[str, Float64]:
        """Return the weight, the counters and the iterations of the saved draws.

        They are equal on all processes.
        """
        numbers = [self.weight, self.numbers.count, self.numbers.spacing]
        return {
            "observer.numbers": np.array(numbers, np.float64),
            SAVED_DRAWS: np.array(self.numbers.kept, np.float64),
        }

    def _named(self, spread: str) -> Iterator[tuple[str, Key, Key, dict[str, Array]]]:
        """Yield the moments on this process, each with names.

        Parameters
        ----------
        spread : str
            ``m2``, the weighted sum of squared deviations, or ``variance``.

        Yields
        ------
        label : str
            Name of the quantity.
        mean, spread : Key
            Names in a snapshot.
        moments : dict
            Mean and ``m2``.
        """
        for (factor, index), fields in self._moments.items():
            for label, moments in fields.items():
                prefix = "" if label == THETA else f"{label}_"
                mean = Key("moments", factor.name, index, f"{prefix}mean")
                yield label, mean, mean._replace(field=f"{prefix}{spread}"), moments

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Yield the accumulators of this process, for a checkpoint."""
        for _, mean, m2, moments in self._named("m2"):
            yield mean, moments["mean"]
            yield m2, moments["m2"]
        yield from self._traces()

    def _traces(self) -> Iterator[tuple[Key, Array]]:
        if self._at_root:
            for name, draws in self.trace.items():
                yield Key("trace", "run", 0, name), np.array(draws)

    def load(self, snapshot: Snapshot) -> None:
        """Load the accumulators of a checkpoint."""
        state = snapshot.manifest.state
        self.weight, count, spacing = state["observer.numbers"].array().tolist()
        if self.weight < 0 or count < 0 or spacing < 1:
            raise ValueError(
                f"draws have (weight, number, spacing) {self.weight:g}, {count:g}, {spacing:g}"
            )
        self.numbers.count = int(count)
        self.numbers.spacing = int(spacing)
        self.numbers.kept = snapshot.manifest.saved_draws
        for _, mean, m2, moments in self._named("m2"):
            moments["mean"], moments["m2"] = snapshot.read_all((mean, m2))
        if self._at_root:
            traced = [key for key in snapshot.block_keys() if key[:2] == ("trace", "run")]
            values = snapshot.read_all(traced)
            self.trace = {key.field: list(x) for key, x in zip(traced, values, strict=True)}

    def posterior(self, weight: float) -> Iterator[tuple[Key, Lazy]]:
        """Yield the means and variances of the parameters, in the unit of the data, and the traces.

        `weight` is the total weight of all draws.
        """
        for label, mean, variance, moments in self._named("variance"):
            unit = self.target.units[label]
            yield mean, partial(np.multiply, moments["mean"], unit)
            yield variance, partial(_variance, moments["m2"], weight, unit)
        yield from self._traces()


def _variance(m2: Array, weight: float, unit: Array | float) -> Array:
    variance: Array = m2 / weight
    variance *= unit * unit
    return variance
