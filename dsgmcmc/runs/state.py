"""Everything that a chain has to remember: what its target, its sampler and its recorders save, and its own step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.manifest import Key, SmallArray
from dsgmcmc.storage.snapshot import Lazy, Snapshot
from dsgmcmc.targets.base import Recorder, RunTarget
from dsgmcmc.types import Array


@dataclass
class ChainState:
    """What belongs to a checkpoint.

    Attributes
    ----------
    target : RunTarget
        What is sampled.
    sampler : Sampler
        With its replicated state.
    draws : DrawRecorder
        Moments and draws.
    others : tuple of Recorder
        What the target records besides.
    step_scale : float
        Times which the configured step is taken.
    """

    target: RunTarget
    sampler: Sampler[Any]
    draws: DrawRecorder
    others: tuple[Recorder, ...]
    step_scale: float = 1.0

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
        if self.step_scale != 1.0:
            arrays["chain.step_scale"] = np.array(self.step_scale)
        return {name: SmallArray.of(array) for name, array in arrays.items()}

    def load(self, snapshot: Snapshot) -> None:
        """Take everything from a checkpoint but the step, which is told to `Chain`."""
        self.target.load(snapshot)
        small = {name: value.array() for name, value in snapshot.manifest.state.items()}
        for replicated in self.sampler.replicated:
            replicated.take(small)
        for recorder in self.recorders:
            recorder.load(snapshot)

    def posterior(self) -> Iterator[tuple[Key, Lazy]]:
        """What was found, given all draws."""
        weight = max(self.draws.weight, np.finfo(np.float64).tiny)
        for recorder in self.recorders:
            yield from recorder.posterior(weight)
