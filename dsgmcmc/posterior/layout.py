"""What must lie in the posteriors, checkpoints and draws of a run, checked by their manifests before all is read.

Sizes follow from ``run.toml`` and the index. A reader that has passed these checks finds every block that it asks for,
in the shape that it expects; that the numbers are those that were written is checked by their hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Snapshot

#: Of the hyperparameters, those that every draw has.
PARAMETERS = ("tau", "W.mean", "W.precision", "H.mean", "H.precision")
#: Of those that a model may have, the ones that come together.
TOGETHER = (("implicit.mean", "implicit.variance"), ("features.strength", "features.explained"))


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run.

    Attributes
    ----------
    rows : dict of str to int
        Rows of each factor.
    dimension : int
        Columns D of a factor.
    grid : int
        Blocks of a factor.
    test : int
        Test ratings.
    levels : int
        Different training ratings R; 0 where they are too many to be levels.
    dense : bool
        Whether the priors' precisions are matrices.
    times : int
        Levels of time.
    gaps : int
        Gaps between thresholds, where users have their own.
    """

    rows: dict[str, int]
    dimension: int
    grid: int
    test: int
    levels: int
    dense: bool
    times: int = 0
    gaps: int = 0

    @classmethod
    def of(cls, config: ResolvedConfig, lengths: tuple[dict[str, int], int], levels: int) -> Sizes:
        """Sizes by a run's configuration, its index (`dsgmcmc.posterior.names.Index.lengths`) and number of levels."""
        rows, test = lengths
        dense = config.prior == "normal-wishart"
        times = 0 if config.time_levels == "no" else len(config.time_levels.split(","))
        gaps = 0 if config.thresholds == "shared" else levels - 2
        return cls(rows, config.dimension, config.grid, test, levels, dense, times, gaps)


class Blocks:
    """Shapes of the arrays of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
        Only its manifest is looked at.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._path = snapshot.path
        self._entries = {entry.key: entry for entry in snapshot.manifest.blocks}
        self._state = snapshot.manifest.state

    def names(self, thing: str, factor: str) -> set[str]:
        """Fields of an object and factor, over all its blocks."""
        return {key.field for key in self._entries if key[:2] == (thing, factor)}

    def shape(self, key: Key, *wanted: int | None, kind: str = "f") -> tuple[int, ...]:
        """Shape of an array of floats, or of integers, which must be the one that is wanted; None is any number.

        Raises
        ------
        InputError
            If there is no such array.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise InputError(f"{self._path} is incomplete: it has no {key.path}")
        self._compare(key.path, entry.shape, wanted)
        if entry.dtype[1] != kind:
            raise InputError(f"{self._path} is inconsistent: {key.path} is of type {entry.dtype}")
        return entry.shape

    def rows(self, thing: str, factor: str, field: str, sizes: Sizes, total: int, *width: int, kind: str = "f") -> None:
        """Check an array that is cut into the blocks of a factor and has so many rows in `total`; raises as `shape`."""
        keys = [Key(thing, factor, b, field) for b in range(sizes.grid)]
        found = sum(self.shape(key, None, *width, kind=kind)[0] for key in keys)
        self._compare(f"{thing}/{factor}/*/{field}", (found, *width), (total, *width))

    def small(self, name: str, *wanted: int | None, positive: bool = False) -> None:
        """Check a small array of the manifest, whose numbers, or diagonal, may have to be positive; as `shape`."""
        if name not in self._state:
            raise InputError(f"{self._path} is incomplete: its state has no {name}")
        self._compare(name, self._state[name].shape, wanted)
        values = self._state[name].array()
        if not np.isfinite(values).all():
            raise InputError(f"{self._path} is inconsistent: {name} has values that are not finite")
        if positive and not ((np.diag(values) if values.ndim == 2 else values) > 0).all():
            raise InputError(f"{self._path} is inconsistent: {name} is not positive")

    def has(self, name: str) -> bool:
        """Whether there is a small array."""
        return name in self._state

    def together(self, names: set[str], pairs: Any) -> None:
        """Refuse one of two that come together; raises InputError."""
        for factor in "WH":
            for one, other in pairs:
                if (f"{factor}.{one}" in names) != (f"{factor}.{other}" in names):
                    raise InputError(f"{self._path} is incomplete: it has one of {factor}.{one} and {factor}.{other}")

    def _compare(self, name: str, found: tuple[int, ...], wanted: tuple[int | None, ...]) -> None:
        if len(found) != len(wanted) or any(w not in (None, n) for n, w in zip(found, wanted, strict=True)):
            shown = ", ".join("n" if n is None else str(n) for n in wanted)
            raise InputError(
                f"{self._path} is inconsistent: {name} is of shape {found}; by run.toml and the index it is ({shown})"
            )


