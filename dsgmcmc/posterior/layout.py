"""Checks by the manifests that posteriors, checkpoints and draws of a run are complete, before arrays are read.

Sizes follow from ``run.toml`` and the index. After the checks, every block that a reader needs exists with the expected
shape. The values of a block are checked by its hash when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import THETA, Quantities, Quantity
from dsgmcmc.posterior.names import Index
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.types import Factor, Float64


@dataclass(frozen=True)
class Expected:
    """Sizes and quantities that a run is expected to have.

    Attributes
    ----------
    rows : dict of str to int
        Rows of each factor.
    grid : int
        Blocks of a factor.
    test : int
        Test ratings.
    levels : int
        Number of distinct training ratings R; 0 if they are too many to be levels.
    shape : int
        Number of the likelihood's parameters that predictions need besides mean and variance.
    quantities : Quantities
        All quantities of the model.
    """

    rows: dict[str, int]
    grid: int
    test: int
    levels: int
    shape: int
    quantities: Quantities

    @classmethod
    def of(cls, config: ResolvedConfig, index: Index, levels: int) -> Expected:
        """Derive sizes and quantities from a run's configuration, index and number of levels."""
        rows, test = index.lengths()
        return cls(rows, config.grid, test, levels, len(config.law.starts), index.quantities(config, levels))


class Blocks:
    """Shapes of the arrays of a snapshot, from its manifest alone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._path = snapshot.path
        self._entries = {entry.key: entry for entry in snapshot.manifest.blocks}

    def names(self, thing: str, factor: str) -> set[str]:
        """Fields of an object and factor, over all its blocks."""
        return {key.field for key in self._entries if key[:2] == (thing, factor)}

    def shape(self, key: Key, *wanted: int | None, kind: str = "f") -> tuple[int, ...]:
        """Check and return the shape of an array, and check its kind of dtype; None allows any length.

        Raises InputError if the array is missing, or has another shape or kind.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self._path} is incomplete: it has no {key.path}")
        self._compare(key.path, entry.shape, wanted)
        if entry.dtype[1] != kind:
            raise InputError(f"{self._path} is inconsistent: {key.path} is of type {entry.dtype}")
        return entry.shape

    def rows(
        self, thing: str, factor: str, field: str, grid: int, total: int, *width: int, draws: tuple[int, ...] = ()
    ) -> None:
        """Check an array with `total` rows in `grid` blocks, for one state or several draws; raises as `shape`."""
        keys = [Key(thing, factor, b, field) for b in range(grid)]
        rows = sum(self.shape(key, *draws, None, *width)[len(draws)] for key in keys)
        self._compare(f"{thing}/{factor}/*/{field}", (*draws, rows, *width), (*draws, total, *width))

    def _compare(self, name: str, shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> None:
        if len(shape) != len(wanted) or any(w not in (None, n) for n, w in zip(shape, wanted, strict=True)):
            shown = ", ".join("n" if n is None else str(n) for n in wanted)
            raise InputError(
                f"{self._path} is inconsistent: {name} is of shape {shape}; by run.toml and the index it is ({shown})"
            )


def check_posteriors(snapshots: list[Snapshot], expected: Expected) -> None:
    """Check the posteriors of all chains; for a chain that has only a checkpoint, check its traces.

    Raises InputError naming an array that is missing or has the wrong shape.
    """
    for snapshot in snapshots:
        draws = _check_traces(snapshot, expected)
        if snapshot.manifest.kind == "posterior":
            _check_posterior(snapshot, expected, draws)


def _check_traces(snapshot: Snapshot, expected: Expected) -> int:
    """Check the traces of shared parameters; return the number of draws."""
    blocks, quantities = Blocks(snapshot), expected.quantities
    draws, _ = blocks.shape(Key("trace", "run", 0, "iteration"), None, 1)
    widths = {"iteration": 1, "weight": 1}
    for quantity in quantities.traced:  # the trace of a matrix has its diagonal
        widths[quantity.name] = (*quantity.shape(quantities.sizes), 1)[0]
    for name, width in widths.items():
        blocks.shape(Key("trace", "run", 0, name), draws, width)
    if unknown := blocks.names("trace", "run") - set(widths):
        raise InputError(f"{snapshot.path} is inconsistent: its model has no {', '.join(sorted(unknown))}")
    return draws


def _check_posterior(snapshot: Snapshot, expected: Expected, draws: int) -> None:
    blocks, grid, quantities = Blocks(snapshot), expected.grid, expected.quantities
    for factor, n in expected.rows.items():
        for quantity in quantities.drawn_of_rows:
            if not quantity.is_of(Factor[factor]):
                continue
            for moment in ("mean", "variance"):
                field = moment if quantity == THETA else f"{quantity.name}_{moment}"
                blocks.rows("moments", factor, field, grid, n, quantity.width(quantities.sizes))
    for field in ("rating", "mean", "variance", "noise_variance"):
        blocks.rows("test", "W", field, grid, expected.test)
    if "probability" in blocks.names("test", "W"):
        blocks.rows("test", "W", "probability", grid, expected.test, expected.levels)
    if expected.shape:
        blocks.rows("test", "W", "shape", grid, expected.test, expected.shape)
    for b in range(grid):
        (followed,) = blocks.shape(Key("trace", "W", b, "followed"), None, kind="i")
        blocks.shape(Key("trace", "W", b, "prediction"), draws, followed)
        blocks.shape(Key("trace", "W", b, "log_likelihood"), draws)


def check_draws(snapshot: Snapshot, expected: Expected) -> None:
    """Check a snapshot of saved draws; raises as `check_posteriors`."""
    blocks, quantities, draws = Blocks(snapshot), expected.quantities, len(snapshot.manifest.saved_draws)
    for quantity in quantities.drawn_of_rows:
        for factor, n in expected.rows.items():
            if quantity.is_of(Factor[factor]):
                width = quantity.width(quantities.sizes)
                blocks.rows("draw", factor, quantity.name, expected.grid, n, width, draws=(draws,))
    for quantity in quantities.shared:
        blocks.shape(_shared(quantity), draws, *quantity.shape(quantities.sizes))


def read_shared(snapshot: Snapshot, number: int, quantities: Quantities) -> dict[str, Float64]:
    """Read the shared parameters of a draw, by name. Raises InputError if they are damaged or impossible."""
    shared = snapshot.read_all(map(_shared, quantities.shared), number)
    for quantity, values in zip(quantities.shared, shared, strict=True):
        if quantity.positive and not ((np.diag(values) if values.ndim == 2 else values) > 0).all():
            raise InputError(f"{snapshot.path} is inconsistent: {quantity.name} is not positive")
    return {quantity.name: values for quantity, values in zip(quantities.shared, shared, strict=True)}


def _shared(quantity: Quantity) -> Key:
    return Key("draw", "run", 0, quantity.name)
