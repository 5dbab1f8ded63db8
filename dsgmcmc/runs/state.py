"""The whole state of a chain: what its target, its sampler and its recorders save, and where it has diverged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.manifest import DIVERGED, Key, SmallArray
from dsgmcmc.storage.snapshot import Lazy, Snapshot
from dsgmcmc.targets.base import Recorder
from dsgmcmc.types import Array


@dataclass
class ChainState:
    """The content of a checkpoint.

    Attributes
    ----------
    target : FactorTarget
        What is sampled.
    sampler : Sampler
        The sampler, with its replicated state.
    draws : DrawRecorder
        Moments and draws.
    others : tuple of Recorder
        Further recorders of the target.
    diverged : tuple of int
        Iterations at which the chain has diverged, each time before it began again with the next fallback.
    """

    target: FactorTarget
    sampler: Sampler[Any, Any]
    draws: DrawRecorder
    others: tuple[Recorder, ...]
    diverged: tuple[int, ...] = ()

    @property
    def recorders(self) -> tuple[Recorder, ...]:
        """All recorders."""
        return (self.draws, *self.others)

    def saved(self) -> Iterator[tuple[Key, Array]]:
        """Arrays of this process."""
        yield from self.target.saved()
        for recorder in self.recorders:
            yield from recorder.saved()

    def small(self) -> dict[str, SmallArray]:
        """Arrays that are the same on all processes."""
        arrays = self.target.small()
        for replicated in self.sampler.replicated:
            arrays |= replicated.arrays()
        for recorder in self.recorders:
            arrays |= recorder.small()
        if self.diverged:
            arrays[DIVERGED] = np.array(self.diverged, np.float64)
        return {name: SmallArray.of(array) for name, array in arrays.items()}

    def load(self, snapshot: Snapshot) -> None:
        """Load everything from a checkpoint of a chain that had diverged as often.

        Raises
        ------
        ValueError
            If a number of the target is not finite, or an array has another shape or type than at the start of a
            chain; traces may have any length.
        """
        expected = {key: f"{array.dtype} {array.shape}" for key, array in self.saved()}
        small = {name: value.array() for name, value in snapshot.manifest.state.items()}
        for name, array in self.target.small().items():
            if name not in small or small[name].shape != array.shape:
                raise ValueError(f"{name} is missing, or not of shape {array.shape}")
            if not np.isfinite(small[name]).all():
                raise ValueError(f"{name} has values that are not finite")
        self.target.load(snapshot)
        for replicated in self.sampler.replicated:
            replicated.take(small)
        for recorder in self.recorders:
            recorder.load(snapshot)
        for key, array in self.saved():
            loaded = f"{array.dtype} {array.shape}"
            if key.object != "trace" and loaded != expected.get(key, loaded):  # other column blocks may be here now
                raise ValueError(f"{key.path} is {loaded}, not {expected[key]}")
            if key.object == "state" and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{key.path} has values that are not finite")

    def go_on_from(self, snapshot: Snapshot) -> None:
        """Take the model's state from a checkpoint of another sampler, for a chain that has just started.

        Momenta, and whatever else the sampler keeps, stay as they are.
        """
        kept = {field.name for field in self.sampler.kept}
        self.target.load(snapshot, but=kept.difference(self.sampler.positions))

    def posterior(self) -> Iterator[tuple[Key, Lazy]]:
        """Arrays of the posterior, from all draws."""
        weight = max(self.draws.weight, np.finfo(np.float64).tiny)
        for recorder in self.recorders:
            yield from recorder.posterior(weight)
