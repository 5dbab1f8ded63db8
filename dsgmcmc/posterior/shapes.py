"""Shapes that the arrays of a run must have, by ``run.toml`` and the index.

Manifests of snapshots are compared with them before arrays are read: no array may be missing or
have another shape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import THETA, Quantities
from dsgmcmc.storage.store import Snapshot
from dsgmcmc.types import Factor

Shape = tuple[int, ...]
ArrayName = tuple[str, str, str]  # object, factor and field


@dataclass(frozen=True)
class Shapes:
    """Shapes of arrays of a run.

    Attributes
    ----------
    config : ResolvedConfig
    quantities : Quantities
        All quantities of the model.
    rows : dict of str to int
        Number of rows of each factor.
    tests : int
        Number of test ratings.
    """

    config: ResolvedConfig
    quantities: Quantities
    rows: Mapping[str, int]
    tests: int

    def of_rows(self, factor: str) -> dict[str, Shape]:
        """Return the shapes of the quantities of a factor's rows in a draw, by their names."""
        return {
            quantity.name: (self.rows[factor], quantity.width(self.quantities.sizes))
            for quantity in self.quantities.drawn_of_rows
            if quantity.is_of(Factor[factor])
        }

    def check_state(self, state: Snapshot) -> None:
        """Check a posterior, or the traces of a checkpoint.

        Raises InputError that names an array with a wrong shape.
        """
        draws = _total_length(state, ("trace", "run", "iteration"))
        expected: dict[ArrayName, Shape] = {}
        for quantity in self.quantities.traced:
            # the trace of a matrix has only its diagonal; the trace of a scalar has one column
            width, *_ = (*quantity.shape(self.quantities.sizes), 1)
            expected["trace", "run", quantity.name] = (draws, width)
        expected["trace", "run", "iteration"] = (draws, 1)
        expected["trace", "run", "weight"] = (draws, 1)
        _compare(state, expected)
        if state.manifest.kind == "posterior":
            self._check_posterior(state, draws)

    def _check_posterior(self, state: Snapshot, draws: int) -> None:
        """Check a posterior of so many draws; raise InputError as `check_state` does."""
        expected: dict[ArrayName, Shape] = {
            ("trace", "W", "log_likelihood"): (draws * self.config.grid,)
        }
        for factor in self.rows:
            for name, shape in self.of_rows(factor).items():
                prefix = "" if name == THETA.name else f"{name}_"
                expected["moments", factor, f"{prefix}mean"] = shape
                expected["moments", factor, f"{prefix}variance"] = shape
        for field in ("rating", "mean", "variance", "noise_variance"):
            expected["test", "W", field] = (self.tests,)
        parameters = len(self.config.law.starts)
        if parameters:
            expected["test", "W", "shape"] = (self.tests, parameters)
        _compare(state, expected)
        monitored = _total_length(state, ("trace", "W", "followed"))
        _compare(state, {("trace", "W", "prediction"): (draws, monitored)}, axis=1)

    def check_draws(self, snapshot: Snapshot) -> None:
        """Check a snapshot of saved draws; raise InputError as `check_state` does."""
        draws = len(snapshot.manifest.saved_draws)
        expected: dict[ArrayName, Shape] = {}
        for quantity in self.quantities.shared:
            shape = quantity.shape(self.quantities.sizes)
            expected["draw", "run", quantity.name] = (draws, *shape)
        _compare(snapshot, expected)
        for factor in self.rows:
            shapes = self.of_rows(factor)
            expected = {("draw", factor, name): (draws, *shapes[name]) for name in shapes}
            _compare(snapshot, expected, axis=1)


def _shapes(snapshot: Snapshot) -> dict[ArrayName, list[Shape]]:
    """Return the shapes of the blocks of every array of a snapshot."""
    shapes: dict[ArrayName, list[Shape]] = defaultdict(list)
    for entry in snapshot.manifest.blocks:
        shapes[entry.key.object, entry.key.factor, entry.key.field].append(entry.shape)
    return shapes


def _total_length(snapshot: Snapshot, name: ArrayName) -> int:
    """Return the length of an array along its first axis, all blocks together."""
    return sum(sum(shape[:1]) for shape in _shapes(snapshot)[name])


def _compare(snapshot: Snapshot, expected: Mapping[ArrayName, Shape], axis: int = 0) -> None:
    """Compare arrays, whose blocks are joined along `axis`, with their expected shapes."""
    shapes = _shapes(snapshot)
    for name, shape in expected.items():
        layouts = {(len(block), block[:axis], block[axis + 1 :]) for block in shapes[name]}
        same_layout = layouts == {(len(shape), shape[:axis], shape[axis + 1 :])}
        if same_layout and sum(block[axis] for block in shapes[name]) == shape[axis]:
            continue
        raise InputError(
            f"{snapshot.path} is inconsistent: its blocks of {'/'.join(name)} have the shapes"
            f" {shapes[name]}, but their joint shape by run.toml and the index is {shape}"
        )
