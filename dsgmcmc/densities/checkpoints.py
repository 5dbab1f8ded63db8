"""The run directory of chains that sample a density: their checkpoints and draws, and resuming.

It has ``run.toml``, ``checkpoints`` and ``draws`` as the directory of a run on ratings
(`dsgmcmc.storage.rundir`). A checkpoint holds all fields of the state, and the arrays of the
sampler and of its gradient estimator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.chain import KEPT_CHECKPOINTS, ResolvedChain
from dsgmcmc.densities.density import Density, start_points
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import AgreedError, InputError, StoppedError, refusing, writing
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.runs.opening import claim, refuse_changes, refuse_shorter, refuse_taken
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage import store
from dsgmcmc.storage.lock import Lock
from dsgmcmc.storage.rundir import (
    SERIES,
    Facts,
    RunDirectory,
    SavedDraws,
    header,
    made_with,
    versions,
)
from dsgmcmc.storage.store import Key, SmallArray, Snapshot
from dsgmcmc.targets.state import Replicated, arrays_of, take_all
from dsgmcmc.terminal import log
from dsgmcmc.types import Array

#: Relative difference of energies near the start above which a density is another one; other
#: machines may round differently.
SAME_ENERGY = 1e-6
#: Name of the block of a snapshot, in place of a factor.
WHOLE = "density"


def _key(kind: str, name: str) -> Key:
    """Return the key of an array: of the ``state``, the ``sampler`` or the ``draw`` s."""
    return Key(kind, WHOLE, 0, name)


class ChainState(NamedTuple):
    """The state of a chain, apart from its draws."""

    number: int
    target: VectorTarget[Any]
    sampler: Sampler[Any, Any]

    @property
    def _replicated(self) -> tuple[Replicated, ...]:
        return (*self.sampler.replicated, *self.sampler.gradient.replicated)

    def blocks(self) -> dict[Key, Array]:
        """Return the arrays of a checkpoint."""
        fields = self.target.layout.names
        blocks = {_key("state", name): self.target.block[name] for name in fields}
        for name, array in arrays_of(self._replicated).items():
            blocks[_key("sampler", name)] = np.asarray(array)
        return blocks

    def load(self, snapshot: Snapshot) -> None:
        """Load the arrays of a checkpoint.

        Raises
        ------
        InputError
            If an array is missing, or has another shape.
        """
        with refusing(f"{snapshot.path} is incomplete or inconsistent", KeyError, ValueError):
            small = {}
            for key in snapshot.block_keys():
                array = snapshot.read(key)
                if key.object == "state":
                    self.target.block[key.field][:] = array
                else:
                    small[key.field] = array
            take_all(self._replicated, small)


@dataclass(eq=False)
class DensityRun:
    """A run directory in which the processes of a job save their chains of a density.

    Attributes
    ----------
    directory : RunDirectory
        The directory.
    facts : dict
        Facts that the snapshots record.
    signals : Signals
        Requests to stop.
    every : tuple of (int or None, float or None)
        Iterations, or seconds, between the checkpoints of a chain.
    reached : int
        Largest number of iterations of a chain in earlier jobs.
    """

    directory: RunDirectory
    facts: Facts
    signals: Signals
    every: tuple[int | None, float | None]
    reached: int
    _saved: dict[int, int] = field(default_factory=dict)  # iterations, by chain
    _saved_draws: dict[int, int] = field(default_factory=dict)  # numbers of draws, by chain
    _saved_at: float = field(default_factory=monotonic)

    @property
    def stopped(self) -> bool:
        """Whether this process has been asked to stop."""
        return self.signals.request >= Request.STOP

    def is_due(self, number: int, iterations: int) -> bool:
        """Whether a chain is to be saved after this number of iterations."""
        in_iterations, in_seconds = self.every
        if self.stopped:
            return True
        if in_iterations is not None:
            return iterations >= self._saved.get(number, 0) + in_iterations
        return in_seconds is not None and monotonic() >= self._saved_at + in_seconds

    def save(self, chain: ChainState, iterations: int, draws: Mapping[str, Array]) -> None:
        """Write a checkpoint of a chain, and the draws that no earlier one has.

        Parameters
        ----------
        chain : ChainState
        iterations : int
            Number of iterations that the chain has made.
        draws : mapping of str to array
            All draws of the chain, along the first axis; ``iteration`` has their iterations.

        Raises
        ------
        WriteError
            If the disk is full or has failed.
        """
        number = chain.number
        self._saved_at = monotonic()
        if self._saved.get(number) == iterations:
            return
        made = len(draws["iteration"])
        earlier = self._saved_draws.get(number, 0)
        with writing(self.directory.path):
            if made > earlier:
                new = {_key("draw", name): array[earlier:] for name, array in draws.items()}
                saved = draws["iteration"][earlier:]
                self._write("draws", chain, iterations, blocks=new, saved=saved)
            self._write(
                "checkpoints",
                chain,
                iterations,
                blocks=chain.blocks(),
                saved=draws["iteration"],
            )
            store.prune(self.directory.series("checkpoints", number), KEPT_CHECKPOINTS)
            self.directory.prune_draws(number)
        self._saved[number] = iterations
        self._saved_draws[number] = made

    def _write(
        self,
        series: str,
        chain: ChainState,
        iterations: int,
        *,
        blocks: Mapping[Key, Array],
        saved: Array,
    ) -> None:
        """Write a snapshot in one of `SERIES`; `saved` lists the iterations of draws."""
        head = header(
            SERIES[series],
            self.facts,
            chain=chain.number,
            iteration=iterations,
            grid=chain.target.sweep_length,
            state={store.SAVED_DRAWS: SmallArray.from_array(saved)},
        )
        parent = self.directory.series(series, chain.number)
        store.write_snapshot(parent, store.step_name(iterations), blocks, head)

    def load(self, chain: ChainState) -> tuple[int, dict[str, Array]]:
        """Load the newest complete checkpoint of a chain, and remove what is later.

        Returns
        -------
        iterations : int
            Number of iterations that the chain has made; 0 without a checkpoint.
        draws : dict of str to array
            Its draws, as for `save`; empty without any.

        Raises
        ------
        AgreedError
            If there are checkpoints, but none is complete.
        """
        number = chain.number
        damage = ""
        for iterations in reversed(store.steps(self.directory.series("checkpoints", number))):
            try:
                snapshot = self.directory.open_snapshot(
                    "checkpoints", number, iterations, self.facts
                )
                draws = self._read_draws(number, snapshot.manifest.saved_draws)
                chain.load(snapshot)
            except InputError as error:
                damage = str(error)
                log.warning("%s; trying the previous checkpoint", error)
                continue
            self.directory.cut(number, iterations)
            self._saved[number] = iterations
            self._saved_draws[number] = len(snapshot.manifest.saved_draws)
            return iterations, draws
        if damage:
            raise AgreedError(
                f"no checkpoint of chain {number} in {self.directory.path} can be used ({damage}):"
                " start again in a new directory"
            )
        self.directory.cut(number, 0)
        return 0, {}

    def _read_draws(self, number: int, iterations: list[int]) -> dict[str, Array]:
        """Read the draws of some iterations, which are all up to the last of them."""
        saved = SavedDraws(self.directory, number, self.facts)
        pieces: dict[str, list[Array]] = {}
        for snapshot in saved.snapshots(iterations):
            for key in snapshot.block_keys():
                pieces.setdefault(key.field, []).append(snapshot.read(key))
        draws = {name: np.concatenate(arrays) for name, arrays in pieces.items()}
        if draws and draws["iteration"].tolist() != iterations:
            raise InputError(f"{saved.path} has other draws than the checkpoint")
        return draws


@contextmanager
def open_density_run(
    comm: Comm,
    out: Path,
    resume: bool,
    *,
    density: Density,
    config: ResolvedChain,
    longest: int,
    open_length: bool,
) -> Iterator[DensityRun]:
    """Context with a run directory, which this job has locked and prepared. Collective.

    At its end, signals are delivered that came meanwhile.

    Parameters
    ----------
    out : Path
        The directory.
    resume : bool
        Whether to continue a run in it.
    config : ResolvedChain
        Settings of the chains.
    longest : int
        Largest number of iterations that the chains may make.
    open_length : bool
        Whether the chains go on until they have mixed.

    Raises
    ------
    AgreedError
        If another job uses the directory, if it is not empty without `resume`, or if the run in it
        has another density, other settings, or more than `longest` iterations.
    StoppedError
        If a signal came before the directory was free.
    """
    directory = RunDirectory(out)
    on_root(comm, partial(refuse_taken, directory, resume))
    signals = Signals()
    lock = Lock(directory.lock_file)
    with signals.borrowed():
        try:
            if claim(comm, lock, signals):
                raise StoppedError
            prepare = partial(
                _prepare,
                directory,
                density,
                config,
                longest=longest,
                open_length=open_length,
            )
            facts = on_root(comm, prepare)
            reached = on_root(comm, lambda: max(directory.reached(config.chains)))
            yield DensityRun(
                directory=directory,
                facts=facts,
                signals=signals,
                every=config.checkpoint_interval(),
                reached=reached,
            )
        finally:
            if comm.rank == 0:
                lock.release()


def saved_settings(out: Path, config_class: type[ResolvedChain]) -> tuple[dict[str, Any], Facts]:
    """Return the settings of a density's run, and its facts; empty without a run.

    Raises
    ------
    InputError
        If ``run.toml`` cannot be read, or is that of a run on ratings.
    """
    directory = RunDirectory(out)
    if not directory.settings_file.exists():
        return {}, {}
    config, facts = config_class.of_run(directory)
    return config.table(), facts


def _prepare(
    directory: RunDirectory,
    density: Density,
    config: ResolvedChain,
    *,
    longest: int,
    open_length: bool,
) -> Facts:
    """Check the run that is continued, write ``run.toml``, and return its facts; on process 0."""
    saved, facts = saved_settings(directory.path, type(config))
    energies = density.energy(start_points(density, 1.0)).tolist()
    digest = _digest(density)
    if saved:
        refuse_changes(type(config).from_settings(saved), config, directory)
        refuse_shorter(longest, config.chains, directory)
        if facts["data_hash"] != digest:
            raise InputError(
                f"{directory.path} has draws from a density with another prior, dimension or number"
                " of data: give another out"
            )
        if not np.allclose(facts["energies"], energies, rtol=SAME_ENERGY, equal_nan=True):
            raise InputError(
                f"{directory.path} has draws from another density: its energies near the start were"
                f" {facts['energies']}, and are {energies}. Give another out"
            )
    else:
        facts = {
            "density": type(density).__name__,
            "energies": energies,
            "data_hash": digest,
            "config_hash": config.hash(),
            "versions": versions(),
            "open_length": open_length,
        }
    store.clean(directory.path)
    directory.write_settings(config.table(), facts)
    return {name: facts[name] for name in ("data_hash", "config_hash")} | made_with(facts)


def _digest(density: Density) -> str:
    """Return the SHA-256 of what a density says of itself without computing."""
    digest = hashlib.sha256(f"{density.dimension} {density.n_data}".encode())
    for array in (density.prior_mean, density.prior_precision):
        digest.update(np.ascontiguousarray(array, np.float64).tobytes())
    return digest.hexdigest()
