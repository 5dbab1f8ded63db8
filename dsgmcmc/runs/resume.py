"""Resuming a chain from its newest complete checkpoint, on any number of processes.

A checkpoint is complete if it is undamaged, and so are the files of the draws that it counts on. If it is not, the
chain resumes from the checkpoint before it, and makes the same draws again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dsgmcmc.errors import AgreedError, InputError, WriteError
from dsgmcmc.parallel.comm import agree
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.state import ChainState
from dsgmcmc.storage.draws import SavedDraws
from dsgmcmc.storage.facts import Facts, check_made_with
from dsgmcmc.storage.manifest import Manifest, parse_manifest, read_manifest, read_text
from dsgmcmc.storage.provenance import versions
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import remove, step_name, steps
from dsgmcmc.storage.snapshot import Snapshot

log = logging.getLogger(__name__)


class Resume:
    """Reads the checkpoints of one chain.

    Parameters
    ----------
    ring : Ring
        The processes of the chain.
    state_for : callable
        Makes the state that receives what is read, given the iterations at which the chain had diverged.
    run : RunDirectory
        Where the snapshots lie.
    chain : int
        Number of the chain.
    facts : dict
        Facts that its snapshots must have been made with, with `data_hash` and `config_hash`.
    """

    def __init__(
        self,
        ring: Ring,
        state_for: Callable[[tuple[int, ...]], ChainState],
        run: RunDirectory,
        chain: int,
        facts: Facts,
    ) -> None:
        self._ring, self._state_for, self._run, self._chain = ring, state_for, run, chain
        self._facts = facts
        self._at_root = self._ring.rank == 0
        self._checked: set[Path] = set()  # draws that several checkpoints need are read once

    def newest(self) -> Manifest | None:
        """Load the state of the newest complete checkpoint; None if there is none. Collective.

        What an interrupted run wrote after it is removed, and so are damaged checkpoints before it.

        Raises
        ------
        InputError
            If there are checkpoints, but none is complete.
        """
        comm, parent = self._ring.comm, self._run.series("checkpoints", self._chain)
        iterations: list[int] = comm.bcast(steps(parent) if self._at_root else None, root=0)
        why = ""
        while iterations:
            iteration = iterations.pop()
            try:
                manifest = self._load(parent / step_name(iteration))
            except InputError as error:
                why = str(error)
                if self._at_root:
                    log.warning("%s; falling back to the checkpoint before it", error)
                    self._run.note("fell back", chain=self._chain, iteration=iteration, error=why)
                continue
            agree(comm, partial(self._tidy, manifest.iteration), "preparing to resume")
            for earlier in iterations:
                self._keep_whole(parent / step_name(earlier))
            prune = partial(self._run.prune_draws, self._chain)
            agree(comm, prune if self._at_root else lambda: None, "removing draws", WriteError)
            return manifest
        if why:
            raise AgreedError(
                f"no checkpoint in {parent} can be read with its draws ({why}); start again in a new directory: the "
                "same settings give the same draws"
            )
        agree(comm, partial(self._tidy, 0), "preparing to start")
        return None

    def _keep_whole(self, path: Path) -> None:
        """Remove an older checkpoint if it is not complete, so that no job tries to resume from it. Collective."""
        comm = self._ring.comm
        try:
            manifest = agree(comm, partial(read_manifest, path), f"reading {path}")
            self._check_files([Snapshot(path, manifest), *self._draws(manifest)])
        except InputError as error:
            if self._at_root:
                log.warning("%s; it is no longer needed, and is removed", error)
                self._run.note("removed", chain=self._chain, error=str(error))
            agree(comm, partial(remove, path) if self._at_root else lambda: None, f"removing {path}", WriteError)

    def _draws(self, manifest: Manifest) -> list[Snapshot]:
        """Snapshots of the draws that a checkpoint counts on. Collective."""

        def opened() -> list[Snapshot]:
            return SavedDraws(self._run, self._chain, self._facts).snapshots(manifest.saved_draws)

        return agree(self._ring.comm, opened, "reading saved draws")

    def _check_files(self, snapshots: list[Snapshot]) -> None:
        """Check that no file is damaged; the processes share the files. Collective."""
        new = [snapshot for snapshot in snapshots if snapshot.path not in self._checked]
        files = [(snapshot, shard) for snapshot in new for shard in snapshot.manifest.shards]

        def check() -> None:
            for snapshot, shard in files[self._ring.rank :: self._ring.size]:
                snapshot.check_shard(shard)

        agree(self._ring.comm, check, "checking saved files")
        self._checked.update(snapshot.path for snapshot in new)

    def _load(self, path: Path) -> Manifest:
        comm = self._ring.comm
        read = partial(read_text, path)
        text = comm.bcast(agree(comm, read if self._at_root else lambda: "", f"reading {path}"), root=0)
        manifest = agree(comm, partial(parse_manifest, text, path), f"reading {path}")
        agree(comm, partial(self._check, manifest, path), f"reading {path}")
        self._check_files(self._draws(manifest))
        state = self._state_for(manifest.diverged)
        agree(comm, partial(self._take, state, Snapshot(path, manifest)), f"reading {path}")
        return manifest

    def _take(self, state: ChainState, snapshot: Snapshot) -> None:
        try:
            state.load(snapshot)
        except InputError:
            raise
        except (
            KeyError,
            ValueError,
            IndexError,
        ) as error:  # its seal is intact, but its content does not belong to this run
            raise InputError(f"{snapshot.path} is incomplete or inconsistent: {error!r}") from error

    def _check(self, manifest: Manifest, path: Path) -> None:
        check_made_with(manifest, self._facts, path)
        identity = (manifest.kind, manifest.chain, manifest.grid, step_name(manifest.iteration))
        expected = ("checkpoint", self._chain, self._ring.grid, path.name)
        if identity != expected:
            raise InputError(f"{path} holds something else: (kind, chain, grid, name) are {identity}, not {expected}")

    def _tidy(self, newest: int) -> None:
        """Remove what an interrupted run wrote, or began to write, after its newest checkpoint."""
        if self._at_root:
            self._run.cut(self._chain, newest)

    def note(self, manifest: Manifest) -> None:
        """Record that the chain resumes from a checkpoint, and warn if other versions wrote it."""
        if not self._at_root:
            return
        before, now = manifest.about.get("versions", {}), versions()
        changes = {name: [before.get(name), now[name]] for name in now if before.get(name) != now[name]}
        if changes:
            text = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items())
            log.warning(
                "chain %d was sampled with other versions so far (%s): it goes on, but its bits are no longer those of "
                "a run with one version",
                self._chain,
                text,
            )
        facts = {"processes": self._ring.size, **({"changes": changes} if changes else {})}
        self._run.note("resumed", chain=self._chain, iteration=manifest.iteration, **facts)
