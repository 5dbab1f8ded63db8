"""Checks by the manifests that posteriors, checkpoints and draws of a run are complete, before arrays are read.

Sizes follow from ``run.toml`` and the index. The values of a block are checked by its hash when it is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import THETA, Quantities, Quantity
from dsgmcmc.posterior.names import Index
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.types import Factor, Float64

Shape = tuple[int, ...]
Name = tuple[str, str, str]  # object, factor and field


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
    shape : int
        Number of the likelihood's parameters that predictions need besides mean and variance.
    quantities : Quantities
        All quantities of the model.
    """

    rows: dict[str, int]
    grid: int
    test: int
    shape: int
    quantities: Quantities

    @classmethod
    def of(cls, config: ResolvedConfig, index: Index, levels: int) -> Expected:
        """Derive sizes and quantities from a run's configuration, index and number of levels."""
        rows, test = index.lengths()
        return cls(rows, config.grid, test, len(config.law.starts), index.quantities(config, levels))

    def fields(self, factor: str) -> list[tuple[Quantity, Shape]]:
        """Quantities that draws have of the rows of a factor, and the shapes of all rows."""
        known, rows = self.quantities, self.rows[factor]
        drawn = [quantity for quantity in known.drawn_of_rows if quantity.is_of(Factor[factor])]
        return [(quantity, (rows, quantity.width(known.sizes))) for quantity in drawn]


def check_posteriors(snapshots: list[Snapshot], expected: Expected) -> None:
    """Check the posteriors of all chains; for a chain that has only a checkpoint, check its traces.

    Raises InputError naming an array that is missing or has the wrong shape.
    """
    traced = expected.quantities.traced
    for snapshot in snapshots:
        shapes = _shapes(snapshot)
        draws = sum(sum(shape[:1]) for shape in shapes["trace", "run", "iteration"])
        widths = {quantity.name: (*quantity.shape(expected.quantities.sizes), 1)[0] for quantity in traced}
        widths |= {"iteration": 1, "weight": 1}  # the trace of a matrix has its diagonal
        _compare(snapshot, {("trace", "run", name): (draws, width) for name, width in widths.items()})
        if snapshot.manifest.kind == "posterior":
            followed = sum(sum(shape[:1]) for shape in shapes["trace", "W", "followed"])
            _compare(snapshot, _of_posterior(expected, draws))
            _compare(snapshot, {("trace", "W", "prediction"): (draws, followed)}, axis=1)


def _of_posterior(expected: Expected, draws: int) -> dict[Name, Shape]:
    wanted: dict[Name, Shape] = {("trace", "W", "log_likelihood"): (draws * expected.grid,)}
    for factor in expected.rows:
        for quantity, shape in expected.fields(factor):
            prefix = "" if quantity == THETA else f"{quantity.name}_"
            wanted |= {("moments", factor, f"{prefix}{moment}"): shape for moment in ("mean", "variance")}
    for field in ("rating", "mean", "variance", "noise_variance"):
        wanted["test", "W", field] = (expected.test,)
    return wanted | ({("test", "W", "shape"): (expected.test, expected.shape)} if expected.shape else {})


def check_draws(snapshot: Snapshot, expected: Expected) -> None:
    """Check a snapshot of saved draws; raises as `check_posteriors`."""
    draws, known = len(snapshot.manifest.saved_draws), expected.quantities
    _compare(snapshot, {("draw", "run", each.name): (draws, *each.shape(known.sizes)) for each in known.shared})
    for factor in expected.rows:
        fields = expected.fields(factor)
        _compare(snapshot, {("draw", factor, quantity.name): (draws, *shape) for quantity, shape in fields}, axis=1)


def _shapes(snapshot: Snapshot) -> dict[Name, list[Shape]]:
    """Shapes of the blocks of every array of a snapshot."""
    shapes: dict[Name, list[Shape]] = defaultdict(list)
    for entry in snapshot.manifest.blocks:
        shapes[entry.key.object, entry.key.factor, entry.key.field].append(entry.shape)
    return shapes


def _compare(snapshot: Snapshot, wanted: Mapping[Name, Shape], axis: int = 0) -> None:
    """Compare arrays, whose blocks are joined along `axis`, with the shapes that they must have."""
    shapes = _shapes(snapshot)
    for name, shape in wanted.items():
        others = {(len(block), block[:axis], block[axis + 1 :]) for block in shapes[name]}
        if (
            others != {(len(shape), shape[:axis], shape[axis + 1 :])}
            or sum(block[axis] for block in shapes[name]) != shape[axis]
        ):
            raise InputError(
                f"{snapshot.path} is inconsistent: its blocks of {'/'.join(name)} have the shapes {shapes[name]}; by "
                f"run.toml and the index they are {shape} together"
            )


def read_shared(snapshot: Snapshot, number: int, quantities: Quantities) -> dict[str, Float64]:
    """Read the shared parameters of a draw, by name. Raises InputError if they are damaged."""
    shared = snapshot.read_all(map(_shared, quantities.shared), number)
    return {quantity.name: values for quantity, values in zip(quantities.shared, shared, strict=True)}


def _shared(quantity: Quantity) -> Key:
    return Key("draw", "run", 0, quantity.name)