def check_posteriors(snapshots: list[Snapshot], sizes: Sizes) -> None:
    """Check the posteriors of all chains; of checkpoints, which have no posterior, the traces alone.

    Raises
    ------
    InputError
        Naming what is missing, or of another shape.
    """
    for snapshot in snapshots:
        draws = _check_traces(snapshot, sizes)
        if snapshot.manifest.kind == "posterior":
            _check_posterior(snapshot, sizes, draws)
    traced = [Blocks(snapshot).names("trace", "run") for snapshot in snapshots]
    for snapshot, names in zip(snapshots, traced, strict=True):
        if names != traced[0]:
            different = ", ".join(sorted(names ^ traced[0]))
            raise InputError(f"{snapshot.path} is inconsistent: not all chains have traces of {different}")


def _check_traces(snapshot: Snapshot, sizes: Sizes) -> int:
    """Check the small parameters of every draw; how many draws there are."""
    blocks, d = Blocks(snapshot), sizes.dimension
    draws, _ = blocks.shape(Key("trace", "run", 0, "iteration"), None, 1)
    traced = blocks.names("trace", "run") | {"weight", *PARAMETERS, *(["time.precision"] if sizes.times else [])}
    traced |= {"thresholds", "thresholds.precision"} if sizes.gaps else set()
    own = {"thresholds": sizes.levels - 1, "time.precision": sizes.times, "thresholds.precision": sizes.gaps}
    for name in traced:
        factor_wide = name[2:] in ("mean", "precision", "implicit.mean", "implicit.variance")
        width = d if factor_wide else 1 if name in ("iteration", "weight", "tau") else None
        blocks.shape(Key("trace", "run", 0, name), draws, own.get(name, width))
    blocks.together(traced, TOGETHER)
    return draws


def _check_posterior(snapshot: Snapshot, sizes: Sizes, draws: int) -> None:
    blocks, d = Blocks(snapshot), sizes.dimension
    for factor, n in sizes.rows.items():
        for field in ("mean", "variance"):
            blocks.rows("moments", factor, field, sizes, n, d)
        if "weight_mean" in blocks.names("moments", "W") | blocks.names("moments", "H"):
            blocks.rows("moments", factor, "weight_mean", sizes, n, 1)
        if sizes.gaps:
            blocks.rows("moments", factor, "cuts_mean", sizes, n, sizes.gaps + 1)
    for field in ("rating", "mean", "variance", "noise_variance"):
        blocks.rows("test", "W", field, sizes, sizes.test)
    if "probability" in blocks.names("test", "W"):
        blocks.rows("test", "W", "probability", sizes, sizes.test, sizes.levels)
    for b in range(sizes.grid):
        (followed,) = blocks.shape(Key("trace", "W", b, "followed"), None, kind="i")
        blocks.shape(Key("trace", "W", b, "prediction"), draws, followed)
        blocks.shape(Key("trace", "W", b, "log_likelihood"), draws)


def check_draw(snapshot: Snapshot, sizes: Sizes) -> None:
    """Check a saved draw; raises as `check_posteriors`."""
    blocks, d = Blocks(snapshot), sizes.dimension
    blocks.small("tau", positive=True)
    fields = blocks.names("draw", "W") | blocks.names("draw", "H")
    for factor, n in sizes.rows.items():
        other = "H" if factor == "W" else "W"
        blocks.small(f"{factor}.mean", d)
        blocks.small(f"{factor}.precision", *((d, d) if sizes.dense else (d,)), positive=True)
        blocks.rows("draw", factor, "theta", sizes, n, d)
        if "weight" in fields:
            blocks.rows("draw", factor, "weight", sizes, n, 1)
        if sizes.gaps:
            blocks.rows("draw", factor, "cuts", sizes, n, sizes.gaps + 1)
        if blocks.has(f"{factor}.nu"):
            blocks.small(f"{factor}.nu", positive=True)
        if blocks.has(f"{factor}.implicit.mean"):
            for name in ("mean", "variance"):
                blocks.small(f"{factor}.implicit.{name}", d)
            blocks.rows("draw", other, "implicit", sizes, sizes.rows[other], d)
        if blocks.has(f"{factor}.features.strength"):
            blocks.small(f"{factor}.features.strength", None)
            blocks.small(f"{factor}.features.effects", None, d)
    if sizes.gaps:
        blocks.small("thresholds.precision", sizes.gaps, positive=True)
    if sizes.gaps or blocks.has("thresholds"):
        blocks.small("thresholds", sizes.levels - 1)
    if sizes.times:
        blocks.small("time.precision", sizes.times, positive=True)
