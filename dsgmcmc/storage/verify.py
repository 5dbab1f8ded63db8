"""Checks of the files of a run or a snapshot, and the digest of their content.

The digest is SHA-256 over block hashes in the order of (chain, object, factor, block, field), of the newest
checkpoint, the saved draws that belong to it, and the posterior. It has no times, no versions and no number of
processes in it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.manifest import SmallArray, lost
from dsgmcmc.storage.rundir import SERIES, RunDirectory
from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.storage.snapshot import Snapshot, block_hash


def snapshot_lines(snapshot: Snapshot, label: str) -> list[str]:
    """One line for everything that a snapshot holds: its name and its hash."""
    chain = snapshot.manifest.chain
    lines = [
        f"{chain} {label} {entry.key.object} {entry.key.factor} {entry.key.block} {entry.key.field} {entry.sha256}"
        for entry in snapshot.manifest.blocks
    ]
    small: dict[str, SmallArray] = snapshot.manifest.state
    lines += [f"{chain} {label} replicated {name} {block_hash(small[name].array())}" for name in small]
    return sorted(lines)


def verify_run(run: RunDirectory) -> str:
    """Check all snapshots of a run, and return its content digest.

    Of a run that is being sampled it is that of the newest checkpoint there was, and of what this counts on; what the
    run has removed meanwhile is passed over. Raises InputError naming the first file or block that is wrong; or a
    `GoneError`, if the run has removed what counts: begin anew.
    """
    _, facts = run.read_settings()
    run.open_index(facts).verify()
    for path in run.starts() if "start" in facts else ():
        Snapshot(path).verify()
    lines = [line for chain in run.chains() for line in _chain_lines(run, chain, facts)]
    if not lines:
        raise InputError(f"{run.path} has no snapshot yet")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _chain_lines(run: RunDirectory, chain: int, facts: Facts) -> list[str]:
    """Check all snapshots of a chain; lines of its newest checkpoint, the draws that belong to it and its posterior."""
    lines: list[str] = []
    newest, draws = run.path, set[int]()
    for kind in SERIES:  # checkpoints come first, and say which draws there must be
        parent = run.series(kind, chain)
        iterations = steps(parent)[::-1]  # the oldest is removed first
        counting = draws if kind == "draws" else set(iterations[:1])
        own = {}
        for iteration in iterations:
            try:
                snapshot = run.open_snapshot(kind, chain, iteration, facts)
                snapshot.verify()
            except GoneError:
                if iteration in counting:
                    raise
                continue
            if iteration in counting:
                own[iteration] = snapshot_lines(snapshot, f"{kind} {iteration}")
            if iteration in counting and kind == "checkpoints":
                newest, draws = snapshot.path, snapshot.manifest.saved_draws
        if missing := counting.difference(own):
            where = parent / step_name(min(missing))
            raise lost(newest, f"{where} is missing: the newest checkpoint needs it")
        lines += [line for iteration in sorted(own) for line in own[iteration]]
    return lines


def verify_snapshot(path: Path) -> str:
    """Check one snapshot, and return the digest of its content."""
    snapshot = Snapshot(path)
    snapshot.verify()
    return hashlib.sha256("\n".join(snapshot_lines(snapshot, "")).encode()).hexdigest()
