"""A run of a density, opened for use: draws and moments of theta, for ArviZ and for figures. No MPI."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from dsgmcmc.config.density import ResolvedDensity
from dsgmcmc.densities.draws import Draws
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.layout import Blocks
from dsgmcmc.posterior.live import newest_states, not_yet, nothing_yet, unfinished
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.types import Float64

#: What is kept of every draw, and which elements of theta.
TRACED = (
    *(Key("trace", "run", 0, name) for name in ("weight", "iteration")),
    *(Key("trace", "W", 0, name) for name in ("theta", "energy", "followed")),
)


class DensityRun(Draws):
    """A run directory of `dsgmcmc.sample_density`, opened for reading: `Draws`, of all elements of theta or some.

    Parameters
    ----------
    path : path of a run directory

    Attributes
    ----------
    path : Path
    config : ResolvedDensity
    unfinished : bool
        Whether its job has not ended, or was killed: the draws up to a checkpoint are there, but no moments.

    Raises
    ------
    InputError
        If it is no such run, or has no draws yet, or is damaged.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.directory = RunDirectory(Path(path))
        self.path = self.directory.path
        if "target" not in self.directory.read_settings()[1]:
            raise InputError(f"{self.path} is a run of a factorisation: open it with dsgmcmc.open_run")
        self.config, facts = ResolvedDensity.of_run(self.directory)
        self._states = newest_states(self.directory, facts, "traces")
        if not self._states:
            raise nothing_yet(self.directory, self.config, facts)
        for snapshot in self._states:
            _check(snapshot, facts.get("dimension"))
        self.unfinished = unfinished(self._states)
        traces = {key.field: [snapshot.read(key) for snapshot in self._states] for key in TRACED}
        length = min(map(len, traces["theta"]))  # cut to the shortest chain from its end
        elements = traces.pop("followed")[0]
        found = {name: np.stack([each[-length:] for each in trace]) for name, trace in traces.items()}
        super().__init__(
            sampler=self.config.sampler.name,
            interleaved=len(self.config.make_sampler().positions),
            theta=found["theta"],
            energy=found["energy"][..., 0],
            weight=found["weight"][..., 0],
            iteration=found["iteration"][..., 0].astype(np.int64),
            elements=elements,
        )

    @property
    def chains(self) -> list[int]:
        """Chains that have made draws."""
        return [snapshot.manifest.chain for snapshot in self._states]

    def moments(self) -> tuple[Float64, Float64]:
        """Posterior mean and variance of theta, (D,) float64 each, over the draws of all chains.

        Raises
        ------
        InputError
            If the run has not ended.
        """
        if self.unfinished:
            raise not_yet(self.directory, "moments")
        means, variances = (
            np.array([snapshot.read(Key("moments", "W", 0, name))[0] for snapshot in self._states])
            for name in ("mean", "variance")
        )
        return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)


def _check(snapshot: Snapshot, dimension: int | None) -> None:
    """Check the posterior of a chain over so many elements, or a checkpoint; raises as `Blocks` does."""
    blocks = Blocks(snapshot)
    draws, _ = blocks.shape(Key("trace", "run", 0, "iteration"), None, 1)
    blocks.shape(Key("trace", "run", 0, "weight"), draws, 1)
    (followed,) = blocks.shape(Key("trace", "W", 0, "followed"), None, kind="i")
    blocks.shape(Key("trace", "W", 0, "theta"), draws, followed)
    blocks.shape(Key("trace", "W", 0, "energy"), draws, 1)
    for name in ("mean", "variance") if snapshot.manifest.kind == "posterior" else ():
        blocks.shape(Key("moments", "W", 0, name), 1, dimension)
